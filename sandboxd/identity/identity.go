// Package identity tells the programs of a sandbox which sandbox they are in, as
// E2B's envd does: by the variables E2B_SANDBOX, E2B_SANDBOX_ID and E2B_TEMPLATE_ID
// and by a file of each in /run/e2b.
//
// It is no proof of anything: what runs in the sandbox may change both. Package
// sandboxd asks it for the variables of a command and hands it what the control
// plane says at /init.
package identity

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"
)

// The headers of a request to /init that name the sandbox. They are no part of what
// /init fixes: a gateway of an older version does not send them, and its /init and
// that of a newer one must not contradict each other.
const (
	SandboxHeader  = "Sandlane-Sandbox-Id"
	TemplateHeader = "Sandlane-Template-Id"
)

// The variables, and with a dot before them the names of the files.
const (
	envSandbox    = "E2B_SANDBOX"
	envSandboxID  = "E2B_SANDBOX_ID"
	envTemplateID = "E2B_TEMPLATE_ID"
)

// Identity is safe for concurrent use.
type Identity struct {
	dir string // of the files; empty writes none

	mu  sync.Mutex        // guards ids, and keeps the files of two calls apart
	ids map[string]string // by variable; what was set once stays
}

// New returns an identity that knows of no sandbox yet. The folder for the files is
// made when the first is written; if it is empty, none is.
func New(dir string) *Identity { return &Identity{dir: dir, ids: map[string]string{}} }

// Write writes the file that says that this is a sandbox.
func (i *Identity) Write() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.write(envSandbox, "true", 0o444)
}

// Learn takes over what the header of an accepted /init says, and writes its files.
// What is known already stays as it is.
func (i *Identity) Learn(header http.Header) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	var failed []error
	for variable, name := range map[string]string{envSandboxID: SandboxHeader, envTemplateID: TemplateHeader} {
		if value := header.Get(name); value != "" && i.ids[variable] == "" {
			i.ids[variable] = value
			failed = append(failed, i.write(variable, value, 0o644))
		}
	}
	return errors.Join(failed...)
}

// write writes one file. Call with mu held.
func (i *Identity) write(variable, value string, mode os.FileMode) error {
	if i.dir == "" {
		return nil
	}
	err := os.MkdirAll(i.dir, 0o755)
	if err == nil {
		path := filepath.Join(i.dir, "."+variable)
		_ = os.Remove(path) // one that is there may not be writable, or be a link
		err = os.WriteFile(path, []byte(value), mode)
	}
	if err != nil {
		return fmt.Errorf("writing the file of %s: %w", variable, err)
	}
	return nil
}

// Env puts the variables around those that /init set, in E2B's order: E2B_SANDBOX
// may be replaced by /init, the IDs may not.
func (i *Identity) Env(ofInit map[string]string) map[string]string {
	env := map[string]string{envSandbox: "true"}
	maps.Copy(env, ofInit)
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.Copy(env, i.ids)
	return env
}
