package local

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/local/node"
	"github.com/sandlane/sandlane/local/registry"
)

// The registry of templates:
//
// `up` itself serves it on loopback, where pods do not come: they have networks of their own.
// Without these there is none, as images of registries cannot run then. Its content lives as
// long as the cluster whose TemplateBuilds name it; its token is new each time.

// registryPath is before the names of repositories.
const registryPath = "templates"

// templates is that registry.
type templates struct {
	address  string // empty: there is none
	registry *registry.Registry
	server   *http.Server
	done     chan struct{}
}

func (s state) registryDir() string    { return s.path("registry") }
func (s state) registryLogins() string { return s.path("cluster", "registry.json") }

// prepareRegistry writes the logins of a registry at a port.
func (u *up) prepareRegistry(isolation node.Isolation, port int) error {
	if err := os.RemoveAll(u.registryDir()); err != nil {
		return fmt.Errorf("empty the registry of templates: %w", err)
	}
	if isolation != node.IsolationFull {
		return nil
	}
	u.templates.address = loopback(port)
	token := rand.Text()
	served, err := registry.Open(u.registryDir(), token)
	if err != nil {
		return err
	}
	u.templates.registry = served
	u.templates.server = &http.Server{Handler: served.Handler(), ReadHeaderTimeout: 10 * time.Second}
	auth := base64.StdEncoding.EncodeToString([]byte(registry.User + ":" + token))
	b, err := json.Marshal(map[string]any{"auths": map[string]any{u.templates.address: map[string]string{"auth": auth}}})
	if err != nil {
		return fmt.Errorf("write the logins of the registry: %w", err)
	}
	return writeFile(u.registryLogins(), b, 0o600)
}

// startRegistry serves it until stopRegistry.
func (u *up) startRegistry(ctx context.Context) error {
	if u.templates.server == nil {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", u.templates.address)
	if err != nil {
		return fmt.Errorf("serve the registry of templates: %w", err)
	}
	u.templates.done = make(chan struct{})
	go func() {
		defer close(u.templates.done)
		if err := u.templates.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			u.o.Log.Error("the registry of templates failed", "err", err)
		}
	}()
	return nil
}

const (
	// collectEvery is the time between two collections of the registry, and unusedFor how long what
	// no build holds is kept for builds to come.
	collectEvery, unusedFor = time.Hour, 24 * time.Hour
)

// collectRegistry removes from the registry what is unused, until ctx ends.
func (u *up) collectRegistry(ctx context.Context) {
	if u.templates.registry == nil {
		return
	}
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		held, err := heldImages(ctx, u.api)
		if err == nil {
			err = u.templates.registry.Collect(time.Now().Add(-unusedFor), func(digest string) bool { return held[digest] })
		}
		if err != nil && ctx.Err() == nil {
			u.o.Log.Warn("the registry of templates could not be collected; the next try is in an hour", "err", err)
		}
	}
}

// heldImages are the digests of the images of builds.
func heldImages(ctx context.Context, api client.Client) (map[string]bool, error) {
	var all v1alpha1.TemplateBuildList
	if err := api.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list builds: %w", err)
	}
	held := map[string]bool{}
	for i := range all.Items {
		for _, image := range []string{all.Items[i].Status.Base, all.Items[i].Status.Image} {
			if _, digest, found := strings.Cut(image, "@"); found {
				held[digest] = true
			}
		}
	}
	return held, nil
}

func (u *up) stopRegistry() {
	if u.templates.done != nil {
		_ = u.templates.server.Close()
		<-u.templates.done
	}
}

// registryName is the flag --template-registry; empty: there is none.
func (t *templates) registryName() string {
	if t.address == "" {
		return ""
	}
	return t.address + "/" + registryPath
}
