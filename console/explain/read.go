package explain

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console/processes"
)

const (
	// searched is how many lines of each log are searched for a sandbox's ID.
	searched = 5000
	// mostEvents bounds the Events that are read of one object.
	mostEvents = 200
)

// Reader reads with the rights of a user.
type Reader struct {
	API             client.Reader
	SystemNamespace string
	Processes       processes.Finder
}

// Sandbox reads what there is about a sandbox. What cannot be read is in the facts; the
// error is that of the Sandbox itself, since nothing can be said without it.
func (r Reader) Sandbox(ctx context.Context, id string) (Facts, error) {
	f := Facts{ID: id, Now: time.Now()}
	s := &v1alpha1.Sandbox{}
	switch err := r.API.Get(ctx, client.ObjectKey{Name: id}, s); {
	case err == nil:
		f.Sandbox = s
	case !apierrors.IsNotFound(err):
		return f, fmt.Errorf("read sandbox %s: %w", id, err)
	}
	if f.Sandbox != nil {
		r.objects(ctx, &f)
	} else {
		r.waiting(ctx, &f)
	}
	all, err := r.Processes(ctx)
	f.unread("gateways and controllers", err)
	r.logs(ctx, &f, all)
	f.Installation = Installation{Now: f.Now, Gateways: processes.Ask(ctx, all)}
	f.Installation.Leases, err = r.leases(ctx)
	f.unread("leases of gateways", err)
	return f, nil
}

func (f *Facts) unread(what string, err error) {
	if err != nil {
		f.Unread = append(f.Unread, what+": "+oneLine(err.Error()))
	}
}

// objects reads those that the sandbox names, and the Events of all.
func (r Reader) objects(ctx context.Context, f *Facts) {
	s := f.Sandbox
	r.events(ctx, f, "", string(s.UID))
	if b := s.Spec.Binding; b != nil {
		f.Pod = get(ctx, r.API, f, "pod", s.Spec.Namespace, b.PodName, &corev1.Pod{})
		r.events(ctx, f, s.Spec.Namespace, b.PodUID)
	}
	if s.Spec.Pool != "" {
		f.Pool = get(ctx, r.API, f, "pool", s.Spec.Namespace, s.Spec.Pool, &v1alpha1.SandboxPool{})
	}
	if f.Pool != nil && s.Spec.Binding == nil {
		r.events(ctx, f, s.Spec.Namespace, string(f.Pool.UID))
	}
	if s.Spec.Restore != nil {
		f.Checkpoint = get(ctx, r.API, f, "checkpoint", s.Spec.Namespace, s.Spec.Restore.Checkpoint, &v1alpha1.Checkpoint{})
	}
}

// waiting reads the pools for whose pods requests wait.
func (r Reader) waiting(ctx context.Context, f *Facts) {
	var pools v1alpha1.SandboxPoolList
	f.unread("pools", r.API.List(ctx, &pools))
	for i := range pools.Items {
		if pools.Items[i].Status.WaitingClaims > 0 {
			f.Waiting = append(f.Waiting, pools.Items[i])
		}
	}
}

// get returns nil for an object that is not there or cannot be read.
func get[T client.Object](ctx context.Context, api client.Reader, f *Facts, what, namespace, name string, into T) T {
	var none T
	err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if client.IgnoreNotFound(err) != nil {
		f.unread(what+" "+namespace+"/"+name, err)
	}
	if err != nil {
		return none
	}
	return into
}

func (r Reader) events(ctx context.Context, f *Facts, namespace, uid string) {
	var list corev1.EventList
	err := r.API.List(ctx, &list, client.InNamespace(namespace), client.Limit(mostEvents),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.uid", uid)})
	f.unread("events", err)
	f.Events = append(f.Events, list.Items...)
}

func (r Reader) leases(ctx context.Context) ([]coordinationv1.Lease, error) {
	var list coordinationv1.LeaseList
	if err := r.API.List(ctx, &list, client.InNamespace(r.SystemNamespace), client.HasLabels{v1alpha1.LabelGateway}); err != nil {
		return nil, err
	}
	if list.Items == nil {
		list.Items = []coordinationv1.Lease{}
	}
	return list.Items, nil
}

// logs searches the logs of all processes, at once.
func (r Reader) logs(ctx context.Context, f *Facts, all []processes.Process) {
	found, errs := make([][]string, len(all)), make([]error, len(all))
	var wait sync.WaitGroup
	for i, p := range all {
		wait.Go(func() {
			text, err := p.ReadLog(ctx, searched)
			found[i], errs[i] = Lines(p.Name, string(text), f.ID), err
		})
	}
	wait.Wait()
	for i := range all {
		f.Logged = append(f.Logged, last(found[i], mostLines/2)...)
		f.unread("log of "+all[i].Name, errs[i])
	}
}

// Lines are the lines of a log that name a sandbox, with the process's name before each.
func Lines(process, text, id string) []string {
	var found []string
	for line := range strings.Lines(text) {
		if names(line, id) {
			found = append(found, process+" | "+strings.TrimSpace(line))
		}
	}
	return found
}

// names reports whether a line has the ID as a word of its own: the ID "a" is in most
// lines.
func names(line, id string) bool {
	part := func(c byte) bool {
		return c == '-' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	for at := 0; ; {
		i := strings.Index(line[at:], id)
		if i < 0 {
			return false
		}
		from, to := at+i, at+i+len(id)
		if (from == 0 || !part(line[from-1])) && (to == len(line) || !part(line[to])) {
			return true
		}
		at = from + 1
	}
}

// Installation reads what Check looks at.
func (r Reader) Installation(ctx context.Context) Installation {
	in := Installation{Now: time.Now()}
	note := func(what string, err error) {
		switch {
		case meta.IsNoMatchError(err):
			in.Undefined = true
		case err != nil:
			in.Unread = append(in.Unread, what+" cannot be read: "+oneLine(err.Error()))
		}
	}
	var pools v1alpha1.SandboxPoolList
	var envs v1alpha1.SandboxEnvList
	var checkpoints v1alpha1.CheckpointList
	var sandboxes v1alpha1.SandboxList
	note("pools", r.API.List(ctx, &pools))
	note("envs", r.API.List(ctx, &envs))
	note("checkpoints", r.API.List(ctx, &checkpoints))
	note("sandboxes", r.API.List(ctx, &sandboxes))
	in.Pools, in.Envs, in.Checkpoints = pools.Items, envs.Items, checkpoints.Items
	for i := range sandboxes.Items {
		in.Sandboxes = append(in.Sandboxes, &sandboxes.Items[i])
	}
	var err error
	in.Leases, err = r.leases(ctx)
	note("leases of gateways", err)
	all, err := r.Processes(ctx)
	note("gateways", err)
	in.Gateways = processes.Ask(ctx, all)
	return in
}
