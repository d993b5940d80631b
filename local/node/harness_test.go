package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/sandlane/sandlane/local/node/images"
	"github.com/sandlane/sandlane/local/node/network"
	"github.com/sandlane/sandlane/test/kubetest"
)

// nodeChild makes the test binary a node: its value is childOptions as JSON.
const nodeChild = "SANDLANE_TEST_NODE"

func TestMain(m *testing.M) {
	if raw := os.Getenv(nodeChild); raw != "" {
		os.Exit(runChild(raw))
	}
	code := kubetest.Main(m)
	if helperDir != "" {
		_ = os.RemoveAll(helperDir)
	}
	os.Exit(code)
}

var (
	helperOnce sync.Once
	helperDir  string
	helperErr  error
)

// helpers builds podinit and the images' programs once.
func helpers(t testing.TB) string {
	t.Helper()
	helperOnce.Do(func() {
		if helperDir, helperErr = os.MkdirTemp("", "sandlane-helpers-"); helperErr != nil {
			return
		}
		for name, pkg := range map[string]string{"podinit": "./podinit", "echo": "../../test/echo", "sandboxd": "../../cmd/sandboxd"} {
			cmd := exec.Command("go", "build", "-o", filepath.Join(helperDir, name), pkg)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				helperErr = fmt.Errorf("build %s: %w\n%s", name, err, out)
				return
			}
		}
	})
	if helperErr != nil {
		t.Fatal(helperErr)
	}
	return helperDir
}

// testNode is a node that runs in this process.
type testNode struct {
	client *kubernetes.Clientset
	opts   Options
	ns     string
	cancel context.CancelFunc
	done   chan error
	inside atomic.Pointer[provider]
}

func (n *testNode) provider() *provider { return n.inside.Load() }

// needRoot skips with the reason.
func needRoot(t testing.TB) {
	t.Helper()
	if err := CanIsolate(); err != nil {
		t.Skip("needs full isolation: ", err)
	}
}

func testOptions(t testing.TB, isolation Isolation) Options {
	t.Helper()
	dir := helpers(t)
	state := t.TempDir()
	tableFile := filepath.Join(state, "images.json")
	echo := filepath.Join(dir, "echo")
	table := map[string]images.Entry{
		"local/echo":     {Command: []string{echo}, Digest: "sha256:1111", Env: map[string]string{"FROM_IMAGE": "1"}},
		"local/echo:v2":  {Command: []string{echo}, Digest: "sha256:2222"},
		"local/shell":    {Command: []string{"sh", "-c"}, Digest: "sha256:3333"},
		"local/imaged":   {Command: []string{"sh", "-c"}, Digest: "sha256:4444", WorkingDir: "/home/user", User: "1000:1000"},
		"local/sandboxd": {Command: []string{filepath.Join(dir, "sandboxd")}, Digest: "sha256:5555", Aliases: []string{"sudo"}},
		"local/missing":  {Command: []string{"/nowhere/program"}},
	}
	raw, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tableFile, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	subnet, err := network.PickSubnet(isolation == IsolationFull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = subnet.Close() })
	level := slog.LevelWarn
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: level}))
	return Options{
		RestConfig: kubetest.Config(t), Name: kubetest.Name("node"), StateDir: state, Subnet: subnet.Prefix,
		Isolation: isolation, Images: tableFile, HelperDir: dir, Log: log,
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// startNode runs a node until the test ends and checks that nothing is left.
func startNode(t testing.TB, isolation Isolation, change ...func(*Options)) *testNode {
	t.Helper()
	if isolation == IsolationFull {
		needRoot(t)
	}
	n := &testNode{opts: testOptions(t, isolation), ns: kubetest.Namespace(t)}
	for _, f := range change {
		f(&n.opts)
	}
	var err error
	if n.client, err = kubernetes.NewForConfig(n.opts.RestConfig); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	t.Cleanup(func() {
		n.halt(t)
		// Objects must not keep later nodes busy.
		zero := int64(0)
		_ = n.client.CoreV1().Pods(n.ns).DeleteCollection(context.Background(), metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{})
		if left := leftovers(n.opts.StateDir); len(left) > 0 {
			t.Errorf("the node left behind: %v", left)
		}
	})
	return n
}

func (n *testNode) start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	o := n.opts
	o.Ready = func() { close(ready) }
	o.inspect = n.inside.Store
	go func() { done <- Run(ctx, o) }()
	n.cancel, n.done = cancel, done
	select {
	case <-ready:
	case err := <-done:
		t.Fatalf("the node ended: %v", err)
	case <-time.After(30 * time.Second):
		cancel()
		t.Fatal("the node is not ready after 30 s")
	}
}

// halt stops the node; it may be called again.
func (n *testNode) halt(t testing.TB) {
	t.Helper()
	if n.cancel == nil {
		return
	}
	n.cancel()
	n.cancel = nil
	select {
	case err := <-n.done:
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(30 * time.Second):
		stacks := make([]byte, 1<<20)
		t.Errorf("the node does not stop:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// leftovers lists links, routes, cgroups, mounts and processes of a node.
func leftovers(stateDir string) (left []string) {
	hash := stateHash(stateDir)
	for _, glob := range []string{"/sys/class/net/sl" + hash + "*", "/sys/fs/cgroup/*/sandlane-" + hash, "/sys/fs/cgroup/sandlane-" + hash, stateDir + "/node/pods/*"} {
		found, _ := filepath.Glob(glob)
		left = append(left, found...)
	}
	if raw, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(raw), stateDir) {
		left = append(left, "a mount")
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, p := range procs {
		if raw, err := os.ReadFile(p); err == nil && strings.Contains(string(raw), stateDir) {
			cmd, _ := os.ReadFile(filepath.Dir(p) + "/cmdline")
			left = append(left, "process "+p+" "+string(cmd))
		}
	}
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, p := range environs {
		if raw, err := os.ReadFile(p); err == nil && strings.Contains(string(raw), nodeEnv+"="+hash) {
			left = append(left, "process "+p)
		}
	}
	return left
}

// echoPod is a pod of the echo image with a readiness probe.
func echoPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	second := int64(1)
	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &second, EnableServiceLinks: &no, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{
				Name: "main", Image: "local/echo", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8000}},
				Env: []corev1.EnvVar{
					{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
					{Name: "POD_UID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
				},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("http")}}},
			}},
		},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// shellPod runs a script.
func shellPod(name, script string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := echoPod(name)
	pod.Spec.Containers[0].Image = "local/shell"
	pod.Spec.Containers[0].Args = []string{script}
	pod.Spec.Containers[0].ReadinessProbe = nil
	for _, f := range change {
		f(pod)
	}
	return pod
}

func (n *testNode) create(t testing.TB, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if _, err := n.client.CoreV1().Pods(n.ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *testNode) get(t testing.TB, name string) *corev1.Pod {
	t.Helper()
	pod, err := n.client.CoreV1().Pods(n.ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// await returns the pod as soon as ok says yes.
func (n *testNode) await(t testing.TB, name, what string, ok func(*corev1.Pod) bool) (pod *corev1.Pod) {
	t.Helper()
	kubetest.Eventually(t, name+": "+what, func() error {
		pod = n.get(t, name)
		if ok(pod) {
			return nil
		}
		raw, _ := json.Marshal(pod.Status)
		return errors.New(string(raw))
	})
	return pod
}

func (n *testNode) awaitGone(t testing.TB, name string) {
	t.Helper()
	kubetest.Eventually(t, name+" is deleted", func() error {
		_, err := n.client.CoreV1().Pods(n.ns).Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.New("it is there")
	})
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

type identity struct{ Pod, PodUID, Process string }

// ask gets the identity of the server at a pod's address.
func ask(ctx context.Context, ip string) (id identity, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+net.JoinHostPort(ip, "8000")+"/", nil)
	if err != nil {
		return id, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext}}
	res, err := client.Do(req)
	if err != nil {
		return id, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return id, err
	}
	return id, json.Unmarshal(raw, &id)
}
