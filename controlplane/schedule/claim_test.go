package schedule

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// binds records what a request's Bind and Unbind were called with.
type binds struct{ bound, unbound []string }

func (b *binds) on(q *ClaimRequest) {
	note := func(list *[]string) func(context.Context, *corev1.Pod) error {
		return func(_ context.Context, pod *corev1.Pod) error {
			*list = append(*list, pod.Name+" "+BindingOf(pod).ClaimID)
			return nil
		}
	}
	q.Bind, q.Unbind = note(&b.bound), note(&b.unbound)
}

// once makes a fault that answers the first matching call, and no other.
func once(call string, answer func(apply func() error) error) func(string, func() error) error {
	var used atomic.Bool // calls come from many goroutines
	return func(c string, apply func() error) error {
		if strings.HasPrefix(c, call) && used.CompareAndSwap(false, true) {
			return answer(apply)
		}
		return apply()
	}
}

func invalidImage() error {
	return statusError(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, &metav1.StatusDetails{
		Causes: []metav1.StatusCause{{Field: "spec.containers[0].image", Message: "bad", Type: metav1.CauseTypeFieldValueInvalid}},
	})
}

func TestDefiniteAnswers(t *testing.T) {
	phase := func(name string, p v1alpha1.PodPhase) func(*rig) {
		return func(r *rig) {
			r.api.change(name, func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelPhase] = string(p) })
		}
	}
	for _, tc := range []struct {
		name  string
		setUp func(*rig)
		pod   string
		err   error
		keeps bool // the binding stays
		lost  bool // to another, which the watch does not show
	}{
		{name: "taken by another gateway: next pod", setUp: phase("p1", v1alpha1.PodRunning), pod: "p2", lost: true},
		{name: "being deleted: next pod", setUp: func(r *rig) {
			r.api.change("p1", func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now })
		}, pod: "p2", lost: true},
		{name: "another pod of that name: next pod", setUp: func(r *rig) {
			r.api.change("p1", func(p *corev1.Pod) { p.UID = "other" })
		}, pod: "p2", lost: true},
		{name: "gone: next pod", setUp: func(r *rig) { delete(r.api.pods, "p1") }, pod: "p2", lost: true},
		{name: "refuses once although idle: next pod", setUp: func(r *rig) {
			r.api.answers(once("claim p1", func(func() error) error { return refusal() }))
		}, pod: "p2"},
		{name: "write race in the API server: same pod again", setUp: func(r *rig) {
			r.api.answers(once("claim p1", func(func() error) error {
				return statusError(http.StatusConflict, metav1.StatusReasonConflict, nil)
			}))
		}, pod: "p1"},
		{name: "invalid", setUp: func(r *rig) {
			r.api.answers(once("claim p1", func(func() error) error { return invalidImage() }))
		}, err: ErrInvalid},
		{name: "forbidden", setUp: func(r *rig) {
			r.api.answers(once("claim p1", func(func() error) error {
				return statusError(http.StatusForbidden, metav1.StatusReasonForbidden, nil)
			}))
		}, err: ErrForbidden, keeps: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onRig(t, func(t *testing.T, r *rig) {
				r.stockUp("p1", "p2")
				tc.setUp(r)
				var b binds
				q := r.ask(t, "a", time.Minute, b.on)
				if tc.lost {
					waits(t, q)
					pass(viewLag)
				}
				if tc.err != nil {
					fails(t, q, tc.err)
					r.api.answers(nil)
					next := "p1" // given back, in its place
					if tc.keeps {
						next = "p2" // and then the one that a binding names
					} else if !slices.Equal(b.unbound, b.bound) {
						t.Errorf("bound %v, unbound %v", b.bound, b.unbound)
					}
					if tc.keeps && len(b.unbound) > 0 {
						t.Errorf("unbound %v, which others may be claiming", b.unbound)
					}
					gets(t, r.ask(t, "b", time.Minute), next)
					return
				}
				pod := gets(t, q, tc.pod)
				if last := b.bound[len(b.bound)-1]; last != pod.Name+" "+pod.Annotations[v1alpha1.AnnotationClaim] {
					t.Errorf("bound %v, claimed %s with %s", b.bound, pod.Name, pod.Annotations[v1alpha1.AnnotationClaim])
				}
				if len(b.unbound) > 0 {
					t.Errorf("unbound %v", b.unbound)
				}
			})
		})
	}
}

// The first pod that refuses is written to stopping, so that nobody's claim can
// land on it any more. The second one stays as it is, and so does its binding.
func TestIdlePodsThatRefuseAreABug(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.stockUp("p1", "p2", "p3")
		r.api.answers(func(call string, apply func() error) error {
			if strings.HasPrefix(call, "claim") {
				return refusal()
			}
			return apply()
		})
		var b binds
		fails(t, r.ask(t, "a", time.Minute, b.on), ErrRefused)
		if n := r.api.count("claim"); n != 2 {
			t.Errorf("%d claims", n)
		}
		for name, want := range map[string]v1alpha1.PodPhase{"p1": v1alpha1.PodStopping, "p2": v1alpha1.PodIdle} {
			if p := v1alpha1.PhaseOf(r.api.pod(name)); p != want {
				t.Errorf("pod %s is %s, want %s", name, p, want)
			}
		}
		if len(b.unbound) > 0 {
			t.Errorf("unbound %v", b.unbound)
		}
	})
}

// byAnother puts the claim that was last bound onto its pod, as a follower does.
func (r *rig) byAnother(t *testing.T, sandbox string, b *binds) {
	t.Helper()
	name, claimID, _ := strings.Cut(b.bound[len(b.bound)-1], " ")
	r.api.change(name, func(p *corev1.Pod) {
		p.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodRunning)
		p.Labels[v1alpha1.LabelSandboxID] = sandbox
		p.Annotations[v1alpha1.AnnotationClaim] = claimID
	})
}

// A claim that could not be sent may have been sent by a follower, and its
// sandbox may run: the binding stays.
func TestUnsentClaimKeepsItsBinding(t *testing.T) {
	for name, err := range map[string]error{
		"429":     tooMany(60),
		"no dial": &net.OpError{Op: "dial", Err: errors.New("connection refused")},
	} {
		for _, end := range []string{"deadline", "shutdown"} {
			t.Run(name+", "+end, func(t *testing.T) {
				onRig(t, func(t *testing.T, r *rig) {
					r.stockUp("p1")
					r.api.answers(func(string, func() error) error { return err })
					var b binds
					q := r.ask(t, "a", 5*time.Second, b.on)
					pass(time.Second)
					r.byAnother(t, "a", &b)
					if end == "shutdown" {
						r.stop()
						fails(t, q, ErrShutdown)
					} else {
						pass(4 * time.Second)
						fails(t, q, ErrDeadline)
					}
					pass(time.Minute)
					if len(b.bound) != 1 || len(b.unbound) > 0 {
						t.Errorf("bound %v, unbound %v", b.bound, b.unbound)
					}
				})
			})
		}
	}
}

// An idle pod is left for the next one only when no claim can land on it any
// more; one that landed meanwhile is a success.
func TestIdlePodIsStoppedBeforeTheNext(t *testing.T) {
	answers := map[string]func() error{
		"refused":  refusal,
		"conflict": func() error { return statusError(http.StatusConflict, metav1.StatusReasonConflict, nil) },
	}
	for name, answer := range answers {
		for _, landed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, landed=%v", name, landed), func(t *testing.T) {
				onRig(t, func(t *testing.T, r *rig) {
					r.stockUp("p1", "p2")
					var b binds
					r.api.answers(func(call string, apply func() error) error {
						switch call {
						case "claim p1":
							return answer()
						case "stop p1":
							if landed {
								r.byAnother(t, "a", &b)
							}
						case "claim p2":
							if p := v1alpha1.PhaseOf(r.api.pod("p1")); p != v1alpha1.PodStopping {
								t.Errorf("moved on from a pod that is %s", p)
							}
						}
						return apply()
					})
					want := "p2"
					if landed {
						want = "p1"
					}
					gets(t, r.ask(t, "a", time.Minute, b.on), want)
					if len(b.unbound) > 0 {
						t.Errorf("unbound %v", b.unbound)
					}
				})
			})
		}
	}
}

func TestThrottlingIsWaitedOut(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.stockUp("p1")
		r.api.answers(once("claim", func(func() error) error { return tooMany(7) }))
		start := time.Now()
		q := r.ask(t, "a", time.Minute)
		pass(7*time.Second - 1)
		waits(t, q)
		pass(1)
		gets(t, q, "p1")
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("claimed after %v", d)
		}
		r.stockUp("p2")
		r.api.answers(func(string, func() error) error { return tooMany(60) })
		late := r.ask(t, "b", 3*time.Second)
		pass(3 * time.Second)
		res := result(t, late)
		if !errors.Is(res.Err, ErrDeadline) || !errors.Is(res.Err, ErrThrottled) {
			t.Errorf("got %v", res.Err)
		}
		r.api.answers(nil)
		gets(t, r.ask(t, "c", time.Minute), "p2") // not burnt
	})
}

func TestAPIServerAway(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.stockUp("p1")
		refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		r.api.answers(func(string, func() error) error { return refused })
		a, b := r.ask(t, "a", 10*time.Second), r.ask(t, "b", time.Minute)
		pass(10 * time.Second)
		if res := result(t, a); !errors.Is(res.Err, ErrDeadline) || !errors.Is(res.Err, ErrUnavailable) {
			t.Errorf("got %v", res.Err)
		}
		r.api.answers(nil)
		pass(retryMax)
		gets(t, b, "p1")
		if n := r.api.count("stop"); n != 0 {
			t.Error("a write that was never sent was taken for ambiguous")
		}
	})
}
