package activation

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/bubble"
)

// refusing is an API server that refuses every write with one error, and answers
// reads.
type refusing struct {
	client.Client
	err    error
	read   func(into client.Object) error
	writes int
	reads  int
}

func (r *refusing) Create(context.Context, client.Object, ...client.CreateOption) error {
	return r.write()
}

func (r *refusing) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return r.write()
}

// write ends a loop without a pause, in which virtual time stands still, for good.
func (r *refusing) write() error {
	if r.writes++; r.writes > 1000 {
		return apierrors.NewForbidden(sandboxes, "s", errors.New("a thousand writes"))
	}
	return r.err
}

func (r *refusing) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.reads++
	return r.read(into)
}

var sandboxes = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "sandboxes"}

// activationWith returns an activation of a request to make a sandbox, whose calls go to c.
func activationWith(c client.Client, patience time.Duration) *activation {
	a := New(Options{Client: c, Cache: routecache.New(0), ClaimUse: func(string, string) *routecache.ClaimUse { return new(routecache.ClaimUse) }})
	return newActivation(a, request{Request: routing.Request{ID: "s", Namespace: "ns", Pool: "pool", New: true, MayClaim: true, Deadline: time.Now().Add(patience)}})
}

// A write may be refused although all its conditions hold, for as long as the request lasts:
// by a webhook that answers 409, or because a CRD is missing. Such a request must not send
// as many writes as the API server can answer.
func TestRefusedBindingIsNotSentWithoutPause(t *testing.T) {
	const patience = 30 * time.Second
	idle := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", Annotations: map[string]string{v1alpha1.AnnotationClaim: "c"}}}
	existing := func(into client.Object) error {
		s := into.(*v1alpha1.Sandbox)
		s.Name, s.UID = "s", "uid"
		s.Spec.Namespace, s.Spec.Pool = "ns", "pool"
		return nil
	}
	missing := func(client.Object) error { return apierrors.NewNotFound(sandboxes, "s") }
	for _, tc := range []struct {
		name   string
		err    error
		exists bool
	}{
		{"a webhook's 409 to a create", apierrors.NewConflict(sandboxes, "s", errors.New("denied by a webhook")), false},
		{"a webhook's 409 to a patch", apierrors.NewConflict(sandboxes, "s", errors.New("denied by a webhook")), true},
		{"no such kind", apierrors.NewGenericServerResponse(http.StatusNotFound, "post", sandboxes, "", "404 page not found", 0, true), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				api := &refusing{err: tc.err, read: missing}
				if tc.exists {
					api.read = existing
				}
				f := activationWith(api, patience)
				defer f.cancel()
				b := &binder{activation: f}
				if tc.exists {
					f.New, b.sandbox = false, &v1alpha1.Sandbox{}
					b.sandbox.UID = "uid"
				}
				began := time.Now()
				err := b.bind(f.ctx, idle)
				if !errors.Is(err, routing.ErrUnavailable) || time.Since(began) > patience {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				if most := int(patience/retryMax) + 8; api.writes > most || api.reads > most || api.writes < 10 {
					t.Errorf("%d writes and %d reads in %v, want at most %d of each, and ten writes", api.writes, api.reads, patience, most)
				}
			})
		})
	}
}

// An unbind that met a conflict has removed nothing: the pod must not be ended as if
// no sandbox named it.
func TestUnbindAfterAConflict(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := &refusing{err: apierrors.NewConflict(sandboxes, "s", errors.New("too many writes at once"))}
		f := activationWith(api, time.Minute)
		defer f.cancel()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{v1alpha1.AnnotationClaim: "c"}}}
		if err := (&binder{activation: f}).unbind(ctx, pod); err == nil || api.writes < 5 || api.writes > 15 {
			t.Errorf("%v after %d writes, want an error after 5 to 15", err, api.writes)
		}
	})
}

// A follower whose claim PATCH is answered that the pod is gone, and that reads the pod as
// idle again, sends the PATCH once a second and not as fast as the API server answers.
func TestRefusedClaimIsNotSentWithoutPause(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const patience = 30 * time.Second
		pods := schema.GroupResource{Resource: "pods"}
		api := &refusing{err: apierrors.NewNotFound(pods, "p")}
		api.read = func(into client.Object) error {
			switch o := into.(type) {
			case *v1alpha1.Sandbox:
				o.Name = "s"
				o.Spec.Namespace, o.Spec.Pool, o.Spec.FirstRequest = "ns", "pool", true
				o.Spec.Binding = &v1alpha1.Binding{ClaimID: "c", PodName: "p", PodUID: "u"}
			case *corev1.Pod:
				o.Name, o.UID = "p", "u"
				o.Labels = map[string]string{v1alpha1.LabelPhase: string(v1alpha1.PodIdle)}
			}
			return nil
		}
		f := activationWith(api, patience)
		f.New = false
		defer f.cancel()
		if err := f.activate(); !errors.Is(err, ErrNotReady) {
			t.Errorf("ended with %v", err)
		}
		if most := int(patience/followAfter) + 3; api.writes > most || api.writes < 10 || api.reads > 2*most+10 {
			t.Errorf("%d writes and %d reads in %v, want 10 to %d writes", api.writes, api.reads, patience, most)
		}
	})
}
