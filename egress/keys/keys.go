// Package keys keeps the keys of egress processes in Kubernetes: the pair that values are
// sealed to, and the authority of the certificates for hosts with rules. Egress processes
// [Load] them, and make them at the first start; what seals values or hands the authority's
// certificate to sandboxes reads their public part with [ReadPublic].
//
// The Secret has the private part, for egress processes alone; a ConfigMap of the same name
// the public one. Package egress/seal seals and opens.
package keys

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/credentials/certificate"
	"github.com/sandlane/sandlane/egress/seal"
)

// name is that of the Secret and of the ConfigMap. Keys of both: the pair, of which the
// ConfigMap has the public key, and the authority.
const (
	name = "egress-keys"

	dataSeal   = "seal"
	dataCACert = "ca.crt"
	dataCAKey  = "ca.key"
)

// authorityLife is how long the authority is good.
const authorityLife = 10 * 365 * 24 * time.Hour

// ErrLost means that the Secret is gone and values may be sealed to it.
var ErrLost = errors.New("the keys of egress are lost")

// Keys are what egress processes have. They are immutable.
type Keys struct {
	Opener    *seal.Opener
	Authority *certificate.Pair
}

// Public is what others may know.
type Public struct {
	Seal *seal.PublicKey
	// Authority is the authority's certificate, as PEM.
	Authority []byte
}

// Load reads the keys of the namespace, the system's own, and makes them first if there are
// none. Several processes may do so at once: all end up with the same. It makes none where
// the ConfigMap shows that there were others (ErrLost). The client must not read from a
// cache.
func Load(ctx context.Context, c client.Client, namespace string) (*Keys, error) {
	keys, err := load(ctx, c, client.ObjectKey{Namespace: namespace, Name: name})
	if err != nil {
		return nil, fmt.Errorf("load the keys of egress: %w", err)
	}
	return keys, nil
}

func load(ctx context.Context, c client.Client, at client.ObjectKey) (*Keys, error) {
	published, err := found(c.Get(ctx, at, &corev1.ConfigMap{}))
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{}
	there, err := found(c.Get(ctx, at, secret))
	switch {
	case err != nil:
		return nil, err
	case !there && published:
		return nil, fmt.Errorf("%w: the Secret %s is not there, but the ConfigMap %s is: restore the Secret, or delete the ConfigMap and set all rules and secrets anew", ErrLost, at, at)
	case !there:
		data, err := newKeys()
		if err != nil {
			return nil, err
		}
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}, Data: data}
		if err = c.Create(ctx, secret); apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, at, secret)
		}
		if err != nil {
			return nil, err
		}
	}
	keys, public, err := parse(secret.Data)
	if err != nil {
		return nil, fmt.Errorf("Secret %s: %w", at, err)
	}
	if !published {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name},
			BinaryData: map[string][]byte{dataSeal: public}, Data: map[string]string{dataCACert: string(secret.Data[dataCACert])},
		}
		if err := c.Create(ctx, m); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("publish them in the ConfigMap %s: %w", at, err)
		}
	}
	return keys, nil
}

// found turns the error of a read into whether the object is there.
func found(err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// newKeys makes the data of a Secret.
func newKeys() (map[string][]byte, error) {
	private, _, err := seal.NewKey()
	if err != nil {
		return nil, err
	}
	from, until := certificate.Validity(time.Now(), authorityLife)
	authority, err := certificate.New(&x509.Certificate{
		Subject: pkix.Name{CommonName: "sandlane egress"}, NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	if err != nil {
		return nil, err
	}
	cert, key, err := authority.PEM()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{dataSeal: private, dataCACert: cert, dataCAKey: key}, nil
}

// parse reads a Secret's data.
func parse(data map[string][]byte) (keys *Keys, public []byte, err error) {
	if public, err = seal.PublicOf(data[dataSeal]); err != nil {
		return nil, nil, err
	}
	opener, err := seal.NewOpener(data[dataSeal])
	if err != nil {
		return nil, nil, err
	}
	cert, err := certificate.ParseCert(dataCACert, data[dataCACert])
	if err != nil {
		return nil, nil, err
	}
	key, err := certificate.ParseKey(dataCAKey, data[dataCAKey])
	if err != nil {
		return nil, nil, err
	}
	authority, err := certificate.Join(dataCACert, cert, dataCAKey, key)
	if err != nil {
		return nil, nil, err
	}
	return &Keys{Opener: opener, Authority: authority}, public, nil
}

// ErrNone means that no egress process has run yet.
var ErrNone = errors.New("there are no keys of egress: the first egress process that starts makes them")

// ReadPublic reads the public part.
func ReadPublic(ctx context.Context, c client.Reader, namespace string) (*Public, error) {
	at := client.ObjectKey{Namespace: namespace, Name: name}
	m := &corev1.ConfigMap{}
	there, err := found(c.Get(ctx, at, m))
	if err == nil && !there {
		err = ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("read the public keys of egress: %w", err)
	}
	key, err := seal.ParsePublicKey(m.BinaryData[dataSeal])
	if err == nil {
		_, err = certificate.ParseCert(dataCACert, []byte(m.Data[dataCACert]))
	}
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", at, err)
	}
	return &Public{Seal: key, Authority: []byte(m.Data[dataCACert])}, nil
}
