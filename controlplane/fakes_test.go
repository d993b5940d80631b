package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// fakeAPI is an API server for leases, as far as this package uses one. Hooks
// see the verb, the lease's name and may fail the request before it is applied
// or lose or delay the answer after.
type fakeAPI struct {
	mu       sync.Mutex
	rv       int
	uids     int // a restore does not bring one back
	leases   map[string]*coordinationv1.Lease
	watchers map[*watch.RaceFreeFakeWatcher]bool // whether with a selector
	before   func(verb, name string) error
	after    func(verb, name string) error
	history  []string // verb, name and holder of each applied write
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{leases: map[string]*coordinationv1.Lease{}, watchers: map[*watch.RaceFreeFakeWatcher]bool{}}
}

var errAway = apierrors.NewServiceUnavailable("the API server is away")

// setAway makes every request fail, or succeed again.
func (f *fakeAPI) setAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = nil
	if away {
		f.before = func(string, string) error { return errAway }
	}
}

func (f *fakeAPI) setAfter(hook func(verb, name string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = hook
}

func (f *fakeAPI) call(verb, name string, do func() error) error {
	f.mu.Lock()
	hook := f.before
	f.mu.Unlock()
	if hook != nil {
		if err := hook(verb, name); err != nil {
			return err
		}
	}
	f.mu.Lock()
	err := do()
	hook = f.after
	f.mu.Unlock()
	if err == nil && hook != nil {
		err = hook(verb, name)
	}
	return err
}

// put stores a changed lease. mu is held.
func (f *fakeAPI) put(verb string, l *coordinationv1.Lease) *coordinationv1.Lease {
	f.rv++
	l = l.DeepCopy()
	l.ResourceVersion = strconv.Itoa(f.rv)
	event := watch.Modified
	if _, ok := f.leases[l.Name]; !ok {
		f.uids++
		event, l.UID = watch.Added, types.UID(fmt.Sprintf("uid-%d", f.uids))
	}
	f.leases[l.Name] = l
	f.history = append(f.history, verb+" "+l.Name+" "+holderOf(l))
	for w, selects := range f.watchers {
		if selects && stripped(l) {
			w.Action(watch.Deleted, l.DeepCopy())
			continue
		}
		w.Action(event, l.DeepCopy())
	}
	return l.DeepCopy()
}

// stripped reports whether a lease has lost its label, so that no selector finds it.
func stripped(l *coordinationv1.Lease) bool {
	return l.Labels != nil && l.Labels[v1alpha1.LabelGateway] == ""
}

// get returns the lease as it stands, nil if there is none.
func (f *fakeAPI) get(name string) *coordinationv1.Lease {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leases[name].DeepCopy()
}

func (f *fakeAPI) writes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.history...)
}

func (f *fakeAPI) Get(_ context.Context, name string, _ metav1.GetOptions) (out *coordinationv1.Lease, err error) {
	err = f.call("get", name, func() error {
		l, ok := f.leases[name]
		if !ok {
			return apierrors.NewNotFound(leaseResource, name)
		}
		out = l.DeepCopy()
		return nil
	})
	return out, err
}

func (f *fakeAPI) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (out *coordinationv1.Lease, err error) {
	err = f.call("create", l.Name, func() error {
		if _, ok := f.leases[l.Name]; ok {
			return apierrors.NewAlreadyExists(leaseResource, l.Name)
		}
		out = f.put("create", l)
		return nil
	})
	return out, err
}

func (f *fakeAPI) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (out *coordinationv1.Lease, err error) {
	err = f.call("update", l.Name, func() error {
		old, ok := f.leases[l.Name]
		if !ok {
			return apierrors.NewNotFound(leaseResource, l.Name)
		}
		if old.ResourceVersion != l.ResourceVersion {
			return apierrors.NewConflict(leaseResource, l.Name, fmt.Errorf("changed"))
		}
		out = f.put("update", l)
		return nil
	})
	return out, err
}

func (f *fakeAPI) Patch(_ context.Context, name string, t types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (out *coordinationv1.Lease, err error) {
	if t != types.JSONPatchType {
		panic("only JSON Patches are expected")
	}
	err = f.call("patch", name, func() error {
		l, ok := f.leases[name]
		if !ok {
			return apierrors.NewNotFound(leaseResource, name)
		}
		l = l.DeepCopy()
		if !applyPatch(l, data) {
			return apierrors.NewGenericServerResponse(422, "patch", leaseResource, name, "the patch did not apply", 0, false)
		}
		out = f.put("patch", l)
		return nil
	})
	return out, err
}

// applyPatch knows the fields that this package patches.
func applyPatch(l *coordinationv1.Lease, data []byte) bool {
	var ops []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if err := json.Unmarshal(data, &ops); err != nil {
		panic(err)
	}
	for _, o := range ops {
		var err error
		switch o.Op + " " + o.Path {
		case "test /spec/holderIdentity":
			var want string
			if err = json.Unmarshal(o.Value, &want); err == nil && want != holderOf(l) {
				return false
			}
		case "add /spec/holderIdentity":
			err = json.Unmarshal(o.Value, &l.Spec.HolderIdentity)
		case "add /metadata/labels":
			l.Labels = nil
			err = json.Unmarshal(o.Value, &l.Labels)
		case "add /metadata/annotations":
			l.Annotations = nil
			err = json.Unmarshal(o.Value, &l.Annotations)
		case "add /spec/renewTime":
			err = json.Unmarshal(o.Value, &l.Spec.RenewTime)
		default:
			err = fmt.Errorf("unexpected %s %s", o.Op, o.Path)
		}
		if err != nil {
			panic(err)
		}
	}
	return true
}

func (f *fakeAPI) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	return f.call("delete", name, func() error {
		l, ok := f.leases[name]
		if !ok {
			return apierrors.NewNotFound(leaseResource, name)
		}
		if p := o.Preconditions; p != nil && (*p.UID != l.UID || *p.ResourceVersion != l.ResourceVersion) {
			return apierrors.NewConflict(leaseResource, name, fmt.Errorf("preconditions"))
		}
		f.remove(name)
		return nil
	})
}

// remove deletes a lease, as someone with kubectl would. mu is held.
func (f *fakeAPI) remove(name string) {
	l := f.leases[name].DeepCopy()
	f.rv++
	l.ResourceVersion = strconv.Itoa(f.rv)
	delete(f.leases, name)
	f.history = append(f.history, "delete "+name+" "+holderOf(l))
	for w := range f.watchers {
		w.Delete(l)
	}
}

func (f *fakeAPI) List(_ context.Context, o metav1.ListOptions) (out *coordinationv1.LeaseList, err error) {
	err = f.call("list", "", func() error {
		out = &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(f.rv)}}
		for _, l := range f.leases {
			if o.LabelSelector == "" || !stripped(l) {
				out.Items = append(out.Items, *l.DeepCopy())
			}
		}
		return nil
	})
	return out, err
}

func (f *fakeAPI) Watch(_ context.Context, o metav1.ListOptions) (out watch.Interface, err error) {
	err = f.call("watch", "", func() error {
		w := watch.NewRaceFreeFake()
		f.watchers[w] = o.LabelSelector != ""
		out = w
		return nil
	})
	return out, err
}

// IsWatchListSemanticsUnSupported tells reflectors to list first.
func (*fakeAPI) IsWatchListSemanticsUnSupported() bool { return true }

// lease makes a lease as a gateway would have written it.
func lease(name, holder string, seconds int32, renewed time.Time) *coordinationv1.Lease {
	at := metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelGateway: name}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
}
