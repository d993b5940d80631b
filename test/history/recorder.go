package history

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Interval is one claim: a pod bound to a sandbox for a time.
type Interval struct {
	ID         string // of the sandbox
	SandboxUID string
	Claim      string
	PodUID     string
	// Address is the pod's, empty until a pod event showed the claim applied.
	Address string
	// Seen numbers the intervals in the order of their claims.
	Seen int
	// Claimed is when a gateway claimed the pod, by its own word.
	Claimed time.Time
	// Ended is when spec.end was written, to the second, and Reason why; EndSeen is
	// when this record saw it; Over is when every gateway knew, or the Sandbox was
	// gone. Zero while it is not so.
	Ended, EndSeen, Over time.Time
	Reason               v1alpha1.EndReason
	// GivenUp is when this record saw that a pause, or a resume that was taken back, had
	// given the pod up, and free when its pod was seen to be let go.
	GivenUp, free time.Time
	// life counts how often the Sandbox had been seen to give up a pod before it named this
	// claim. It is set with SandboxUID.
	life int
	// overFrom is when it may first have been over: before Over only if a watch
	// lagged or broke, and the Sandbox was gone when it was looked for, or if the pod was
	// given up.
	overFrom time.Time
}

// Recorder keeps every claim that it sees.
type Recorder struct {
	mu        sync.Mutex
	claims    map[string]*Interval       // by claim ID
	byPod     map[string][]*Interval     // by pod UID
	sandboxes map[string]map[string]bool // ID → UIDs of its Sandboxes
	lives     map[string]int             // UID of a Sandbox → life of the next claim that it names
	pods      map[string]map[string]bool // ID → UIDs of pods that named it
	addresses map[string][]*Interval     // in the order of their claims
	processes map[string]string          // process → pod UID
	broken    []string                   // why the record is not complete
	behind    int                        // sources that wait for the API server
	gaps      int                        // watches that were begun again by a list
	cancel    context.CancelFunc
	done      sync.WaitGroup
}

// NewRecorder returns one that has seen nothing.
func NewRecorder() *Recorder {
	return &Recorder{
		claims: map[string]*Interval{}, byPod: map[string][]*Interval{},
		sandboxes: map[string]map[string]bool{}, lives: map[string]int{}, pods: map[string]map[string]bool{},
		addresses: map[string][]*Interval{}, processes: map[string]string{},
		cancel: func() {},
	}
}

// Start begins to watch. Call Stop.
func (r *Recorder) Start(ctx context.Context, c client.WithWatch) error {
	ctx, r.cancel = context.WithCancel(ctx)
	for _, s := range []source{
		{c, func() client.ObjectList { return &v1alpha1.SandboxList{} }, nil},
		{c, func() client.ObjectList { return &corev1.PodList{} }, []client.ListOption{client.HasLabels{v1alpha1.LabelPool}}},
	} {
		w, err := s.start(ctx, r, time.Time{})
		if err != nil {
			r.Stop()
			return err
		}
		r.done.Go(func() { r.follow(ctx, s, w) })
	}
	return nil
}

// Stop ends the watches.
func (r *Recorder) Stop() {
	r.cancel()
	r.done.Wait()
}

// follow takes in what a watch brings. One that broke with the API server, which
// does not know anew what it knew before its restart, is begun again by a list.
func (r *Recorder) follow(ctx context.Context, s source, w watch.Interface) {
	last := time.Now()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case e, open := <-w.ResultChan():
			if open && e.Type != watch.Error {
				last = time.Now()
				r.Event(e, last)
				continue
			}
			if status, ok := e.Object.(*metav1.Status); open && (!ok || status.Code != http.StatusGone) {
				r.Event(e, time.Now())
				w.Stop()
				return
			}
			w.Stop()
			w = r.again(ctx, s, last)
		}
	}
	w.Stop()
}

// again starts a source anew, when the API server answers.
func (r *Recorder) again(ctx context.Context, s source, since time.Time) watch.Interface {
	r.mu.Lock()
	r.behind++
	r.mu.Unlock()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if w, err := s.start(ctx, r, since); err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.behind--
			r.gaps++
			return w
		}
		select {
		case <-ctx.Done():
			return watch.NewEmptyWatch()
		case <-tick.C:
		}
	}
}

func (r *Recorder) fail(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = append(r.broken, why)
}

// Event takes in one event that was seen at a time.
func (r *Recorder) Event(e watch.Event, at time.Time) {
	if e.Type == watch.Bookmark {
		return
	}
	switch o := e.Object.(type) {
	case *v1alpha1.Sandbox:
		r.sandbox(o, e.Type == watch.Deleted, at)
	case *corev1.Pod:
		r.pod(o, e.Type == watch.Deleted, at)
	case *metav1.Status:
		r.fail("a watch failed: " + o.Message)
	}
}

func (r *Recorder) sandbox(s *v1alpha1.Sandbox, gone bool, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	add(r.sandboxes, s.Name, string(s.UID))
	var i *Interval
	if b := s.Spec.Binding; b != nil {
		i = r.claim(b.ClaimID, b.PodUID)
		if i.SandboxUID == "" {
			i.life = r.lives[string(s.UID)]
			if !gone { // the watch of pods was ahead: what was concluded of its claim came before it
				i.Over, i.overFrom, i.GivenUp = time.Time{}, time.Time{}, time.Time{}
			}
		}
		i.ID, i.SandboxUID = s.Name, string(s.UID)
	} else if s.Spec.Restore != nil {
		r.lives[string(s.UID)]++
		i = r.giveUp(s, at)
	}
	if i != nil && s.Spec.End != nil {
		i.Ended, i.Reason = s.Spec.End.At.Time, s.Spec.End.Reason
		if i.EndSeen.IsZero() {
			i.EndSeen = at
		}
	}
	switch {
	case s.Status.FencedAt != nil:
		r.fenced(s, gone)
	case gone:
		r.recordEnd(string(s.UID), at, at)
	}
}

// recordEnd notes that a Sandbox's claims ended between from and at. mu is held.
func (r *Recorder) recordEnd(sandboxUID string, from, at time.Time) {
	for _, i := range r.claims {
		if i.SandboxUID == sandboxUID && i.Over.IsZero() {
			i.Over, i.overFrom = at, from
		}
	}
}

// listed takes in that there are these Sandboxes and no other, after nothing was
// heard since a time. A claim on a pod whose Sandbox was never seen is of one that came and
// went meanwhile.
func (r *Recorder) listed(there map[string]bool, since, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.claims {
		if !there[i.SandboxUID] && i.Over.IsZero() {
			i.Over, i.overFrom = at, since
		}
	}
}

func (r *Recorder) pod(p *corev1.Pod, gone bool, at time.Time) {
	id, claim := p.Labels[v1alpha1.LabelSandboxID], p.Annotations[v1alpha1.AnnotationClaim]
	if claim == "" || id == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	add(r.pods, id, string(p.UID))
	i := r.claim(claim, string(p.UID))
	if i.PodUID != string(p.UID) {
		r.broken = append(r.broken, fmt.Sprintf("claim %s is on the pods %s and %s", claim, i.PodUID, p.UID))
	}
	if i.ID == "" {
		i.ID = id
	}
	if a := p.Annotations[v1alpha1.AnnotationAddress]; a != "" && i.Address == "" {
		i.Address = a
		i.Claimed, _ = time.Parse(time.RFC3339Nano, p.Annotations[v1alpha1.AnnotationClaimedAt])
		r.addresses[a] = append(r.addresses[a], i)
	}
	if i.free.IsZero() && (gone || !slices.Contains(p.Finalizers, v1alpha1.FinalizerPod)) {
		i.free = at
		i.settle()
	}
}

// claim returns the interval of a claim ID. mu is held.
func (r *Recorder) claim(id, podUID string) *Interval {
	i := r.claims[id]
	if i == nil {
		i = &Interval{Claim: id, PodUID: podUID, Seen: len(r.claims)}
		r.claims[id] = i
		r.byPod[podUID] = append(r.byPod[podUID], i)
	}
	return i
}

func add(m map[string]map[string]bool, key, value string) {
	if m[key] == nil {
		m[key] = map[string]bool{}
	}
	m[key][value] = true
}
