package backend

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/bubble"
	"github.com/sandlane/sandlane/test/kubetest"
)

// manySandboxes is an API server with n sandboxes, which counts the calls for lists
// and whose version grows with each list.
func manySandboxes(t *testing.T, n int) (x *Backend, calls *int, version *int) {
	t.Helper()
	calls, version = new(int), new(int)
	*version = 1
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kubetest.Scheme()).Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			page, ok := into.(*v1alpha1.SandboxList)
			if !ok {
				return nil // of nodes
			}
			*calls++
			o := (&client.ListOptions{}).ApplyOptions(opts)
			from, _ := strconv.Atoi(o.Continue)
			page.Items, page.Continue, page.ResourceVersion = nil, "", strconv.Itoa(*version)
			for i := from; i < min(n, from+int(o.Limit)); i++ {
				s := v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("i%020d", i), CreationTimestamp: metav1.Unix(int64(1e9+i/9), 0)}}
				s.Spec.Namespace, s.Spec.Pool, s.Spec.Metadata = "team", "base", map[string]string{"i": strconv.Itoa(i)}
				page.Items = append(page.Items, s)
			}
			if next := from + int(o.Limit); next < n {
				page.Continue = strconv.Itoa(next)
			}
			return nil
		},
	})
	return New(Options{
		API: c, Cache: routecache.New(8), Index: index.New(index.Options{Client: c}), Node: NewNodeSize(c, slog.Default()),
	}), calls, version
}

// oneKey is a key of one team, and tokens and templates of none.
type oneKey struct{}

func (oneKey) Verify(context.Context, string) (routing.KeyOwner, error) {
	return routing.KeyOwner{Team: "team", Namespace: "team", KeyID: "key"}, nil
}
func (oneKey) Envd(string, types.UID) string                    { return "" }
func (oneKey) Traffic(string, types.UID) string                 { return "" }
func (oneKey) Templates(string) []restapi.Template              { return nil }
func (oneKey) Template(string, string) (restapi.Template, bool) { return restapi.Template{}, false }
func (oneKey) OfPool(string, string) (restapi.Template, bool)   { return restapi.Template{}, false }

// All pages of a list together read from the API server what one list reads.
func TestPagesCostOnePass(t *testing.T) {
	const n = 4000
	for _, order := range []string{"desc", "asc"} {
		x, calls, _ := manySandboxes(t, n)
		server, err := restapi.NewServer(restapi.Options{Sandboxes: x, Templates: oneKey{}, Keys: oneKey{}, Tokens: oneKey{}, Domain: "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		pages := 0
		for token := ""; ; {
			r := httptest.NewRequest(http.MethodGet, "/v2/sandboxes?limit=100&order="+order+"&nextToken="+url.QueryEscape(token), nil)
			r.Header.Set("X-API-Key", "e2b_00")
			w := httptest.NewRecorder()
			server.Handler().ServeHTTP(w, r)
			var page []struct{ SandboxID string }
			if err := json.Unmarshal(w.Body.Bytes(), &page); w.Code != http.StatusOK || err != nil {
				t.Fatalf("page %d: %d %s, %v", pages, w.Code, w.Body, err)
			}
			for _, s := range page {
				seen[s.SandboxID] = true
			}
			pages++
			if token = w.Header().Get("X-Next-Token"); token == "" {
				break
			}
		}
		want := n / listPage
		if order == "asc" {
			want *= 2 // the last page is of the list as it is then
		}
		if len(seen) != n || pages != n/100 || *calls != want {
			t.Errorf("%s: %d sandboxes on %d pages took %d calls, want %d", order, len(seen), pages, *calls, want)
		}
	}
}

// A list is kept for a while, for requests that need none newer.
func TestKeptLists(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x, calls, version := manySandboxes(t, 3)
		list := func(what, atLeast string, wantCalls int, wantKept bool) {
			t.Helper()
			l, err := x.List(t.Context(), "team", atLeast)
			if err != nil || len(l.Sandboxes) != 3 || l.Kept != wantKept || *calls != wantCalls {
				t.Errorf("%s: %d sandboxes, kept: %v, %v, %d calls; want %v, %d", what, len(l.Sandboxes), l.Kept, err, *calls, wantKept, wantCalls)
			}
		}
		list("the first", "", 1, false)
		list("of the same version", "1", 1, true)
		list("the present one", "", 2, false)
		*version = 5
		list("a newer one than is kept", "5", 3, false)
		list("of an older version", "1", 3, true)
		list("no version", "x", 4, false)
		time.Sleep(keepFor - time.Millisecond)
		list("at the end of its time", "5", 4, true)
		time.Sleep(2 * time.Millisecond)
		list("after it", "5", 5, false)
		time.Sleep(2 * keepFor)
		synctest.Wait()
		if len(x.kept.lists) != 0 || x.kept.bytes != 0 {
			t.Errorf("%d lists of %d bytes stay", len(x.kept.lists), x.kept.bytes)
		}
	})
}

// What is kept is bounded: the oldest go, and one that is too big is not kept.
func TestKeptListsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := &keptLists{}
		put := func(namespace string, bytes int) {
			k.put(namespace, &keptList{version: "1", read: time.Now(), sandboxes: []restapi.Sandbox{{Metadata: map[string]string{"": strings.Repeat("x", bytes)}}}})
			time.Sleep(time.Millisecond)
		}
		for i := range 5 {
			put(fmt.Sprint(i), keepBytes/3)
			if k.bytes > keepBytes {
				t.Fatalf("%d bytes are kept, want at most %d", k.bytes, keepBytes)
			}
		}
		if k.get("4", "1") == nil || k.get("3", "1") == nil || k.get("0", "1") != nil {
			t.Errorf("kept are %v", k.lists)
		}
		first := k.lists["4"]
		put("4", keepBytes/3)
		if k.lists["4"] == first || first.expiry.Stop() {
			t.Error("a list that was replaced stays in memory until its timer fires")
		}
		put("big", keepBytes)
		if k.get("big", "1") != nil || k.get("4", "1") == nil {
			t.Error("a list that is too big took the others' place")
		}
		time.Sleep(2 * keepFor)
	})
}
