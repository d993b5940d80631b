package logins

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// A registry has the login of the file as it is now; others have none, and what is wrong with the
// file is told without its text.
func TestKeychain(t *testing.T) {
	file := t.TempDir() + "/config.json"
	login := func(host string) (authn.AuthConfig, error) {
		t.Helper()
		registry, err := name.NewRegistry(host)
		if err != nil {
			t.Fatal(err)
		}
		auth, err := Keychain(file).Resolve(registry)
		if err != nil {
			return authn.AuthConfig{}, err
		}
		config, err := auth.Authorization()
		if err != nil {
			t.Fatal(err)
		}
		return *config, nil
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := login("one.test"); err == nil {
		t.Error("no error without the file")
	}
	write(`{"auths":{"one.test":{"auth":"dTpwYXNz"}}}`) // u:pass
	if got, err := login("one.test"); err != nil || got.Username != "u" || got.Password != "pass" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := login("other.test"); err != nil || got != (authn.AuthConfig{}) {
		t.Errorf("another registry: %+v, %v", got, err)
	}
	write(`{"auths":{"one.test":{"username":"v","password":"new"}}}`)
	if got, err := login("one.test"); err != nil || got.Username != "v" || got.Password != "new" {
		t.Errorf("after a renewal: %+v, %v", got, err)
	}
	// What kubelets take for a registry's login.
	for _, c := range []struct{ server, host string }{
		{"https://one.test", "one.test"}, {"https://one.test/", "one.test"}, {"one.test/v1/", "one.test"}, {"http://one.test:5000/v2/", "one.test:5000"},
		{"https://index.docker.io/v1/", "docker.io"}, {"index.docker.io", "docker.io"}, {"https://index.docker.io", "docker.io"}, {"docker.io", "docker.io"},
	} {
		write(`{"auths":{"other.test":{"auth":"eDp5"},"` + c.server + `":{"username":"u","password":"pass","auth":"dTpwYXNz"}}}`)
		if got, err := login(c.host); err != nil || got.Username != "u" || got.Password != "pass" {
			t.Errorf("%s for %s: %+v, %v", c.server, c.host, got, err)
		}
		if got, err := login("evil.test"); err != nil || got != (authn.AuthConfig{}) {
			t.Errorf("%s: another registry: %+v, %v", c.server, got, err)
		}
	}
	// Docker keeps a refresh token beside the login.
	write(`{"auths":{"https://index.docker.io/v1/":{"auth":"dTpwYXNz"},"https://index.docker.io/v1/refresh-token":{"auth":"eDp5"}}}`)
	if got, err := login("docker.io"); err != nil || got.Username != "u" {
		t.Errorf("beside a refresh token: %+v, %v", got, err)
	}
	write(`{"auths": hunter2`)
	if _, err := login("one.test"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a broken file: %v", err)
	}
	if auth, err := Keychain("").Resolve(nil); err != nil || auth != authn.Anonymous {
		t.Errorf("without a file: %v, %v", auth, err)
	}
}
