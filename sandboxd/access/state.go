package access

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/users"
)

// Options are the settings of a State.
type Options struct {
	// Users finds users; its zero value reads /etc.
	Users users.Database
	// DefaultUser is the user of a request that names none, if /init set none. Empty means
	// "user" if that exists and sandboxd may act as it, else the user that sandboxd runs as.
	DefaultUser string
	// InitKey is the public key with which /init must be signed, and PodUID the pod that
	// the signature must name. With a nil key any client may call /init, once.
	InitKey ed25519.PublicKey
	PodUID  string
	// Open allows requests before /init. For tests and debugging.
	Open bool
	// SetClock sets the clock of the machine. If it is nil, /init does not set the clock.
	SetClock func(time.Time) error
	// Trust is given the authorities, as PEM, that an accepted /init has; it may be nil. It does
	// not fail the /init: what does not trust an authority connects to nothing that shows it.
	Trust func(authorities []byte)
	// Begins is called before the first /init takes effect, which is refused if it returns an
	// error. It must not call the State. It may be nil.
	Begins func() error
	// Restored returns the ID of the restore from which the files come; empty if there was
	// none. It may be nil.
	Restored func() string
	// Now is time.Now if nil.
	Now func() time.Time
}

// ordinaryUser is the default user where neither /init nor the settings name one, as in E2B's
// sandboxes.
const ordinaryUser = "user"

// State has what /init set. It is safe for concurrent use.
type State struct {
	options Options
	nonce   string // a signature of /init must include it
	// ordinary: there has been an ordinaryUser.
	ordinary atomic.Bool

	mu      sync.RWMutex // guards all below
	claimed bool
	claim   claim
	clock   time.Time // the latest timestamp of /init
}

// claim is what one /init fixes for the life of the sandbox.
type claim struct {
	AccessToken    string            `json:"accessToken"`
	EnvVars        map[string]string `json:"envVars"`
	DefaultUser    string            `json:"defaultUser"`
	DefaultWorkdir string            `json:"defaultWorkdir"`
}

func (c claim) equal(other claim) bool {
	return same(c.AccessToken, other.AccessToken) && maps.Equal(c.EnvVars, other.EnvVars) &&
		c.DefaultUser == other.DefaultUser && c.DefaultWorkdir == other.DefaultWorkdir
}

// New returns a state before /init.
func New(options Options) *State {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &State{options: options, nonce: rand.Text()}
}

// Env returns a copy of the environment that /init set.
func (s *State) Env() map[string]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	env := map[string]string{}
	maps.Copy(env, s.claim.EnvVars)
	return env
}

// Workdir returns the default working directory, or nothing.
func (s *State) Workdir() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.claim.DefaultWorkdir
}

// Own returns the user that sandboxd runs as.
func (s *State) Own() users.User { return s.options.Users.Own() }

// Names returns the names of a user and a group.
func (s *State) Names(uid, gid uint32) (user, group string) {
	return s.options.Users.Name(uid), s.options.Users.GroupName(gid)
}

// User returns the user that a request's Basic authorization names (the password is
// ignored), or the default user. Its errors are Connect errors.
func (s *State) User(header http.Header) (users.User, error) {
	name := ""
	if encoded, basic := cutScheme(header.Get("Authorization")); basic {
		text, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return users.User{}, connect.NewError(connect.CodeUnauthenticated, errors.New("invalid Basic authorization"))
		}
		name, _, _ = strings.Cut(string(text), ":")
	}
	u, err := s.Named(name)
	switch {
	case errors.Is(err, users.ErrNotPermitted):
		return u, connect.NewError(connect.CodePermissionDenied, err)
	case errors.Is(err, users.ErrUnknown):
		return u, connect.NewError(connect.CodeUnauthenticated, err)
	case err != nil: // passwd cannot be read at the moment
		return u, connect.NewError(connect.CodeUnavailable, err)
	}
	return u, nil
}

func cutScheme(authorization string) (string, bool) {
	scheme, rest, found := strings.Cut(authorization, " ")
	return strings.TrimSpace(rest), found && strings.EqualFold(scheme, "basic")
}

// Named returns a user by name; the empty name is the default user. That is sandboxd's own
// user, which may be root, only while there has never been a user "user": otherwise a program
// could become root by having passwd unreadable or incomplete for a moment.
func (s *State) Named(name string) (users.User, error) {
	if name == "" {
		s.mu.RLock()
		name = s.claim.DefaultUser
		s.mu.RUnlock()
	}
	if name == "" {
		name = s.options.DefaultUser
	}
	if name != "" {
		return s.options.Users.Lookup(name)
	}
	u, err := s.options.Users.Lookup(ordinaryUser)
	switch {
	case err == nil:
		s.ordinary.Store(true)
		return u, nil
	case s.ordinary.Load(), !errors.Is(err, users.ErrUnknown) && !errors.Is(err, users.ErrNotPermitted):
		return users.User{}, err
	}
	return s.options.Users.Own(), nil
}

// init applies one /init. A second /init with the same content changes nothing but the
// clock, so that a gateway may repeat a call whose answer was lost.
func (s *State) init(c claim, timestamp time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claimed && !s.claim.equal(c) {
		return errors.New("the sandbox was initialised otherwise already")
	}
	if !s.claimed && s.options.Begins != nil {
		if err := s.options.Begins(); err != nil {
			return err
		}
	}
	s.claimed, s.claim = true, c
	if s.options.SetClock == nil || !timestamp.After(s.clock) {
		return nil // a repeated old request must not turn the clock back
	}
	if err := s.options.SetClock(timestamp); err != nil {
		return fmt.Errorf("setting the clock: %w", err)
	}
	s.clock = timestamp
	return nil
}

// token returns the access token, and whether requests are allowed yet.
func (s *State) token() (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.claim.AccessToken, s.claimed || s.options.Open
}
