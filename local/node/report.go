package node

import (
	"context"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/local/node/containerlog"
	"github.com/sandlane/sandlane/local/node/status"
)

// reportRetry is the longest pause between tries of a write to the API.
const reportRetry = 2 * time.Second

// report writes a pod's status whenever it changed, and deletes the object
// when the pod is dead and to be deleted. It is the only writer of the status,
// so that an older one never comes after a newer one. It ends with the node
// or when the pod is gone.
func (v *provider) report(p *pod) {
	var written *corev1.PodStatus
	deleted := false
	retry := time.Duration(0)
	for {
		var again <-chan time.Time
		if retry > 0 {
			again = time.After(retry)
		}
		dead := p.dead
		if deleted {
			dead = nil
		}
		select {
		case <-v.ctx.Done():
			return
		case <-p.gone:
			return
		case <-p.dirty:
		case <-again:
		case <-dead:
		}
		isDead := false
		select {
		case <-p.dead:
			isDead = true
		default:
		}
		st := p.status()
		spec := p.current()
		err := error(nil)
		if written == nil || !equality.Semantic.DeepEqual(*written, st) {
			if err = status.Patch(v.ctx, v.client.CoreV1().Pods(spec.Namespace), spec, st); err == nil {
				written = &st
			}
		}
		if err == nil && isDead {
			p.mu.Lock()
			deleting := p.deleting
			p.mu.Unlock()
			if deleting {
				err = v.tryDelete(spec)
				deleted = err == nil
			} else {
				deleted = false
				if !waitDeleting(v.ctx, p) {
					return
				}
				continue
			}
		}
		switch {
		case err == nil:
			retry = 0
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
			return // gone, or another pod has its name
		default:
			if retry = min(max(2*retry, 50*time.Millisecond), reportRetry); v.ctx.Err() == nil {
				v.log.Warn("write a pod's status", "pod", spec.Name, "error", err)
			}
		}
	}
}

// waitDeleting waits, for a pod whose containers have all ended by
// themselves, until it is deleted; false is the node's end.
func waitDeleting(ctx context.Context, p *pod) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.stop.Done():
		return ctx.Err() == nil
	}
}

// tryDelete deletes the object for good; its processes are dead.
func (v *provider) tryDelete(spec *corev1.Pod) error {
	opts := metav1.NewDeleteOptions(0)
	opts.Preconditions = metav1.NewUIDPreconditions(string(spec.UID))
	err := v.client.CoreV1().Pods(spec.Namespace).Delete(v.ctx, spec.Name, *opts)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err == nil {
		v.rt.metrics.deletes.Inc()
	}
	return err
}

// deleteObject deletes a pod that was never started here, until it succeeds.
func (v *provider) deleteObject(spec *corev1.Pod) {
	delays := backoff.Doubling(50*time.Millisecond, reportRetry)
	for v.tryDelete(spec) != nil && backoff.Sleep(v.ctx, delays.Step()) {
	}
}

// forget drops the record of a dead pod that the API no longer has.
func (v *provider) forget(p *pod) {
	spec := p.current()
	v.mu.Lock()
	delete(v.pods, spec.UID)
	if v.byName[nameOf(spec)] == spec.UID {
		delete(v.byName, nameOf(spec))
	}
	v.mu.Unlock()
	p.doKill()
	close(p.gone)
	_ = os.RemoveAll(containerlog.Folder(v.rt.dir, spec))
}

// recorded reports whether the pod has a record: its processes may be running,
// or its object is still there.
func (v *provider) recorded(uid types.UID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pods[uid] != nil
}
