package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/test/kubetest"
)

// filesCalls stand in for sandboxd's archive and restore.
type filesCalls struct {
	kept     string // what is archived; of one that hibernates, an environment is before it
	restored string // what was restored, and its ID
	id       string
	done     bool
	refuse   int // the answer to a restore, if not 0
	restarts int // of its container
	// restartsAtInit has it restart at the next /init, which gets no answer of use.
	restartsAtInit atomic.Bool
	// restoresFrom is when it begins to answer restores.
	restoresFrom time.Time
	archive      func()
	restoring    func() // called as each part arrives
	breaks       bool   // the archive
}

func (d *sandboxd) archive(rw http.ResponseWriter, r *http.Request) {
	var order struct{ Environment bool }
	if err := json.Unmarshal([]byte(r.Header.Get("Sandlane-Arguments")), &order); err != nil {
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.orders = append(d.orders, "archive")
	if hook := d.filesCalls.archive; hook != nil {
		d.mu.Unlock()
		hook()
		d.mu.Lock()
	}
	if d.filesCalls.breaks {
		rw.WriteHeader(http.StatusInternalServerError)
		return
	}
	if order.Environment { // of one that hibernates; a snapshot has none
		env, _ := json.Marshal(d.inits[0].Env)
		fmt.Fprintf(rw, "%s\n", env)
	}
	fmt.Fprint(rw, d.filesCalls.kept)
}

func (d *sandboxd) restore(rw http.ResponseWriter, r *http.Request) {
	var order struct {
		ID     string
		Offset int
		Last   bool
	}
	part, err := io.ReadAll(r.Body)
	if hook := d.filesCalls.restoring; hook != nil {
		hook()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil || json.Unmarshal([]byte(r.Header.Get("Sandlane-Arguments")), &order) != nil:
		rw.WriteHeader(http.StatusBadRequest)
	case time.Now().Before(d.filesCalls.restoresFrom):
		rw.WriteHeader(http.StatusServiceUnavailable)
	case d.filesCalls.refuse != 0:
		rw.WriteHeader(d.filesCalls.refuse)
	case len(d.inits) > 0:
		rw.WriteHeader(http.StatusConflict)
	default:
		if order.Offset == len(d.filesCalls.restored) {
			d.filesCalls.restored += string(part)
		}
		d.filesCalls.id, d.filesCalls.done = order.ID, order.Last
		rw.WriteHeader(map[bool]int{true: http.StatusOK, false: http.StatusAccepted}[order.Last])
	}
}

// challenge answers GET /init.
func (d *sandboxd) challenge(rw http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := map[string]string{"nonce": fmt.Sprint("n", d.filesCalls.restarts)}
	if d.filesCalls.done {
		answer["restored"] = d.filesCalls.id
	}
	_ = json.NewEncoder(rw).Encode(answer)
}

// restart has the container begin anew, without the files.
func (d *sandboxd) restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.filesCalls.restarts, d.filesCalls.restored, d.filesCalls.done, d.inits = d.filesCalls.restarts+1, "", false, nil
}

// resting is a world whose pool lets sandboxes hibernate, with gateways that share a
// folder, and a sandbox that runs.
type resting struct {
	*world
	gateways []*gateway
	id       string
	first    *sandboxd
	newest   string // the pod made last
	folder   string // of the gateways' archives
}

// last reads the pod that was made last.
func (w *resting) last() *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	if err := w.c.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: w.newest}, pod); err != nil {
		w.t.Fatal(err)
	}
	return pod
}

func newResting(t *testing.T, gateways int, change func(*restapi.NewSandbox)) *resting {
	t.Helper()
	w := &resting{world: newWorld(t)}
	w.pool("resting", v1alpha1.SandboxdPort, func(p *v1alpha1.SandboxPool) {
		p.Spec.Pause = &v1alpha1.PoolPause{Modes: []v1alpha1.PauseMode{v1alpha1.PauseFreeze, v1alpha1.PauseHibernate}}
	})
	w.folder = t.TempDir()
	for range gateways {
		w.gateways = append(w.gateways, w.gatewayWith(kubetest.Config(t), func(o *Options) { o.CheckpointDir, o.MaxCheckpointBytes = w.folder, 1000 }))
	}
	w.first = w.next("sha256:1")
	w.first.filesCalls.kept = "the files"
	n := w.new(newID())
	n.Pool, n.Env = "resting", map[string]string{"MINE": "mine"}
	if change != nil {
		change(&n)
	}
	if _, err := w.gateways[0].create(t, n); err != nil {
		t.Fatal(err)
	}
	w.id = n.ID
	return w
}

// next makes an idle pod of these images.
func (w *resting) next(image string) *sandboxd {
	w.t.Helper()
	d := w.sandboxd()
	pod := w.pod("resting", d.addr, nil)
	w.newest = pod.Name
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "a", ImageID: image, Ready: true}}
	if err := w.c.Status().Update(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *resting) checkpoints() (all []v1alpha1.Checkpoint) {
	w.t.Helper()
	var list v1alpha1.CheckpointList
	if err := w.c.List(w.t.Context(), &list, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}
	for _, cp := range list.Items {
		if cp.DeletionTimestamp == nil {
			all = append(all, cp)
		}
	}
	return all
}

// hibernates checks that the sandbox has no pod and names what was kept of it.
func (w *resting) hibernates(what string) *v1alpha1.Sandbox {
	w.t.Helper()
	s := w.sandbox(w.id)
	if !v1alpha1.Hibernated(s) || s.Spec.PauseMode != v1alpha1.PauseHibernate || s.Spec.Timeouts.EndAt != nil {
		w.t.Fatalf("%s: the spec is %+v", what, s.Spec)
	}
	return s
}

func (w *resting) pause() {
	w.t.Helper()
	if err := w.gateways[0].api.sandboxes.Pause(w.t.Context(), w.ns, w.id, false); err != nil {
		w.t.Fatal(err)
	}
}
