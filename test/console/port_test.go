package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
	"github.com/sandlane/sandlane/test/stack"
)

// portDomain is one that the browser finds on this machine. Below it sandboxes are one site, as
// below a domain of a cluster.
const portDomain = "ports.example"

// A link opens a private port in a browser; pages of other sandboxes of the domain cannot use
// that. The console makes such a link, after a second click.
func TestPrivatePort(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it needs root: each sandbox gets namespaces of its own")
	}
	s := startStack(t, t.TempDir(), "--tls", "--domain", portDomain, "--pool-size", "0", "--base-pool-size", "0")
	ns := s.Namespace(t)
	pool := stack.EchoPool(ns, "pool", 3, stack.WithAccess(v1alpha1.AccessAPIKey))
	if err := s.Client.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	key, err := s.Key(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	s.WaitIdle(t, ns, "pool", 3)
	c := clientOf(t, s)
	for _, id := range []string{"mine", "evil", "third"} {
		if a := s.Do(t, c, stack.Request{ID: id, Pool: ns + "/pool", Header: map[string]string{"X-Sandbox-Api-Key": key}}); a.Echo == nil {
			t.Fatalf("the first request for %s: %v", id, a)
		}
	}
	_, at, _ := strings.Cut(s.Up.Domain, portDomain) // :port
	own := func(id string) string { return "https://8000-" + id + "." + portDomain + at + "/" }
	link := func(id string) string {
		out, err := s.Run(t.Context(), "open", id, "8000")
		if err != nil {
			t.Fatalf("sandlane open: %v\n%s", err, out)
		}
		return strings.TrimSpace(out)
	}

	b := open(t, link("mine"))
	answers := b.answers()
	shows(b, own("mine"))
	if page := b.text() + evaluate[string](b, "document.cookie"); strings.Contains(page, "sandlane-port") {
		t.Errorf("the cookie is shown: %s", page)
	}
	b.does(`fetch("/x", {method: "POST"}).then(r => r.status)`, "200")
	b.does(`fetch("/x").then(r => r.json()).then(e => JSON.stringify(e.headers))`, "Sec-Fetch-Site")
	// Else its worker and what it stored would be there when the name's next sandbox is opened.
	b.does(`navigator.serviceWorker.register("/worker.js")`, "bad HTTP response code (400)")
	b.does(`Promise.resolve(localStorage.left = "by the first")`, "by the first")

	used := link("evil")
	b.do("open the other sandbox", chromedp.Navigate(used))
	shows(b, own("evil"))
	victim, _ := json.Marshal(own("mine"))
	for what, code := range map[string]string{
		"fetch": `fetch(URL + "fetch", {mode: "no-cors", credentials: "include"})`,
		"post":  `fetch(URL + "post", {mode: "no-cors", credentials: "include", method: "POST"})`,
		"image": `document.body.append(Object.assign(document.createElement("img"), {src: URL + "image"}))`,
		"frame": `document.body.append(Object.assign(document.createElement("iframe"), {src: URL + "frame"}))`,
	} {
		evaluate[bool](b, "(() => {"+strings.ReplaceAll(code, "URL", string(victim))+"; return true })()")
		if status := answers.wait("/" + what); status != http.StatusUnauthorized {
			t.Errorf("%s of another sandbox's page: %d", what, status)
		}
	}
	evaluate[bool](b, fmt.Sprintf(`(() => { const f = Object.assign(document.createElement("form"), {method: "POST", action: %s}); document.body.append(f); f.submit(); return true })()`, victim))
	b.sees("API key")
	b.do("type the address", chromedp.Navigate(own("mine")))
	shows(b, own("mine"))
	b.do("another port", chromedp.Navigate(strings.Replace(own("mine"), "8000-", "8001-", 1)))
	b.sees("API key")
	b.do("sandboxd's port", chromedp.Navigate(strings.Replace(own("mine"), "8000-", "49983-", 1)))
	b.sees("API key")
	b.do("open the link once more", chromedp.Navigate(used))
	b.sees("This link was used")

	b.do("open the console", chromedp.Navigate(s.Up.ConsoleURL))
	b.tab(2)
	b.click(`tr[data-sandbox="third"]`)
	b.sees("sandbox third: Running")
	b.click(`[data-action="open"]`)
	b.sees("open port 8000 of third?")
	b.click("#no")
	if n := evaluate[int](b, `document.querySelectorAll("#outcome a").length`); n != 0 {
		t.Fatal("one click opened the port")
	}
	b.click(`[data-action="open"]`)
	b.click("#yes")
	b.sees("open: done", "open it once")
	b.shoot("open", 1100, 760, "light")
	evaluate[bool](b, `(() => { location.href = document.querySelector("#outcome a").href; return true })()`) // as a click would in a new tab
	shows(b, own("third"))

	sb, _ := s.Sandbox(t, "mine")
	if err := s.Client.Delete(t.Context(), &sb); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "another sandbox of the name", func() error {
		a := s.Do(t, c, stack.Request{ID: "mine", Pool: ns + "/pool", Header: map[string]string{"X-Sandbox-Api-Key": key}})
		if again, _ := s.Sandbox(t, "mine"); a.Echo == nil || again.UID == sb.UID {
			return fmt.Errorf("%v", a)
		}
		return nil
	})
	b.do("come back after the end", chromedp.Navigate(own("mine")))
	b.sees("API key")
	b.do("open the next sandbox of the name", chromedp.Navigate(link("mine")))
	shows(b, own("mine"))
	if left := evaluate[string](b, "String(localStorage.left)"); left != "undefined" {
		t.Errorf("what the former sandbox of the name stored is left: %s", left)
	}
}

// shows waits until the browser is at the address and shows what the echo server says.
func shows(b *browser, address string) {
	b.t.Helper()
	b.sees(`"podUID"`)
	if is := evaluate[string](b, "location.href"); is != address {
		b.t.Fatalf("the browser is at %s, not at %s", is, address)
	}
}

// does waits until the page's promise has a value with the text in it.
func (b *browser) does(promise, text string) {
	b.t.Helper()
	evaluate[bool](b, "(() => { window.was = ''; "+promise+".then(v => { window.was = String(v) }, e => { window.was = 'failed: ' + e }); return true })()")
	kubetest.Eventually(b.t, promise, func() error {
		if was := evaluate[string](b, "window.was"); !strings.Contains(was, text) {
			return fmt.Errorf("%q", was)
		}
		return nil
	})
}

// answers are what the browser was answered, by request: also what it shows to no page.
type answers struct {
	t      *testing.T
	mu     sync.Mutex
	url    map[network.RequestID]string
	status map[network.RequestID]int64
}

// answers begins to note what the tab is answered.
func (b *browser) answers() *answers {
	b.t.Helper()
	a := &answers{t: b.t, url: map[network.RequestID]string{}, status: map[network.RequestID]int64{}}
	err := chromedp.Listen(b.ctx, func(event any) {
		a.mu.Lock()
		defer a.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			a.url[e.RequestID] = e.Request.URL
		case *network.EventResponseReceivedExtraInfo:
			a.status[e.RequestID] = e.StatusCode
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// wait waits for the answer to a request whose path ends so.
func (a *answers) wait(path string) (status int64) {
	a.t.Helper()
	kubetest.Eventually(a.t, "the answer to "+path, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		for id, address := range a.url {
			if status = a.status[id]; status != 0 && strings.HasSuffix(address, path) {
				return nil
			}
		}
		return fmt.Errorf("%v, answered %v", a.url, a.status)
	})
	return status
}
