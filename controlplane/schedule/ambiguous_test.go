package schedule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

func TestAmbiguousClaims(t *testing.T) {
	lost := errors.New("connection reset by peer")
	for _, tc := range []struct {
		name   string
		answer func(apply func() error) error
		pod    string // who serves in the end
		stops  int
	}{
		{"not applied", func(func() error) error { return lost }, "p2", 1},
		{"applied", func(apply func() error) error { return errors.Join(apply(), lost) }, "p1", 1},
		{"500 before", func(func() error) error {
			return statusError(http.StatusInternalServerError, metav1.StatusReasonInternalError, nil)
		}, "p2", 1},
		{"504 after", func(apply func() error) error {
			_ = apply()
			return statusError(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, nil)
		}, "p1", 1},
		{"applied, then sent again by a transport", func(apply func() error) error {
			_ = apply()
			return apply()
		}, "p1", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onRig(t, func(t *testing.T, r *rig) {
				r.stockUp("p1", "p2")
				r.api.answers(once("claim p1", tc.answer))
				var b binds
				pod := gets(t, r.ask(t, "a", time.Minute, b.on), tc.pod)
				if last := b.bound[len(b.bound)-1]; last != pod.Name+" "+pod.Annotations[v1alpha1.AnnotationClaim] {
					t.Errorf("bound %v, claimed %s", b.bound, pod.Annotations[v1alpha1.AnnotationClaim])
				}
				if n := r.api.count("stop p1"); n != tc.stops {
					t.Errorf("%d stops, want %d", n, tc.stops)
				}
				if tc.pod == "p2" {
					if p := v1alpha1.PhaseOf(r.api.pod("p1")); p != v1alpha1.PodStopping {
						t.Errorf("the pod of the lost claim is %s", p)
					}
					first, second := strings.Fields(b.bound[0])[1], strings.Fields(b.bound[1])[1]
					if first == second {
						t.Errorf("the same claim ID on two pods: %v", b.bound)
					}
				}
			})
		})
	}
}

// A claim whose answer was lost may still be on its way: once it was resolved it
// must not land any more.
func TestLateClaimCannotLand(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.stockUp("p1", "p2")
		var late func() error
		r.api.answers(once("claim p1", func(apply func() error) error {
			late = apply
			return context.DeadlineExceeded
		}))
		gets(t, r.ask(t, "a", time.Minute), "p2")
		if err := late(); !writes.Refused(err) {
			t.Errorf("the late claim: %v", err)
		}
		if _, ok := r.api.pod("p1").Annotations[v1alpha1.AnnotationClaim]; ok {
			t.Error("the late claim landed")
		}
	})
}

func TestClaimThatCannotBeSettledKeepsItsBinding(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.stockUp("p1")
		r.api.answers(func(call string, apply func() error) error {
			if strings.HasPrefix(call, "claim") {
				_ = apply()
			}
			return errors.New("connection reset by peer")
		})
		var b binds
		q := r.ask(t, "a", time.Minute, b.on)
		pass(settleTimeout + retryMax)
		fails(t, q, ErrUnavailable)
		if len(b.unbound) > 0 {
			t.Errorf("unbound %v although the claim was applied", b.unbound)
		}
		r.api.answers(nil)
		b2 := r.ask(t, "b", time.Hour)
		pass(time.Minute) // the reservation ends, the pod is tried, and is not idle
		waits(t, b2)
	})
}

func TestUnfencedPodIsEnded(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.stockUp("p1", "p2")
		r.api.change("p1", func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" })
		gets(t, r.ask(t, "a", time.Minute), "p2")
		if p := v1alpha1.PhaseOf(r.api.pod("p1")); p != v1alpha1.PodStopping {
			t.Errorf("the pod with the wrong address is %s", p)
		}
	})
}

// A pod that had finished when it was claimed has served no request: the next one is
// taken, and the finished one is ended. One that the feed shows as finished is not tried.
func TestPodThatIsOverIsNotGiven(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded} {
		onRig(t, func(t *testing.T, r *rig) {
			r.stockUp("p1", "p2", "p3")
			r.api.change("p1", func(p *corev1.Pod) { p.Status.Phase = phase })
			r.api.change("p2", func(p *corev1.Pod) { p.Status.Phase = phase })
			r.Offer(r.api.pod("p2")) // an offer of what is over is a Forget
			var b binds
			gets(t, r.ask(t, "a", time.Minute, b.on), "p3")
			if p := v1alpha1.PhaseOf(r.api.pod("p1")); p != v1alpha1.PodStopping {
				t.Errorf("the pod that was claimed and is %s has phase %s", phase, p)
			}
			if r.api.count("claim p2") > 0 || len(b.bound) != 2 || len(b.unbound) > 0 {
				t.Errorf("bound %v, unbound %v, calls %v", b.bound, b.unbound, r.api.calls)
			}
		})
	}
}

// A pod that has finished by the time its claim is read may have served.
func TestClaimOnAPodThatIsOverIsOver(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.api.idle("p1")
		claim := Claim{Namespace: "ns", PodName: "p1", PodUID: "uid-p1", SandboxID: "a", ClaimID: "c", Phase: v1alpha1.PodRunning}
		if _, err := ApplyClaim(t.Context(), r.api, claim); err != nil {
			t.Fatal(err)
		}
		r.api.change("p1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		if _, err := ApplyClaim(t.Context(), r.api, claim); !errors.Is(err, ErrClaimOver) {
			t.Errorf("got %v", err)
		}
	})
}

// A claim that landed on a pod which has ended since is not lost but over: the
// sandbox may have run there. It gets no other pod, and keeps its binding, by which
// its end is found and its address freed.
func TestClaimThatIsOverGetsNoOtherPod(t *testing.T) {
	for name, how := range map[string]func(*corev1.Pod){
		"stopping": func(p *corev1.Pod) { p.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodStopping) },
		"failed":   func(p *corev1.Pod) { p.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodFailed) },
		"over":     func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"deleted":  func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now },
	} {
		for answer, err := range map[string]error{"lost": context.DeadlineExceeded, "refused": refusal()} {
			t.Run(name+", answer "+answer, func(t *testing.T) {
				onRig(t, func(t *testing.T, r *rig) {
					r.stockUp("p1", "p2")
					r.api.answers(once("claim p1", func(apply func() error) error {
						if err := apply(); err != nil {
							t.Error(err)
						}
						r.api.change("p1", how)
						return err
					}))
					var b binds
					fails(t, r.ask(t, "a", time.Minute, b.on), ErrClaimOver)
					synctest.Wait()
					if len(b.bound) != 1 || len(b.unbound) > 0 || !r.api.isIdle("p2") {
						t.Errorf("bound %v, unbound %v, calls %v", b.bound, b.unbound, r.api.calls)
					}
				})
			})
		}
	}
}

// A sandbox whose binding names a pod that is stopping is ended. So the binding
// is replaced, or taken back, before the pod is stopped.
func TestUnfencedPodIsEndedOnceNotNamed(t *testing.T) {
	for _, further := range []bool{true, false} {
		t.Run(fmt.Sprintf("further=%v", further), func(t *testing.T) {
			onRig(t, func(t *testing.T, r *rig) {
				r.stockUp("p1")
				if further {
					r.stockUp("p2")
				}
				r.api.change("p1", func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" })
				var b binds
				r.api.answers(func(call string, apply func() error) error {
					if call == "stop p1" && len(b.bound)+len(b.unbound) < 2 {
						t.Error("the pod is stopped while the sandbox names it")
					}
					return apply()
				})
				q := r.ask(t, "a", time.Second, b.on)
				if further {
					gets(t, q, "p2")
				} else {
					pass(time.Second)
					fails(t, q, ErrDeadline)
				}
				synctest.Wait()
				if n := len(b.unbound); n > 1 || (n == 1) == further {
					t.Errorf("bound %v, unbound %v", b.bound, b.unbound)
				}
				if p := v1alpha1.PhaseOf(r.api.pod("p1")); p != v1alpha1.PodStopping {
					t.Errorf("the pod with the wrong address is %s", p)
				}
			})
		})
	}
}

func TestDeadlineWhileClaiming(t *testing.T) {
	for _, bound := range []bool{false, true} {
		t.Run(fmt.Sprintf("bound=%v", bound), func(t *testing.T) {
			onRig(t, func(t *testing.T, r *rig) {
				r.stockUp("p1")
				r.api.answers(once("claim p1", func(apply func() error) error {
					<-time.After(4 * time.Second)
					return apply()
				}))
				var b binds
				q := r.ask(t, "a", time.Second, func(q *ClaimRequest) {
					if bound {
						b.on(q)
					}
				})
				pass(time.Second)
				fails(t, q, ErrDeadline)
				pass(time.Minute)
				waits(t, q) // no second result
				want := v1alpha1.PodStopping
				if bound { // the sandbox names it: it runs, and ends like any other
					want = v1alpha1.PodRunning
				}
				if p := v1alpha1.PhaseOf(r.api.pod("p1")); p != want {
					t.Errorf("the pod that came too late is %s, want %s", p, want)
				}
				if len(b.unbound) > 0 {
					t.Errorf("unbound %v", b.unbound)
				}
			})
		})
	}
}

func TestUnbindWhenNoFurtherPodComes(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.stockUp("p1")
		delete(r.api.pods, "p1")
		var b binds
		q := r.ask(t, "a", time.Second, b.on)
		pass(time.Second)
		fails(t, q, ErrDeadline)
		if !slices.Equal(b.unbound, b.bound) || len(b.bound) != 1 {
			t.Errorf("bound %v, unbound %v", b.bound, b.unbound)
		}
	})
}

func TestImagesAreChangedInTheSamePatch(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.stockUp("p1")
		ask := func(o ClaimOptions) *ClaimRequest {
			return r.ask(t, "a", time.Minute, func(q *ClaimRequest) { q.Opts = o })
		}
		images := map[string]string{"side": "c", "main": "a"}
		fails(t, ask(ClaimOptions{ContainerImages: images, TargetPodPhase: v1alpha1.PodRunning}), ErrInvalid)
		fails(t, ask(ClaimOptions{ContainerImages: map[string]string{"none": "c"}}), ErrInvalid)
		for _, key := range []string{v1alpha1.LabelPool, v1alpha1.AnnotationContainers, v1alpha1.AnnotationPostStartHooks, v1alpha1.AnnotationStop} {
			fails(t, ask(ClaimOptions{Labels: map[string]string{key: "mine"}}), ErrInvalid)
			fails(t, ask(ClaimOptions{Annotations: map[string]string{key: "mine"}}), ErrInvalid)
		}
		fails(t, ask(ClaimOptions{TargetPodPhase: v1alpha1.PodFailed}), ErrInvalid)
		pod := gets(t, ask(ClaimOptions{ContainerImages: images, Labels: map[string]string{v1alpha1.LabelEnv: "e"}}), "p1")
		if pod.Spec.Containers[0].Image != "a" || pod.Spec.Containers[1].Image != "c" {
			t.Errorf("images are %v", pod.Spec.Containers)
		}
		if v1alpha1.PhaseOf(pod) != v1alpha1.PodStarting || pod.Annotations[v1alpha1.AnnotationStartedAt] != "" {
			t.Errorf("phase %s, annotations %v", v1alpha1.PhaseOf(pod), pod.Annotations)
		}
		if pod.Labels[v1alpha1.LabelEnv] != "e" {
			t.Errorf("labels are %v", pod.Labels)
		}
		synctest.Wait()
		if n := r.api.count("claim"); n != 1 {
			t.Errorf("%d claim PATCHes", n)
		}
	})
}

// TestPodsWithHooksAreClaimedStarting: nothing but the pool reconciler turns them
// running, once the hooks are done. Pods of the template without hooks are
// claimed running, in the same pool.
func TestPodsWithHooksAreClaimedStarting(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		hooked := func(pod *corev1.Pod) { pod.Annotations[v1alpha1.AnnotationPostStartHooks] = `[{"name":"h"}]` }
		r.api.idle("p1")
		r.api.change("p1", hooked)
		r.Offer(r.api.pod("p1"))
		r.stockUp("p2")
		r.api.idle("p3") // read by a follower
		r.api.change("p3", hooked)
		fails(t, r.ask(t, "a", time.Minute, func(q *ClaimRequest) { q.Opts.TargetPodPhase = v1alpha1.PodRunning }), ErrInvalid)
		for i, want := range []v1alpha1.PodPhase{v1alpha1.PodStarting, v1alpha1.PodRunning} {
			pod := gets(t, r.ask(t, fmt.Sprint("b", i), time.Minute), fmt.Sprint("p", i+1))
			_, started := pod.Annotations[v1alpha1.AnnotationStartedAt]
			if got := v1alpha1.PhaseOf(pod); got != want || started != (want == v1alpha1.PodRunning) {
				t.Errorf("%s: phase %s, annotations %v", pod.Name, got, pod.Annotations)
			}
		}
		pod := r.api.pod("p3")
		s := &v1alpha1.Sandbox{Spec: v1alpha1.SandboxSpec{Namespace: "ns", Binding: &v1alpha1.Binding{ClaimID: "c", PodName: "p3", PodUID: string(pod.UID)}}}
		if claim, err := ClaimOf(s, pod); err != nil || claim.Phase != v1alpha1.PodStarting {
			t.Errorf("a follower claims the pod %s, error %v", claim.Phase, err)
		}
	})
}
