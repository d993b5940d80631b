// Package identity tells the programs of a sandbox which sandbox they are in, as
// E2B's envd does: by the variables E2B_SANDBOX, E2B_SANDBOX_ID and E2B_TEMPLATE_ID
// and by a file of each in /run/e2b. New makes an Identity; package sandboxd calls Learn
// with the headers of /init, and Env for the variables of a command.
//
// Neither variables nor files prove anything: programs in the sandbox may change both.
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

// The headers of a request to /init that name the sandbox; its signature covers them.
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

// Identity has the names of one sandbox. It is safe for concurrent use.
type Identity struct {
	dir string // of the files; empty writes none

	mu  sync.Mutex        // guards ids, and keeps the files of two calls apart
	ids map[string]string // by variable; a value that is set never changes
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

// Learn takes the IDs from the headers of an accepted /init, and writes their files. IDs that
// are known already stay as they are.
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
		_ = os.Remove(path) // an existing file may not be writable, or may be a link
		err = os.WriteFile(path, []byte(value), mode)
	}
	if err != nil {
		return fmt.Errorf("writing the file of %s: %w", variable, err)
	}
	return nil
}

// Env returns the variables of /init and those of the identity. As in E2B's envd, /init may
// replace E2B_SANDBOX but not the IDs.
func (i *Identity) Env(ofInit map[string]string) map[string]string {
	env := map[string]string{envSandbox: "true"}
	maps.Copy(env, ofInit)
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.Copy(env, i.ids)
	return env
}
