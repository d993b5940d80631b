package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/egress/seal"
	"github.com/sandlane/sandlane/gateway/restapi"
)

// The values of rules are in a sandbox's object sealed for it alone, and what else it says,
// or the API shows, is without them.
func TestSpecOfRules(t *testing.T) {
	private, public, err := seal.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := seal.ParsePublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	x := &Backend{publicKeys: func(context.Context) (*keys.Public, error) { return &keys.Public{Seal: key}, nil }}
	rules := map[string]map[string]string{"api.example": {"X-Key": "hunter2", "Authorization": "Bearer ${e2b.secrets.KEY}"}, "a.example": nil}
	e := restapi.Egress{Allow: blocks("192.0.2.0/24"), Deny: blocks("0.0.0.0/0,::/0"), Names: []string{"api.example"}, Rules: rules}
	spec, err := x.spec(t.Context(), "team", "s1", e)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(spec)
	if err != nil || strings.Contains(string(text), "hunter2") {
		t.Errorf("%s, %v", text, err)
	}
	opener, err := seal.NewOpener(private)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opener.Open(seal.OfSandbox("team", "s2"), spec.Sealed); !errors.Is(err, seal.ErrBroken) {
		t.Errorf("for another sandbox: %v", err)
	}
	raw, err := opener.Open(seal.OfSandbox("team", "s1"), spec.Sealed)
	if err != nil {
		t.Fatal(err)
	}
	var opened map[string]map[string]string
	if err := json.Unmarshal(raw, &opened); err != nil || len(opened) != 2 || !maps.Equal(opened["api.example"], rules["api.example"]) {
		t.Errorf("%v, %v", opened, err)
	}
	s := &v1alpha1.Sandbox{}
	s.Spec.Egress = spec
	const want = "map[a.example:map[] api.example:map[Authorization:Bearer ${e2b.secrets.KEY} X-Key:***]]"
	if got := fmt.Sprint(rulesShown(s)); got != want {
		t.Errorf("shown %s, want %s", got, want)
	}
}

// Without keys, or with more than an object should hold, nothing is sealed.
func TestSpecIsRefused(t *testing.T) {
	x := &Backend{publicKeys: func(context.Context) (*keys.Public, error) { return nil, keys.ErrNone }}
	e := restapi.Egress{Rules: map[string]map[string]string{"a.example": {"X": "hunter2"}}}
	var invalid *restapi.InvalidError
	if _, err := x.spec(t.Context(), "team", "s1", e); !errors.As(err, &invalid) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("without keys: %v", err)
	}
	e.Rules["a.example"]["X"] = strings.Repeat("v", maxSealed)
	if _, err := x.spec(t.Context(), "team", "s1", e); !errors.As(err, &invalid) || !strings.Contains(invalid.Reason, "bytes together") {
		t.Errorf("too much: %v", err)
	}
	if spec, err := x.spec(t.Context(), "team", "s1", restapi.Egress{Deny: blocks("192.0.2.0/24")}); err != nil || spec.DenyAll || fmt.Sprint(spec.DenyBlocks) != "[192.0.2.0/24]" || spec.Sealed != nil {
		t.Errorf("a block alone: %+v, %v", spec, err)
	}
}
