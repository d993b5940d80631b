package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// visit asks as a browser does that is at rest at the address of a link: a redirect is an answer.
func visit(t *testing.T, link string, headers map[string]string) stack.Answer {
	t.Helper()
	at, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	req := byHost(t, "GET", at.Host, at.RequestURI(), nil)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	return send(t, &http.Client{Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, req)
}

// openLink makes a link by the command.
func openLink(t *testing.T, id string) string {
	t.Helper()
	out, err := shared.Run(t.Context(), "open", id, "8000")
	if err != nil {
		t.Fatalf("sandlane open: %v\n%s", err, out)
	}
	return strings.TrimSpace(out)
}

// cookieOf exchanges a link.
func cookieOf(t *testing.T, link string) string {
	t.Helper()
	a := visit(t, link, nil)
	set := a.Header.Get("Set-Cookie")
	cookie, attributes, _ := strings.Cut(set, ";")
	if a.Status != http.StatusSeeOther || a.Header.Get("Location") != "/" || a.Header.Get("Referrer-Policy") != "no-referrer" ||
		!strings.HasPrefix(cookie, "sandlane-port=") || !strings.Contains(attributes, "HttpOnly") || !strings.Contains(attributes, "SameSite=Strict") {
		t.Fatalf("the link: %v, %v", a, a.Header)
	}
	return cookie
}

// A link opens one port of one sandbox, once; its cookie opens nothing else, and no sandbox sees
// it.
func TestLinkOpensAPort(t *testing.T) {
	t.Parallel()
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 3, stack.WithAccess(v1alpha1.AccessAPIKey))
	shared.Pool(t, ns, "public", 1)
	key, err := shared.Key(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	first := func(id string) stack.Answer {
		return shared.Do(t, nil, stack.Request{ID: id, Pool: ns + "/pool", Header: map[string]string{"X-Sandbox-Api-Key": key}})
	}
	for _, id := range []string{"opened", "unopened"} {
		if a := first(id); a.Echo == nil {
			t.Fatalf("the first request: %v", a)
		}
	}
	domain := shared.Up.Gateways[0].Domain
	link := openLink(t, "opened")
	for name, refused := range map[string]string{
		"another sandbox's host": strings.Replace(link, "8000-opened", "8000-unopened", 1),
		"another port's host":    strings.Replace(link, "8000-", "8001-", 1),
		"sandboxd's port":        strings.Replace(link, "8000-", "49983-", 1),
		"another ticket":         link + "0",
	} {
		if a := visit(t, refused, nil); a.Status != http.StatusForbidden || a.Header.Get("Set-Cookie") != "" {
			t.Errorf("the link at %s: %v", name, a)
		}
	}
	cookie := cookieOf(t, link)
	if a := visit(t, link, nil); a.Status != http.StatusForbidden || a.Header.Get("Set-Cookie") != "" {
		t.Errorf("the link once more: %v", a)
	}

	own := "http://8000-opened." + domain
	typed := map[string]string{"Cookie": "a=b; " + cookie, "Sec-Fetch-Site": "none"}
	a := visit(t, own+"/x", typed)
	if a.Echo == nil || a.Echo.Path != "/x" || strings.Join(a.Echo.Headers["Cookie"], "") != "a=b" || strings.Contains(string(a.Body), cookie) {
		t.Errorf("the port: %v", a)
	}
	with := func(name, value string) map[string]string { return map[string]string{"Cookie": cookie, name: value} }
	for name, tc := range map[string]struct {
		url     string
		headers map[string]string
	}{
		"without the cookie":            {own, map[string]string{"Sec-Fetch-Site": "none"}},
		"from another site":             {own, with("Sec-Fetch-Site", "cross-site")},
		"from another sandbox's page":   {own, with("Sec-Fetch-Site", "same-site")},
		"from another origin":           {own, with("Origin", "http://8000-unopened."+domain)},
		"from nobody knows where":       {own, map[string]string{"Cookie": cookie}},
		"another sandbox":               {"http://8000-unopened." + domain, typed},
		"another port":                  {"http://8001-opened." + domain, typed},
		"sandboxd's port":               {"http://49983-opened." + domain, typed},
		"the API":                       {"http://api." + domain + "/v2/sandboxes", typed},
		"the API below the port's host": {own + "/sandboxes/opened", with("Sec-Fetch-Site", "cross-site")},
	} {
		if a := visit(t, tc.url, tc.headers); a.Status != http.StatusUnauthorized {
			t.Errorf("%s: %v", name, a)
		}
	}

	// A sandbox that asks for nothing sees the cookie no more than others, wherever it is answered.
	shared.Touch(t, "public", ns+"/public")
	for range 5 {
		if a := visit(t, "http://8000-public."+domain, typed); a.Echo == nil || strings.Contains(string(a.Body), "sandlane-port") {
			t.Errorf("the public sandbox: %v", a)
		}
	}

	// The next sandbox of the name is another one.
	unused := openLink(t, "opened")
	sb, _ := shared.Sandbox(t, "opened")
	if err := shared.Client.Delete(t.Context(), &sb, client.Preconditions{UID: &sb.UID}); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, 2*time.Minute, "another sandbox of the name", func() (bool, string) {
		a := first("opened")
		again, _ := shared.Sandbox(t, "opened")
		return a.Echo != nil && again.UID != sb.UID, a.String()
	})
	if a := visit(t, own, typed); a.Status != http.StatusUnauthorized {
		t.Errorf("the cookie of the sandbox that ended: %v", a)
	}
	if a := visit(t, unused, nil); a.Status == http.StatusSeeOther {
		if stale, _, _ := strings.Cut(a.Header.Get("Set-Cookie"), ";"); visit(t, own, map[string]string{"Cookie": stale, "Sec-Fetch-Site": "none"}).Status != http.StatusUnauthorized {
			t.Error("the link of the sandbox that ended opens the next one")
		}
	}
	for _, args := range [][]string{{"open", "opened", "49983"}, {"open", "opened", "0"}, {"open", "nobody", "8000"}} {
		if out, err := shared.Run(t.Context(), args...); err == nil {
			t.Errorf("sandlane %v: %s", args, out)
		}
	}
	if logs := shared.Logs(1 << 20); !strings.Contains(logs, "a port was opened in a browser") || strings.Contains(logs, "ticket=") || strings.Contains(logs, cookie) {
		t.Error("no log says that the port was opened, or one has the ticket or the cookie")
	}
}
