package credentials

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A link opens a port of a sandbox in a browser, which can send neither a token nor an API key.
//
// # States
//
//   - issued: somebody who may read the seed and make Leases beside it has signed a ticket for one
//     port of one Sandbox object, and has made the Lease that the ticket names. The ticket stands in
//     the link.
//   - used: a gateway has found the signature valid, and has deleted the Lease: of all gateways one
//     alone can. It answers with a cookie for that port.
//   - over: a minute after the Lease was made. A Lease whose ticket was not used goes with its
//     Sandbox.
//
// The cookie is valid as long as the Sandbox object is there, as the traffic token is.
//
// # What is tried, and what stops it
//
//   - A link that is read later, in a history or a log: it is used, or over.
//   - One link at two gateways at once: the Lease is deleted once.
//   - A cookie or ticket for another sandbox, another port or a later sandbox of the ID: ID, UID and
//     port are signed.
//   - A ticket as a cookie, or a cookie as a ticket: each kind has a prefix.
//   - A link to sandboxd's port, which asks for a token of its own: nothing is valid for it.
//   - A Lease that somebody else makes: no ticket with its name is signed.
const (
	ticketPrefix = "port-ticket-"
	cookiePrefix = "port-cookie-"
	leasePrefix  = "link-"

	// ticketLife is how long a ticket is valid.
	ticketLife = time.Minute
)

// Errors of links.
var (
	// ErrLink says that a ticket is used, over, or not one of the port.
	ErrLink = errors.New("the link was used, is over, or leads elsewhere")
	// ErrSandboxdPort says that no link leads to the port.
	ErrSandboxdPort = errors.New("port 49983 is sandboxd's, which asks for its own token: no link leads there")
)

// Port is a port of the sandbox with that ID and UID.
type Port struct {
	ID     string
	UID    types.UID
	Number uint16
}

// message is what is signed for a port. IDs and UIDs have no slash.
func (p Port) message() string {
	return p.ID + "/" + string(p.UID) + "/" + strconv.Itoa(int(p.Number))
}

// IssueTicket makes a ticket for a port, with its Lease in the system's namespace.
func (t *Tokens) IssueTicket(ctx context.Context, p Port) (string, error) {
	if p.Number == v1alpha1.SandboxdPort {
		return "", ErrSandboxdPort
	}
	name := strings.ToLower(rand.Text())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: t.namespace, Name: leasePrefix + name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Sandbox", Name: p.ID, UID: p.UID}},
	}}
	if err := t.api.Create(ctx, lease); err != nil {
		return "", fmt.Errorf("make the Lease of a link: %w", err)
	}
	// By the API server's clock: that of this machine may be an hour ahead.
	end := strconv.FormatInt(lease.CreationTimestamp.Add(ticketLife).Unix(), 10)
	return strings.Join([]string{name, end, string(p.UID), t.ticketCode(p, name, end)}, "."), nil
}

func (t *Tokens) ticketCode(p Port, name, end string) string {
	return t.derive(ticketPrefix + p.message() + "/" + name + "/" + end)
}

// UseTicket returns the cookie for a port of the sandbox with that ID, and sees to it that no
// other call does. It returns ErrLink if the ticket is not valid.
func (t *Tokens) UseTicket(ctx context.Context, id string, port uint16, ticket string, now time.Time) (cookie string, err error) {
	parts := strings.Split(ticket, ".")
	if len(parts) != 4 {
		return "", ErrLink
	}
	name, end, p := parts[0], parts[1], Port{id, types.UID(parts[2]), port}
	seconds, err := strconv.ParseInt(end, 10, 64)
	if err != nil || !hmac.Equal([]byte(t.ticketCode(p, name, end)), []byte(parts[3])) || !now.Before(time.Unix(seconds, 0)) || port == v1alpha1.SandboxdPort {
		return "", ErrLink
	}
	err = t.api.Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: leasePrefix + name}})
	if apierrors.IsNotFound(err) {
		return "", ErrLink
	}
	if err != nil {
		return "", fmt.Errorf("use a link: %w", err)
	}
	return t.cookie(p), nil
}

func (t *Tokens) cookie(p Port) string { return t.derive(cookiePrefix + p.message()) }

// ValidPortCookie compares a cookie with that of the port of the sandbox with this ID and UID, in
// constant time. None is valid for sandboxd's port, nor without a UID.
func (t *Tokens) ValidPortCookie(id string, uid types.UID, port uint16, cookie string) bool {
	p := Port{id, uid, port}
	return p.UID != "" && p.Number != v1alpha1.SandboxdPort && hmac.Equal([]byte(t.cookie(p)), []byte(cookie))
}
