package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A sandbox that is made while the page is open appears on it; a click explains it, and it
// ends only after a second click.
func TestLiveChangesAndTheEnd(t *testing.T) {
	ns, id := kubetest.Namespace(t), kubetest.Name("sbx")
	pool := poolOf(ns, "web")
	create(t, pool)
	pool.Status = v1alpha1.SandboxPoolStatus{Phase: v1alpha1.PoolReady, Idle: 3, Running: 1}
	status(t, pool)
	create(t, lease(ns, "gateway", -time.Hour)) // it stays fresh, however long this takes
	b := open(t, serve(t, kubetest.Config(t), ns, nil))
	b.sees("idle", "Nothing is wrong")
	b.tab(3)
	b.sees(ns+"/web", "3 of 3")
	b.tab(2)
	create(t, sandbox(ns, "web", id))
	b.sees(id, "waits for a pod")

	b.click(fmt.Sprintf("tr[data-sandbox=%q]", id))
	b.sees("sandbox "+id+": Pending", "of team blue", "it waits for a pod")
	b.click(`[data-action="end"]`)
	b.sees("end " + id + "?")
	b.click("#no")
	b.click(`[data-action="end"]`)
	if live := read(t, id); live.Spec.End != nil {
		t.Fatal("one click ended the sandbox")
	}
	b.click("#yes")
	b.sees("end: done", "ended: Released")
	if live := read(t, id); live.Spec.End == nil || live.Spec.End.Message != "ended by hand (sandlane console)" {
		t.Errorf("its end is %v", live.Spec.End)
	}
	b.keys("\u001b") // Esc
	b.sees("Released: ended by hand")
}

func read(t *testing.T, id string) *v1alpha1.Sandbox {
	t.Helper()
	s := &v1alpha1.Sandbox{}
	if err := kubetest.Client(t).Get(t.Context(), client.ObjectKey{Name: id}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// A running sandbox is paused and resumed; a pod that cannot be frozen is not.
func TestPauseAndResume(t *testing.T) {
	ns, id := kubetest.Namespace(t), kubetest.Name("sbx")
	pool := poolOf(ns, "web")
	create(t, pool)
	for _, name := range []string{id, id + "-x"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: ns, Name: name, Annotations: map[string]string{v1alpha1.AnnotationClaim: "c-" + name},
				Labels: map[string]string{v1alpha1.LabelPool: "web", v1alpha1.LabelPhase: string(v1alpha1.PodRunning), v1alpha1.LabelSandboxID: name},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "i"}}},
		}
		if name == id {
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}
		}
		create(t, pod)
		s := sandbox(ns, "web", name)
		s.Spec.Binding = &v1alpha1.Binding{ClaimID: "c-" + name, PodName: pod.Name, PodUID: string(pod.UID)}
		create(t, s)
		s.Status.Phase = v1alpha1.SandboxRunning
		status(t, s)
	}
	b := open(t, serve(t, kubetest.Config(t), ns, nil))
	b.tab(2)
	act := func(name, action, answer string) {
		t.Helper()
		b.click(fmt.Sprintf("tr[data-sandbox=%q]", name))
		b.sees("sandbox " + name + ": ")
		b.click(fmt.Sprintf("[data-action=%q]", action))
		b.click("#yes")
		b.sees(action + ": " + answer)
		b.click("#close")
	}
	b.sees(id, id+"-x")
	act(id+"-x", "pause", "the sandbox's pod cannot be frozen")
	act(id, "pause", "done")
	if s := read(t, id); !s.Spec.Paused || s.Spec.PauseMode != v1alpha1.PauseFreeze {
		t.Errorf("paused: %v %q", s.Spec.Paused, s.Spec.PauseMode)
	}
	act(id, "resume", "done")
	if s := read(t, id); s.Spec.Paused || s.Spec.Timeouts.EndAt == nil {
		t.Errorf("resumed: paused %v, ends at %v", s.Spec.Paused, s.Spec.Timeouts.EndAt)
	}
	// One that is opened in the moment in which another is closed is read like any.
	b.click(fmt.Sprintf("tr[data-sandbox=%q]", id+"-x"))
	b.sees("sandbox " + id + "-x: ")
	evaluate[bool](b, fmt.Sprintf(`document.querySelector("#close").click(), document.querySelector('tr[data-sandbox=%q]').click(), true`, id))
	b.sees("sandbox " + id + ": ")
}

// What a user may not read is said, and what may not be done cannot be clicked; the API
// server refuses it in any case.
func TestWrongRights(t *testing.T) {
	ns, user, id := kubetest.Namespace(t), kubetest.Name("user"), kubetest.Name("sbx")
	create(t, sandbox(ns, "web", id),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"sandboxes"}, Verbs: []string{"get", "list", "watch"}},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}})
	cfg := kubetest.Config(t)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	url := serve(t, cfg, ns, nil)
	b := open(t, url)
	b.sees("pools cannot be read", "leases of gateways cannot be read")
	b.tab(3)
	b.sees("is forbidden")
	b.tab(2)
	b.sees(id)
	b.click(fmt.Sprintf("tr[data-sandbox=%q]", id))
	b.sees("sandbox "+id, "not read")
	if n := evaluate[int](b, `document.querySelectorAll("[data-action]:enabled").length`); n != 0 {
		t.Errorf("%d actions can be clicked", n)
	}
	address, token, _ := strings.Cut(url, "#")
	code := post(t, address+"api/sandboxes/"+id+"/end", token, fmt.Sprintf(`{"uid":%q}`, read(t, id).UID))
	if s := read(t, id); code != http.StatusForbidden || s.Spec.End != nil {
		t.Errorf("an end without rights: %d, %v", code, s.Spec.End)
	}
}

// While the API server is away the page says so and shows what was known; once it is back,
// the page goes on by itself.
func TestAPIServerAway(t *testing.T) {
	ns, id := kubetest.Namespace(t), kubetest.Name("sbx")
	create(t, sandbox(ns, "web", id))
	cfg := kubetest.Config(t)
	at, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	door := newDoor(t, at.Host)
	cfg.Host = "https://" + door.address
	b := open(t, serve(t, cfg, ns, nil))
	b.tab(2)
	b.sees(id)
	door.shut()
	b.sees("The API server does not answer since", id)
	later := kubetest.Name("later")
	create(t, sandbox(ns, "web", later))
	door.open(t)
	b.sees(later)
	kubetest.Eventually(t, "the page", func() error {
		if strings.Contains(b.text(), "does not answer") {
			return errors.New("it still says that the API server is away")
		}
		return nil
	})
}

// Nothing is served without the token, or for a name that merely leads here.
func TestStrangers(t *testing.T) {
	address, token, _ := strings.Cut(serve(t, kubetest.Config(t), "default", nil), "#")
	for name, tc := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"no token":     {func(*http.Request) {}, http.StatusUnauthorized},
		"wrong token":  {func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, http.StatusUnauthorized},
		"another name": {func(r *http.Request) { r.Host = "evil.example"; r.Header.Set("Authorization", "Bearer "+token) }, http.StatusMisdirectedRequest},
		"the token":    {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }, http.StatusOK},
	} {
		if got := get(t, address+"api/overview", tc.change); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// get asks the console itself.
func get(t *testing.T, url string, change func(*http.Request)) int {
	t.Helper()
	return send(t, http.MethodGet, url, "", change)
}

func post(t *testing.T, url, token, body string) int {
	t.Helper()
	return send(t, http.MethodPost, url, body, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
}

func send(t *testing.T, method, url, body string, change func(*http.Request)) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	change(req)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := kubetest.Client(t).Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// status writes the status of an object.
func status(t *testing.T, o client.Object) {
	t.Helper()
	if err := kubetest.Client(t).Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}
