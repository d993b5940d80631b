package credentials

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// leases is an API server with Leases alone.
type leases struct {
	client.Client
	now   time.Time
	there map[string]bool
	away  error
}

func (l *leases) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	o.SetCreationTimestamp(metav1.NewTime(l.now))
	l.there[o.(*coordinationv1.Lease).Namespace+"/"+o.GetName()] = true
	return l.away
}

func (l *leases) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	key := o.GetNamespace() + "/" + o.GetName()
	if l.away == nil && !l.there[key] {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, o.GetName())
	}
	if l.away == nil {
		delete(l.there, key)
	}
	return l.away
}

// tokensOf returns the tokens of 32 times that byte, which keep Leases in the namespace system.
func tokensOf(api client.Client, seed byte) *Tokens {
	tokens := NewTokens(api, "system")
	tokens.seed.Store(new(bytes.Repeat([]byte{seed}, seedLength)))
	return tokens
}

// A ticket is used once, until its time, for its own port of its own sandbox.
func TestTicket(t *testing.T) {
	port, start := Port{"web-1", "u1", 3000}, time.Unix(1_000_000, 0)
	api := &leases{now: start, there: map[string]bool{}}
	tokens := tokensOf(api, 1)
	issue := func() string {
		t.Helper()
		ticket, err := tokens.IssueTicket(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	use := func(by *Tokens, id string, number uint16, ticket string, at time.Time) (string, error) {
		return by.UseTicket(t.Context(), id, number, ticket, at)
	}
	ticket := issue()
	if strings.Contains(ticket, tokens.cookie(port)) {
		t.Error("the ticket has the cookie")
	}
	for name, refused := range map[string]func() (string, error){
		"another sandbox": func() (string, error) { return use(tokens, "web-2", 3000, ticket, start) },
		"a later sandbox of the ID": func() (string, error) {
			return use(tokens, "web-1", 3000, strings.Replace(ticket, ".u1.", ".u2.", 1), start)
		},
		"another port": func() (string, error) { return use(tokens, "web-1", 3001, ticket, start) },
		"another seed": func() (string, error) { return use(tokensOf(api, 2), "web-1", 3000, ticket, start) },
		"its end":      func() (string, error) { return use(tokens, "web-1", 3000, ticket, start.Add(ticketLife)) },
		"a later end": func() (string, error) {
			return use(tokens, "web-1", 3000, strings.Replace(ticket, ".1000060.", ".1000061.", 1), start)
		},
		"another name": func() (string, error) { return use(tokens, "web-1", 3000, "x"+ticket, start) },
		"a cookie":     func() (string, error) { return use(tokens, "web-1", 3000, tokens.cookie(port), start) },
		"nothing":      func() (string, error) { return use(tokens, "web-1", 3000, "", start) },
	} {
		if cookie, err := refused(); !errors.Is(err, ErrLink) || cookie != "" || len(api.there) != 1 {
			t.Errorf("%s: %q, %v; leases %v", name, cookie, err, api.there)
		}
	}
	api.away = errors.New("away")
	if cookie, err := use(tokens, "web-1", 3000, ticket, start); err == nil || errors.Is(err, ErrLink) || cookie != "" {
		t.Errorf("without an API server: %q, %v", cookie, err)
	}
	api.away = nil
	cookie, err := use(tokens, "web-1", 3000, ticket, start.Add(ticketLife-time.Second))
	if err != nil || !tokens.ValidPortCookie(port.ID, port.UID, port.Number, cookie) {
		t.Errorf("the cookie %q, %v", cookie, err)
	}
	if cookie, err := use(tokens, "web-1", 3000, ticket, start); !errors.Is(err, ErrLink) || cookie != "" {
		t.Errorf("used twice: %q, %v", cookie, err)
	}
	if ticket, again := issue(), issue(); ticket == again {
		t.Error("two tickets are the same")
	}
}

// A cookie is valid for its own port of its own sandbox, and nothing is for sandboxd's.
func TestCookie(t *testing.T) {
	api := &leases{there: map[string]bool{}}
	tokens, port := tokensOf(api, 1), Port{"web-1", "u1", 3000}
	for _, p := range []Port{port, {"web-2", "u1", 3000}, {"web-1", "u2", 3000}, {"web-1", "u1", 3001}, {"web-1", "", 3000}, {"web-1", "u1", v1alpha1.SandboxdPort}} {
		if got := tokens.ValidPortCookie(p.ID, p.UID, p.Number, tokens.cookie(port)); got != (p == port) {
			t.Errorf("for %v: %v", p, got)
		}
	}
	for _, p := range []Port{{"web-1", "", 3000}, {"web-1", "u1", v1alpha1.SandboxdPort}} {
		if tokens.ValidPortCookie(p.ID, p.UID, p.Number, tokens.cookie(p)) {
			t.Errorf("there is a cookie for %v", p)
		}
	}
	if tokens.ValidPortCookie(port.ID, port.UID, port.Number, tokens.Traffic("web-1", "u1")) || tokens.ValidPortCookie(port.ID, port.UID, port.Number, tokensOf(api, 2).cookie(port)) {
		t.Error("something else is a cookie")
	}
	agent := Port{"web-1", "u1", v1alpha1.SandboxdPort}
	if _, err := tokens.IssueTicket(t.Context(), agent); !errors.Is(err, ErrSandboxdPort) || len(api.there) > 0 {
		t.Errorf("a link to sandboxd's port: %v", err)
	}
	signed := strings.Join([]string{"name", "1000060", "u1", tokens.ticketCode(agent, "name", "1000060")}, ".")
	api.there["system/link-name"] = true
	if _, err := tokens.UseTicket(t.Context(), "web-1", v1alpha1.SandboxdPort, signed, time.Unix(1_000_000, 0)); !errors.Is(err, ErrLink) {
		t.Errorf("a ticket for sandboxd's port: %v", err)
	}
}
