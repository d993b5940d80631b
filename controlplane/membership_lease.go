package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// maxRequest bounds one call to the API server.
const maxRequest = 10 * time.Second

// acquire makes this process and epoch the lease's holder, in place of any other. If
// an earlier write of ours landed unnoticed it is renewed, so that the lease
// counts from a moment that the caller knows.
func (m *Membership) acquire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(maxRequest, m.o.LeaseDuration/2))
	defer cancel()
	holder := m.Holder()
	old, err := m.o.Leases.Get(ctx, m.o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: m.o.Name}}
		m.fill(l, holder)
		if l, err = m.o.Leases.Create(ctx, l, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating the lease: %w", err)
		}
		m.seen = l.ResourceVersion
		return nil
	case err != nil:
		return fmt.Errorf("reading the lease: %w", err)
	case holderOf(old) == holder && m.counts(old) == nil:
		m.seen = old.ResourceVersion // whatever it was before: everything is listed after this
		return m.renew(ctx, maxRequest)
	}
	// The resourceVersion that was read makes this fail if anyone wrote since.
	m.fill(old, holder)
	l, err := m.o.Leases.Update(ctx, old, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("taking the lease over: %w", err)
	}
	m.seen = l.ResourceVersion
	return nil
}

// fill writes all that a gateway's lease says.
func (m *Membership) fill(l *coordinationv1.Lease, holder string) {
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	label, address := m.o.Kind.keys()
	l.Labels[label] = gatewayLabel(m.o.Name)
	l.Annotations[address] = m.o.Address
	delete(l.Annotations, v1alpha1.AnnotationGatewayPod)
	if m.o.PodUID != "" {
		l.Annotations[v1alpha1.AnnotationGatewayPod] = m.o.PodUID
	}
	seconds, at := leaseSeconds(m.o.LeaseDuration), metav1.NewMicroTime(time.Now())
	transitions := int32(0)
	if l.Spec.HolderIdentity != nil {
		transitions = 1
		if l.Spec.LeaseTransitions != nil {
			transitions += *l.Spec.LeaseTransitions
		}
	}
	l.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds,
		AcquireTime: &at, RenewTime: &at, LeaseTransitions: &transitions,
	}
}

// renew renews the lease if this process and epoch still hold it, and controllers count
// it. errLost: not so. errRewound: it does, and what this gateway has seen may never have
// been. Any other error leaves that open.
func (m *Membership) renew(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, min(limit, maxRequest))
	defer cancel()
	holder := m.Holder()
	l, err := m.o.Leases.Patch(ctx, m.o.Name, types.JSONPatchType, holderPatch(holder, holder, time.Now()), metav1.PatchOptions{})
	switch writes.Judge(err) {
	case writes.Applied:
		before := m.seen
		m.seen = l.ResourceVersion
		if older(l.ResourceVersion, before) {
			return fmt.Errorf("%w, from resourceVersion %s to %s", errRewound, before, l.ResourceVersion)
		}
		return m.counts(l)
	case writes.Gone:
		return fmt.Errorf("%w: it was deleted", errLost)
	case writes.TestFailed: // look whose it is
	default:
		return fmt.Errorf("renewing the lease: %w", err)
	}
	var getErr error
	l, getErr = m.o.Leases.Get(ctx, m.o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(getErr):
		return fmt.Errorf("%w: it was deleted", errLost)
	case getErr != nil:
		return fmt.Errorf("reading the lease after a refused renewal: %w", getErr)
	case holderOf(l) != holder:
		return fmt.Errorf("%w: its holder is %q", errLost, holderOf(l))
	}
	return fmt.Errorf("renewing the lease: %w", err)
}

// counts checks that controllers count the lease as this gateway does: they find it by
// its label, call its address, ask its pod, and wait for its duration. errLost: not so,
// something changed it, and only a new holder says all of it anew.
func (m *Membership) counts(l *coordinationv1.Lease) error {
	want := &coordinationv1.Lease{}
	m.fill(want, m.Holder())
	label, address := m.o.Kind.keys()
	switch {
	case l.Labels[label] != want.Labels[label]:
		return fmt.Errorf("%w: its label %s is %q", errLost, label, l.Labels[label])
	case l.Annotations[address] != want.Annotations[address]:
		return fmt.Errorf("%w: its address is %q", errLost, l.Annotations[address])
	case l.Annotations[v1alpha1.AnnotationGatewayPod] != want.Annotations[v1alpha1.AnnotationGatewayPod]:
		return fmt.Errorf("%w: its pod is %q", errLost, l.Annotations[v1alpha1.AnnotationGatewayPod])
	case l.Spec.LeaseDurationSeconds == nil || *l.Spec.LeaseDurationSeconds != *want.Spec.LeaseDurationSeconds:
		return fmt.Errorf("%w: its duration was changed", errLost)
	}
	return nil
}

// Leave is the clean stop: it does what Abandon does and marks the lease as left, so that
// controllers ask this gateway for nothing any more. Nothing may be open at its Envoy then.
// If a controller was told the last uses it deletes the lease; else a controller does that,
// once it has noted that they are lost. It tries until the context ends; then it returns an
// error and the lease counts its time out. A lease that another process holds is left alone.
// It may be called again.
func (m *Membership) Leave(ctx context.Context, told bool) error {
	if err := m.Abandon(ctx); err != nil {
		return err
	}
	for delays := backoff.Doubling(firstRetry, m.o.RenewEvery); ; {
		err := m.giveUpLease(ctx, told)
		if err == nil {
			return nil
		}
		if !backoff.Sleep(ctx, delays.Step()) {
			return fmt.Errorf("leaving: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// Abandon ends Start, makes Held false for good and calls OnLost. The lease stays as it
// is and counts its time out, unless the next process takes it over: controllers go on
// to ask this gateway what is in use. It may be called again.
func (m *Membership) Abandon(ctx context.Context) error {
	m.mu.Lock()
	m.left = true
	done := m.done
	if m.cancel != nil {
		m.cancel()
	}
	m.mu.Unlock()
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("leaving: waiting for the lease's goroutine: %w", ctx.Err())
		}
	}
	m.grant.Store(nil)
	if err := m.o.OnLost(ctx); err != nil {
		return fmt.Errorf("leaving: dropping routes: %w", err)
	}
	return nil
}

// giveUpLease marks the lease as left, and deletes it if it is to. The mark goes first: a
// controller that sees the deletion sees it in the object's last state.
func (m *Membership) giveUpLease(ctx context.Context, deletes bool) error {
	l, err := m.o.Leases.Get(ctx, m.o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the lease: %w", err)
	}
	h, err := ParseHolder(holderOf(l))
	if mine := err == nil && h.Instance == m.o.Instance; !mine {
		return nil
	}
	if h.Mark != MarkLeft {
		patch := holderPatch(h.String(), h.with(MarkLeft).String(), time.Time{})
		if l, err = m.o.Leases.Patch(ctx, m.o.Name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("marking the lease as left: %w", err)
		}
	}
	if !deletes {
		return nil
	}
	if err := m.o.Leases.Delete(ctx, m.o.Name, onlyThis(l)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the lease: %w", err)
	}
	return nil
}
