package watch

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/seal"
)

// A namespace's rules reach its own secrets, under their own names; what was moved does not
// open. No line of the log has a value.
func TestReveal(t *testing.T) {
	private, public, err := seal.NewKey()
	must(t, err)
	opener, err := seal.NewOpener(private)
	must(t, err)
	key, err := seal.ParsePublicKey(public)
	must(t, err)
	secret := func(namespace, object, name string, place seal.Place, value string) *v1alpha1.SandboxSecret {
		sealed, err := key.Seal(place, []byte(value))
		must(t, err)
		return &v1alpha1.SandboxSecret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.SecretObject(object)},
			Spec:       v1alpha1.SandboxSecretSpec{Name: name, Sealed: sealed},
		}
	}
	own := seal.OfSecret("team", "key")
	var log bytes.Buffer
	s := newSecrets(opener.Open, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, s.Replace([]any{
		secret("team", "key", "key", own, "hunter1"),
		secret("team", "moved", "moved", own, "hunter2"),
		secret("other", "key", "key", own, "hunter2"),
		secret("team", "renamed", "key", own, "hunter2"),
	}, "1"))
	<-s.listed
	ask := func(namespace, name string) string {
		value, err := s.reveal(namespace, name)
		if err != nil {
			return "error: " + err.Error()
		}
		return value
	}
	for _, c := range []struct{ namespace, name, want string }{
		{"team", "key", "hunter1"},
		{"team", "moved", "error: " + errSealed.Error()},
		{"other", "key", "error: " + errSealed.Error()},
		{"team", "none", "error: " + errNoSecret.Error()},
		{"third", "key", "error: " + errNoSecret.Error()},
	} {
		for range 2 { // the second time nothing is opened
			if got := ask(c.namespace, c.name); got != c.want {
				t.Errorf("%s of %s: %q, want %q", c.name, c.namespace, got, c.want)
			}
		}
	}
	must(t, s.Update(secret("team", "key", "key", own, "hunter3")))
	if got := ask("team", "key"); got != "hunter3" {
		t.Errorf("a new version: %q", got)
	}
	must(t, s.Delete(secret("team", "key", "key", own, "")))
	if got := ask("team", "key"); !strings.Contains(got, errNoSecret.Error()) {
		t.Errorf("deleted: %q", got)
	}
	if text := log.String(); strings.Contains(text, "hunter") || strings.Count(text, "cannot be opened") != 2 {
		t.Error(fmt.Sprint("the log: ", text))
	}
}
