package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// played is an API server that has these lists, by resource, and nothing else; all is
// allowed.
func played(t *testing.T, lists map[string]client.ObjectList) *rest.Config {
	t.Helper()
	texts := map[string][]byte{}
	for resource, list := range lists {
		list.SetResourceVersion("1")
		kinds, _, err := kubetest.Scheme().ObjectKinds(list)
		if err != nil {
			t.Fatal(err)
		}
		list.GetObjectKind().SetGroupVersionKind(kinds[0])
		if texts[resource], err = json.Marshal(list); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch q := r.URL.Query(); {
		case q.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity) // this server cannot stream lists
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
		case q.Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case texts[path.Base(r.URL.Path)] != nil:
			_, _ = w.Write(texts[path.Base(r.URL.Path)])
		case r.Method == http.MethodPost:
			_, _ = w.Write([]byte(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`))
		default:
			_, _ = w.Write([]byte(`{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`))
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return &rest.Config{Host: server.URL}
}

// tenThousand are sandboxes of one pool, one made each 100 ms.
func tenThousand() *v1alpha1.SandboxList {
	list := &v1alpha1.SandboxList{}
	begin := time.Now().Add(-time.Hour)
	for i := range 10_000 {
		s := sandbox("team-a", "web", fmt.Sprintf("sbx-%05d", i))
		at := begin.Add(time.Duration(i) * 100 * time.Millisecond)
		s.CreationTimestamp, s.Spec.CreatedAt = metav1.NewTime(at), new(metav1.NewMicroTime(at))
		s.Spec.Binding = &v1alpha1.Binding{ClaimID: "c", PodName: fmt.Sprintf("web-%05d", i), PodUID: "u"}
		s.Status.Phase, s.Status.LastActive = v1alpha1.SandboxRunning, new(metav1.NewTime(at.Add(time.Minute)))
		list.Items = append(list.Items, *s)
	}
	return list
}

// Of ten thousand sandboxes a browser holds one page; search and keys find the rest.
func TestTenThousandSandboxes(t *testing.T) {
	b := open(t, serve(t, played(t, map[string]client.ObjectList{"sandboxes": tenThousand()}), "default", nil))
	b.sees("10000") // running
	b.keys("2")
	b.sees("1–50 of 10000", "sbx-09999")
	if rows := evaluate[int](b, `document.querySelectorAll("tbody tr").length`); rows != 50 {
		t.Errorf("the browser has %d rows", rows)
	}
	b.keys("n")
	b.sees("51–100 of 10000", "sbx-09949")
	b.keys("p")
	b.sees("1–50 of 10000")
	b.keys("jj")
	if id := evaluate[string](b, `document.activeElement.dataset.sandbox`); id != "sbx-09998" {
		t.Errorf("j j is at %q", id)
	}
	b.click("#search") // the key / does the same, but a driver's key is typed as well
	b.keys("00123 team-a")
	b.sees("1–1 of 1 (10000 in all)", "sbx-00123")
	took := evaluate[float64](b, `performance.getEntriesByType("resource").filter(r => r.name.includes("api/table")).at(-1).duration`)
	t.Logf("a search took %.0f ms", took)
	b.shoot("phone", 400, 760, "light")
}
