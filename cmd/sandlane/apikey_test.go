package main

import (
	"bytes"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sandlane/sandlane/credentials"
)

// The values have what a Secret keeps of the key, and not the key.
func TestAPIKeyValues(t *testing.T) {
	var out, said bytes.Buffer
	if code := Run(t.Context(), []string{"apikey", "values"}, &out, &said); code != 0 {
		t.Fatalf("exit code %d: %s", code, &said)
	}
	var values struct {
		Keys []credentials.Stored `json:"keys"`
	}
	if err := yaml.UnmarshalStrict(out.Bytes(), &values); err != nil || len(values.Keys) != 1 {
		t.Fatalf("%v: %s", err, &out)
	}
	key, _, _ := strings.Cut(said.String(), "\n")
	stored := values.Keys[0]
	if !strings.HasPrefix(key, "e2b_"+stored.ID) || len(stored.Salt) != 16 || len(stored.Hash) != 32 {
		t.Errorf("key of %d characters, ID %q, %d bytes of salt, %d of hash", len(key), stored.ID, len(stored.Salt), len(stored.Hash))
	}
	if strings.Contains(out.String(), strings.TrimPrefix(key, "e2b_"+stored.ID)) {
		t.Error("the key is in the values")
	}
}
