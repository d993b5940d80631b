package issuer

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/credentials/certificate"
)

// Names of the Secrets.
const (
	AuthoritySecret  = "sandlane-control-ca"
	GatewaySecret    = "sandlane-control-gateway"
	ControllerSecret = "sandlane-control-controller"
	EgressSecret     = "sandlane-control-egress"
)

// Keys of the Secrets. The authority's has no KeyCA.
const (
	KeyCert    = "tls.crt"
	KeyPrivate = "tls.key"
	KeyCA      = "ca.crt"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 90 * 24 * time.Hour
	// attempts bounds how often a Secret is read again that another Ensure writes.
	attempts = 5
)

// side is one of the two that show a certificate.
type side struct {
	secret, name string
	usage        x509.ExtKeyUsage
}

// Issuer makes certificates for the identities of the two sides.
type Issuer struct {
	// Client reads live. Namespace is the system namespace.
	Client    client.Client
	Namespace string
	// Gateway and Controller are the names in the certificates.
	Gateway, Controller string
	// Egress is that of egress processes; empty is none.
	Egress string
	// Labels are those of Secrets that are made.
	Labels map[string]string
	// Now is the time; default time.Now.
	Now func() time.Time
}

// Ensure makes what is missing or runs out, and returns the names of the Secrets
// that it wrote.
func (i *Issuer) Ensure(ctx context.Context) ([]string, error) {
	if i.Now == nil {
		i.Now = time.Now
	}
	sides := []side{
		{GatewaySecret, i.Gateway, x509.ExtKeyUsageServerAuth},
		{ControllerSecret, i.Controller, x509.ExtKeyUsageClientAuth},
	}
	if i.Egress != "" {
		sides = append(sides, side{EgressSecret, i.Egress, x509.ExtKeyUsageServerAuth})
	}
	var wrote []string
	ca, made, err := i.authority(ctx, sides)
	if err != nil {
		return nil, err
	}
	if made {
		wrote = append(wrote, AuthoritySecret)
	}
	for _, s := range sides {
		made, err := i.certificate(ctx, s, ca)
		if err != nil {
			return wrote, fmt.Errorf("certificate in the Secret %s: %w", s.secret, err)
		}
		if made {
			wrote = append(wrote, s.secret)
		}
	}
	return wrote, nil
}

// authority returns the authority, and whether it was made now.
func (i *Issuer) authority(ctx context.Context, sides []side) (*certificate.Pair, bool, error) {
	made, suspected := false, false
	for range attempts {
		secret, err := i.read(ctx, AuthoritySecret)
		switch {
		case err != nil:
			return nil, false, err
		case secret != nil:
			ca, err := decodePair(secret.Data[KeyCert], secret.Data[KeyPrivate])
			if err == nil && !i.Now().Before(ca.Cert.NotAfter) {
				err = errors.New("it has run out: delete all Secrets of the control plane, run this again, and restart gateways, controllers and egress processes")
			}
			if err != nil {
				return nil, false, fmt.Errorf("authority in the Secret %s: %w", AuthoritySecret, err)
			}
			return ca, made, nil
		}
		orphan, err := i.orphan(ctx, sides)
		switch {
		case err != nil:
			return nil, false, err
		case orphan != "" && suspected:
			return nil, false, fmt.Errorf("the Secret %s is gone, and %s has a certificate of it: restore it, or delete all others of the control plane as well",
				AuthoritySecret, orphan)
		case orphan != "":
			// Another may have made both since the authority was looked for, the authority
			// first: so it is looked for once more.
			suspected = true
			continue
		}
		data, err := newAuthority(i.Now())
		if err != nil {
			return nil, false, err
		}
		if made, err = i.write(ctx, nil, AuthoritySecret, data); err != nil {
			return nil, false, err
		}
	}
	return nil, false, fmt.Errorf("the Secret %s is written by others all the time", AuthoritySecret)
}

// orphan returns the name of a side's Secret that is there, empty if none is.
func (i *Issuer) orphan(ctx context.Context, sides []side) (string, error) {
	for _, s := range sides {
		if leaf, err := i.read(ctx, s.secret); err != nil || leaf != nil {
			return s.secret, err
		}
	}
	return "", nil
}

// certificate makes a side's certificate unless it is good for long enough.
func (i *Issuer) certificate(ctx context.Context, s side, ca *certificate.Pair) (bool, error) {
	for range attempts {
		secret, err := i.read(ctx, s.secret)
		if err != nil {
			return false, err
		}
		if secret != nil && i.good(secret, s, ca.Cert) {
			return false, nil
		}
		data, err := newLeaf(s, ca, i.Now())
		if err != nil {
			return false, err
		}
		wrote, err := i.write(ctx, secret, s.secret, data)
		if wrote || err != nil {
			return wrote, err
		}
	}
	return false, errors.New("it is written by others all the time")
}

// good reports whether a certificate serves for a third of its life more.
func (i *Issuer) good(secret *corev1.Secret, s side, ca *x509.Certificate) bool {
	pair, err := decodePair(secret.Data[KeyCert], secret.Data[KeyPrivate])
	if err != nil || string(secret.Data[KeyCA]) != string(certificate.PEM(ca)) {
		return false
	}
	cert := pair.Cert
	return cert.CheckSignatureFrom(ca) == nil && slices.Equal(cert.DNSNames, []string{s.name}) &&
		slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{s.usage}) && i.Now().Add(leafLife/3).Before(cert.NotAfter) && !i.Now().Before(cert.NotBefore)
}

// read returns a Secret, nil if there is none.
func (i *Issuer) read(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := i.Client.Get(ctx, types.NamespacedName{Namespace: i.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the Secret %s: %w", name, err)
	}
	return secret, nil
}

// write makes a Secret, or replaces the data of the one that was read. It returns
// false without an error if another has written in between.
func (i *Issuer) write(ctx context.Context, old *corev1.Secret, name string, data map[string][]byte) (bool, error) {
	var err error
	if old == nil {
		err = i.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: name, Labels: i.Labels}, Type: corev1.SecretTypeOpaque, Data: data,
		})
	} else {
		changed := old.DeepCopy() // with the version that was read
		changed.Data = data
		err = i.Client.Update(ctx, changed)
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write the Secret %s: %w", name, err)
	}
	return true, nil
}
