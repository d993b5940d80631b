package local

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sandlane/sandlane/local/authority"
)

// TLS:
//
// With Options.TLS all Envoys show one certificate, for Options.Domain. It and its
// key are new with each `up` and go with it (cluster/pki); its 397 days are longer
// than any `up` lives. The authority that signs it stays, so that what people told
// their programs to trust is good for the next `up` too: <state>/tls/<domain> has it
// (local/authority says in which states, and what is refused), and
// <state>/tls/node/<domain>.cjs, written by each `up`, lets Node find the domain. An
// authority that cannot be used ends `up` before anything is started.

// DefaultDomain is the one of `up --tls`. Names below .localhost are this machine
// for many programs without asking a name server.
const DefaultDomain = "sandlane.localhost"

// Files of the certificate that the Envoys show.
const (
	gatewayCert = "gateway.crt"
	gatewayKey  = "gateway.key"
)

// longestDomain leaves room for <port>-<ID> before the domain: 253 bytes in all,
// 63 for the first label and its dot.
const longestDomain = 253 - 64

var domainForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$`)

// validateTLS reports what of --tls and --domain cannot work.
func (o *Options) validateTLS() error {
	if !o.TLS {
		if o.Domain != "" {
			return fmt.Errorf("--domain %s: needs --tls", o.Domain)
		}
		return nil
	}
	if o.Domain == "localhost" {
		return errors.New("--domain localhost: clients refuse a certificate for *.localhost; choose a name below it, such as " + DefaultDomain)
	}
	_, notAddress := netip.ParseAddr(o.Domain)
	if len(o.Domain) > longestDomain || !domainForm.MatchString(o.Domain) || notAddress == nil {
		return fmt.Errorf("--domain %q: must be a name of two labels or more, in lower case and without a port, such as %s", o.Domain, DefaultDomain)
	}
	return nil
}

func (s state) tlsDir(domain string) string      { return s.path("tls", domain) }
func (s state) nodeResolve(domain string) string { return s.path("tls", "node", domain+".cjs") }

// ensureAuthority makes sure that there is an authority to sign with, before
// anything is started.
func (u *up) ensureAuthority() error {
	a, fresh, err := authority.Ensure(u.tlsDir(u.o.Domain), u.o.Domain, time.Now())
	if err != nil {
		return err
	}
	if fresh {
		u.o.Progress("made a certificate authority for " + u.o.Domain + ": " + authority.CertFile(u.tlsDir(u.o.Domain)))
	}
	u.authority = a
	return nil
}

// writeTLS makes the certificate of this run, and what Node needs. That stays
// when the run is over: a variable that names a file which is gone would keep any
// node from starting.
func (u *up) writeTLS() error {
	cert, key, err := u.authority.Certificate(time.Now())
	if err != nil {
		return err
	}
	if err := writeFile(u.pki(gatewayCert), cert, 0o600); err != nil {
		return err
	}
	if err := writeFile(u.pki(gatewayKey), key, 0o600); err != nil {
		return err
	}
	return writeFile(u.nodeResolve(u.o.Domain), resolveScript(u.o.Domain), 0o600)
}

//go:embed resolve.cjs
var resolveTemplate string

// resolveScript makes Node find a domain here; a domain has no character that
// means something in a string of JavaScript.
func resolveScript(domain string) []byte {
	return []byte(strings.ReplaceAll(resolveTemplate, "DOMAIN", domain))
}

// hostOf is a domain with its port, as it stands in a URL. https has 443.
func hostOf(domain string, port int) string {
	if port == 443 {
		return domain
	}
	return domain + ":" + strconv.Itoa(port)
}
