package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// fakeAPI is an API server for pods that applies JSON Patches with the real
// one's library and answers with its errors. A fault, if set, is asked before
// each call and may answer instead; what it returns after apply is called is
// what a client sees whose answer was lost.
type fakeAPI struct {
	client.Client
	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	version int
	calls   []string // "claim NAME", "stop NAME", "get NAME", "pool NAME"
	fault   func(call string, apply func() error) error
}

func newFakeAPI() *fakeAPI { return &fakeAPI{pods: make(map[string]*corev1.Pod)} }

// idle makes an idle pod that may be claimed.
func (f *fakeAPI) idle(name string) *corev1.Pod {
	pod := idlePod("ns", name)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	pod.ResourceVersion = fmt.Sprint(f.version)
	f.pods[name] = pod
	return pod.DeepCopy()
}

func idlePod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, UID: types.UID("uid-" + name),
			Labels:      map[string]string{v1alpha1.LabelPool: "pool", v1alpha1.LabelPhase: string(v1alpha1.PodIdle)},
			Annotations: map[string]string{v1alpha1.AnnotationAddress: "10.0.0.1", v1alpha1.AnnotationTemplateHash: "x"},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a"}, {Name: "side", Image: "b"}}},
		Status: corev1.PodStatus{PodIP: "10.0.0.1"},
	}
}

func (f *fakeAPI) pod(name string) *corev1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods[name].DeepCopy()
}

func (f *fakeAPI) change(name string, how func(*corev1.Pod)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how(f.pods[name])
}

func (f *fakeAPI) count(prefix string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

// answers sets the fault; nil answers truly again.
func (f *fakeAPI) answers(fault func(call string, apply func() error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *fakeAPI) do(call string, apply func() error) error {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	fault := f.fault
	f.mu.Unlock()
	locked := func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return apply()
	}
	if fault != nil {
		return fault(call, locked)
	}
	return locked()
}

func (f *fakeAPI) isIdle(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	pod := f.pods[name]
	return pod != nil && v1alpha1.PhaseOf(pod) == v1alpha1.PodIdle
}

// Get answers reads.
func (f *fakeAPI) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	return f.do("get "+key.Name, func() error {
		pod := f.pods[key.Name]
		if pod == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
		}
		pod.DeepCopyInto(obj.(*corev1.Pod))
		return nil
	})
}

// Patch answers writes.
func (f *fakeAPI) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	verb := verbOf(obj, data)
	return f.do(verb+" "+obj.GetName(), func() error {
		if verb == "pool" {
			return nil
		}
		return f.apply(obj.(*corev1.Pod), data)
	})
}

// verbOf tells a scheduler's writes apart.
func verbOf(o client.Object, data []byte) string {
	if _, ok := o.(*v1alpha1.SandboxPool); ok {
		return "pool"
	}
	if strings.Contains(string(data), string(v1alpha1.PodStopping)) {
		return "stop"
	}
	return "claim"
}

func (f *fakeAPI) apply(into *corev1.Pod, data []byte) error {
	pod := f.pods[into.Name]
	if pod == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, into.Name)
	}
	p, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return err
	}
	before, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	after, err := p.Apply(before)
	if err != nil {
		return refusal()
	}
	changed := &corev1.Pod{}
	if err := json.Unmarshal(after, changed); err != nil {
		return err
	}
	f.version++
	changed.ResourceVersion = fmt.Sprint(f.version)
	f.pods[into.Name] = changed
	changed.DeepCopyInto(into)
	return nil
}

func statusError(code int32, reason metav1.StatusReason, details *metav1.StatusDetails) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Details: details, Message: string(reason),
	}}
}

func refusal() error {
	return statusError(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, &metav1.StatusDetails{})
}

func tooMany(seconds int32) error {
	return statusError(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		&metav1.StatusDetails{RetryAfterSeconds: seconds})
}

// rig is a scheduler on a fake API server, running until the test ends. Inside
// a synctest bubble it must be stopped before the bubble ends.
type rig struct {
	*PoolScheduler
	api  *fakeAPI
	stop func()
}

func newRig(t *testing.T, opts ...Option) *rig {
	t.Helper()
	api := newFakeAPI()
	s := NewPoolScheduler("ns", "pool", "", "", api, opts...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	return &rig{s, api, func() { cancel(); <-done }}
}

// stockUp makes idle pods and offers them.
func (r *rig) stockUp(names ...string) {
	for _, n := range names {
		r.Offer(r.api.idle(n))
	}
}

// results has the receiving side of each channel of newResults.
var results sync.Map

// newResults makes a channel for a request's results, which resultsOf receives.
func newResults(room int) chan<- ClaimResult {
	both := make(chan ClaimResult, room)
	results.Store((chan<- ClaimResult)(both), (<-chan ClaimResult)(both))
	return both
}

func resultsOf(q *ClaimRequest) <-chan ClaimResult {
	c, _ := results.Load(q.ResultCh)
	return c.(<-chan ClaimResult)
}

// ask enqueues a request that has patience.
func (r *rig) ask(t *testing.T, id string, patience time.Duration, more ...func(*ClaimRequest)) *ClaimRequest {
	t.Helper()
	q := &ClaimRequest{
		SandboxID: id, Deadline: time.Now().Add(patience), ResultCh: newResults(2),
	}
	for _, m := range more {
		m(q)
	}
	if !r.Enqueue(q) {
		t.Fatalf("request %s was not accepted", id)
	}
	return q
}
