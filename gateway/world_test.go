package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/test/kubetest"
)

// world is a namespace with a pool of sandboxd pods on a real API server, whose
// pods are servers of the test on loopback addresses.
type world struct {
	t      testing.TB
	c      client.WithWatch
	ns     string
	tokens *credentials.Tokens
	keys   *credentials.InitKeys
	log    *slog.Logger // of its gateways; nil is slog.Default()
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, kubetest.Client(t), kubetest.Namespace(t))
}

// newWorldOn is newWorld in a namespace of another API server.
func newWorldOn(t testing.TB, c client.WithWatch, ns string) *world {
	t.Helper()
	w := &world{t: t, c: c, ns: ns}
	seed(t, c, ns)
	var err error
	if w.tokens, err = credentials.LoadTokens(t.Context(), w.c, w.ns); err != nil {
		t.Fatal(err)
	}
	if w.keys, err = credentials.LoadInitKeys(t.Context(), w.c, w.ns); err != nil {
		t.Fatal(err)
	}
	w.pool("base", v1alpha1.SandboxdPort, nil)
	return w
}

// seed makes the seed of tokens in a system namespace of a test's own. The sandboxes
// of other tests run still, and while any does no gateway makes one.
func seed(t testing.TB, c client.Client, ns string) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "token-seed"}}
	s.Data = map[string][]byte{"seed": []byte(utilrand.String(32))}
	if err := c.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// pool makes a pool whose container names a port.
func (w *world) pool(name string, port int32, change func(*v1alpha1.SandboxPool)) {
	w.t.Helper()
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	p.Spec.FirstRequest = &v1alpha1.FirstRequest{Access: v1alpha1.AccessPublic}
	p.Spec.Template = &v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "a", Ports: []corev1.ContainerPort{{ContainerPort: port}}}},
	}}}
	if change != nil {
		change(p)
	}
	if err := w.c.Create(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

// gateway runs one until the test ends. Its keys, tokens and lease are in the
// world's namespace.
func (w *world) gateway() *gateway {
	w.t.Helper()
	return w.gatewayWith(kubetest.Config(w.t))
}

// gatewayWith is gateway over a configuration of its own.
func (w *world) gatewayWith(cfg *rest.Config, change ...func(*Options)) *gateway {
	w.t.Helper()
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		w.t.Fatal(err)
	}
	o := Options{Config: cfg, Name: kubetest.Name("gw"), RunDir: dir, SystemNamespace: w.ns, ClosedRanges: []string{"10.96.0.0/12"}, Log: w.log}
	for _, f := range change {
		f(&o)
	}
	o.Complete()
	ctx, stop := context.WithCancel(context.Background())
	g, err := assemble(o)
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.t.Errorf("the gateway ended with %v", err)
		}
		_ = os.RemoveAll(dir)
	})
	kubetest.Eventually(w.t, "the gateway to be ready", func() error {
		if !g.ready() {
			return fmt.Errorf("held %v, index %v, keys %v", g.member.Held(), g.index.Synced(), g.keys.Synced())
		}
		return nil
	})
	return g
}

// sandboxd stands in for the agent of one pod.
type sandboxd struct {
	addr string
	// hang makes /init wait for its caller to give up; status answers it so.
	hang    atomic.Bool
	status  atomic.Int32
	refused atomic.Int32  // calls that were answered with status
	hanging chan struct{} // gets one for each call that hangs

	mu    sync.Mutex // guards the rest
	inits []initBody
	// orders are those that it has carried out, number the last one's. Unless 0,
	// freezeStatus answers freezes, and unfreezeStatus unfreezes.
	orders                       []string
	number                       int
	freezeStatus, unfreezeStatus int
	filesCalls                   filesCalls
	trusted                      []string // bodies of PUT /init
}

// hangsUp is a freezeStatus: the connection is closed without an answer.
const hangsUp = -1

type initBody struct {
	Token string            `json:"accessToken"`
	Env   map[string]string `json:"envVars"`
	CA    string            `json:"caBundle"`
	At    time.Time         `json:"timestamp"`

	Sandbox, Template string `json:"-"` // of the header
}

// calls are the initialisations that it took.
func (d *sandboxd) calls() []initBody {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inits
}

func (d *sandboxd) init(rw http.ResponseWriter, r *http.Request) {
	if d.hang.Load() {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the caller left
		d.hanging <- struct{}{}
		<-r.Context().Done()
		return
	}
	if d.filesCalls.restartsAtInit.CompareAndSwap(true, false) {
		d.restart()
		rw.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if s := d.status.Load(); s != 0 {
		d.refused.Add(1)
		rw.WriteHeader(int(s))
		return
	}
	var body initBody
	if r.Header.Get("Sandlane-Init-Signature") == "" || json.NewDecoder(r.Body).Decode(&body) != nil {
		rw.WriteHeader(http.StatusUnauthorized)
		return
	}
	body.Sandbox, body.Template = r.Header.Get("Sandlane-Sandbox-Id"), r.Header.Get("Sandlane-Template-Id")
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.inits) > 0 && (d.inits[0].Token != body.Token || !reflect.DeepEqual(d.inits[0].Env, body.Env)) {
		rw.WriteHeader(http.StatusConflict)
		return
	}
	d.inits = append(d.inits, body)
	rw.WriteHeader(http.StatusNoContent)
}

// trust notes what programs are to trust.
func (d *sandboxd) trust(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.status.Load(); s != 0 || err != nil || r.Header.Get("Sandlane-Init-Signature") == "" {
		rw.WriteHeader(http.StatusUnauthorized)
		return
	}
	d.trusted = append(d.trusted, string(body))
	rw.WriteHeader(http.StatusNoContent)
}

// order carries out a freeze or an unfreeze, unless a later one was.
func (d *sandboxd) order(rw http.ResponseWriter, r *http.Request) {
	number, err := strconv.Atoi(r.Header.Get("Sandlane-Pause-Order"))
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil || r.Header.Get("Sandlane-Init-Signature") == "":
		rw.WriteHeader(http.StatusUnauthorized)
	case d.freezeStatus == hangsUp && r.URL.Path == "/freeze":
		panic(http.ErrAbortHandler)
	case d.freezeStatus != 0 && r.URL.Path == "/freeze":
		rw.WriteHeader(d.freezeStatus)
	case d.unfreezeStatus != 0 && r.URL.Path == "/unfreeze":
		rw.WriteHeader(d.unfreezeStatus)
	case number < d.number:
		rw.WriteHeader(http.StatusConflict)
	default:
		d.number = number
		d.orders = append(d.orders, fmt.Sprintf("%s %d", r.URL.Path[1:], number))
		rw.WriteHeader(http.StatusNoContent)
	}
}

// answerUnfreezes has it answer unfreezes with a status and carry none out; 0 ends that.
func (d *sandboxd) answerUnfreezes(status int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unfreezeStatus = status
}

// carriedOut returns the orders so far.
func (d *sandboxd) carriedOut() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.orders)
}

func (d *sandboxd) metrics(rw http.ResponseWriter, r *http.Request) {
	if calls := d.calls(); len(calls) == 0 || r.Header.Get("X-Access-Token") != calls[0].Token {
		rw.WriteHeader(http.StatusUnauthorized)
		return
	}
	const now = `{"ts":1700000000,"cpu_count":2,"cpu_used_pct":12.5,"mem_total":4,"mem_used":3,"mem_cache":2,"disk_used":1,"disk_total":9}`
	if r.URL.Query().Has("history") {
		fmt.Fprint(rw, `[{"ts":1699999995,"cpu_count":2,"mem_used":2},`+now+"]")
		return
	}
	fmt.Fprint(rw, now)
}

// sandboxd serves one on a loopback address of its own.
func (w *world) sandboxd() *sandboxd {
	w.t.Helper()
	d := &sandboxd{hanging: make(chan struct{}, 100)}
	var l net.Listener
	for range 20 {
		d.addr = fmt.Sprintf("127.%d.%d.%d", 1+utilrand.Intn(250), utilrand.Intn(250), 1+utilrand.Intn(250))
		var err error
		if l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", d.addr, v1alpha1.SandboxdPort)); err == nil {
			break
		}
	}
	if l == nil {
		w.t.Fatal("no loopback address has the port free")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /init", d.challenge)
	mux.HandleFunc("POST /init", d.init)
	mux.HandleFunc("PUT /init", d.trust)
	mux.HandleFunc("GET /metrics", d.metrics)
	mux.HandleFunc("POST /freeze", d.order)
	mux.HandleFunc("POST /unfreeze", d.order)
	mux.HandleFunc("POST /archive", d.archive)
	mux.HandleFunc("POST /restore", d.restore)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	w.t.Cleanup(func() { _ = srv.Close(); <-done })
	return d
}

// pod makes a pod of a pool at an address, idle as change leaves it.
func (w *world) pod(pool, addr string, change func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	var p v1alpha1.SandboxPool
	if err := w.c.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: pool}, &p); err != nil {
		w.t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.ns, Name: kubetest.Name("pod"),
			Labels: map[string]string{
				v1alpha1.LabelPool: pool, v1alpha1.LabelPhase: string(v1alpha1.PodIdle), v1alpha1.LabelInitKey: w.keys.Current().ID,
			},
			Annotations: map[string]string{v1alpha1.AnnotationAddress: addr},
		},
		Spec: p.Spec.Template.Template.Spec,
	}
	if change != nil {
		change(pod)
	}
	if err := w.c.Create(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
	pod.Status.PodIP, pod.Status.PodIPs = addr, []corev1.PodIP{{IP: addr}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := w.c.Status().Update(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
	return pod
}

// ready makes an idle pod with a sandboxd.
func (w *world) ready() *sandboxd {
	w.t.Helper()
	d := w.sandboxd()
	w.pod("base", d.addr, nil)
	return d
}

// sandbox reads one; nil if there is none.
func (w *world) sandbox(id string) *v1alpha1.Sandbox {
	w.t.Helper()
	s := &v1alpha1.Sandbox{}
	err := w.c.Get(context.WithoutCancel(w.t.Context()), client.ObjectKey{Name: id}, s)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return s
}

// newID is an ID as the REST API makes them.
func newID() string { return "i" + utilrand.String(20) }
