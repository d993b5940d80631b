// Package keys keeps the keys of egress processes in Kubernetes: the pair that values are
// sealed to, and the authority of the certificates for hosts with rules. Egress processes
// [Follow] them, and make them at the first start; what seals values or hands the authority's
// certificate to sandboxes reads their public part with [ReadPublic]. An administrator
// replaces them with [Rotate].
//
// The Secret has the private part, for egress processes alone; a ConfigMap of the same name
// the public one. Package egress/seal seals and opens.
//
// # Rotation
//
// Beside the current pair and authority there are the next ones from the start. A rotation
// makes them the current ones, so:
//
//   - a process that has read the keys before opens what is sealed to the new pair, and all
//     former pairs are kept for what is sealed to them; what is sealed to a pair that it does
//     not know has it read the keys again;
//   - sandboxes trust the current, the next and the former authority: those that began before
//     trust what a process signs that has read the keys since, and the other way round.
//
// A [Follower] reads the keys every ten seconds: only a second rotation within that time has
// sandboxes see certificates that they do not trust, until then. A sandbox that outlives two
// rotations needs its rules written again.
package keys

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/credentials/certificate"
	"github.com/sandlane/sandlane/egress/seal"
)

// name is that of the Secret and of the ConfigMap. Keys of both: the pair, of which the
// ConfigMap has the public key, and the authority, of which it has all certificates that are
// trusted. Former pairs have a number behind dataSeal.
const (
	name = "egress-keys"

	dataSeal       = "seal"
	dataSealNext   = "seal.next"
	dataSealFormer = "seal.former."
	dataCACert     = "ca.crt"
	dataCAKey      = "ca.key"
	dataCANextCert = "ca.next.crt"
	dataCANextKey  = "ca.next.key"
	dataCAFormer   = "ca.former.crt"
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
	// Authority has the certificates of the authority that sandboxes trust, as PEM.
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
	keys, err := parse(secret.Data)
	if err != nil {
		return nil, fmt.Errorf("Secret %s: %w", at, err)
	}
	if !published {
		m, err := publication(at, secret.Data)
		if err != nil {
			return nil, fmt.Errorf("Secret %s: %w", at, err)
		}
		if err := c.Create(ctx, m); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("publish them in the ConfigMap %s: %w", at, err)
		}
	}
	return keys, nil
}

// Rotate makes the next keys the current ones, and new next ones. If it fails after its first
// write, the next call completes that rotation and begins no other. The client must not read
// from a cache.
func Rotate(ctx context.Context, c client.Client, namespace string) error {
	if err := rotate(ctx, c, client.ObjectKey{Namespace: namespace, Name: name}); err != nil {
		return fmt.Errorf("rotate the keys of egress: %w", err)
	}
	return nil
}

func rotate(ctx context.Context, c client.Client, at client.ObjectKey) error {
	secret, published := &corev1.Secret{}, &corev1.ConfigMap{}
	for _, object := range []client.Object{secret, published} {
		there, err := found(c.Get(ctx, at, object))
		if err != nil {
			return err
		}
		if !there {
			return ErrNone
		}
	}
	m, err := publication(at, secret.Data)
	if err != nil {
		return fmt.Errorf("Secret %s: %w", at, err)
	}
	if bytes.Equal(m.BinaryData[dataSeal], published.BinaryData[dataSeal]) { // else an earlier rotation is to be completed
		if err := replaceKeys(secret.Data); err != nil {
			return err
		}
		if m, err = publication(at, secret.Data); err != nil {
			return err
		}
		if err := c.Update(ctx, secret); err != nil { // of the version that was read
			return err
		}
	}
	m.ResourceVersion = published.ResourceVersion
	if err := c.Update(ctx, m); err != nil {
		return fmt.Errorf("publish them in the ConfigMap %s: %w", at, err)
	}
	return nil
}

// replaceKeys makes the next keys of a Secret's data the current ones.
func replaceKeys(data map[string][]byte) error {
	fresh, err := newPair()
	if err != nil {
		return err
	}
	n := 0
	for data[dataSealFormer+strconv.Itoa(n)] != nil {
		n++
	}
	data[dataSealFormer+strconv.Itoa(n)], data[dataCAFormer] = data[dataSeal], data[dataCACert]
	data[dataSeal], data[dataCACert], data[dataCAKey] = data[dataSealNext], data[dataCANextCert], data[dataCANextKey]
	data[dataSealNext], data[dataCANextCert], data[dataCANextKey] = fresh.seal, fresh.cert, fresh.key
	return nil
}

// publication is the ConfigMap with what others may know of a Secret's data.
func publication(at client.ObjectKey, data map[string][]byte) (*corev1.ConfigMap, error) {
	public, err := seal.PublicOf(data[dataSeal])
	if err != nil {
		return nil, err
	}
	trusted := slices.Concat(data[dataCACert], data[dataCANextCert], data[dataCAFormer])
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name},
		BinaryData: map[string][]byte{dataSeal: public}, Data: map[string]string{dataCACert: string(trusted)},
	}, nil
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
	now, err := newPair()
	if err != nil {
		return nil, err
	}
	next, err := newPair()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		dataSeal: now.seal, dataCACert: now.cert, dataCAKey: now.key,
		dataSealNext: next.seal, dataCANextCert: next.cert, dataCANextKey: next.key,
	}, nil
}

// pair is the private part of keys of one time.
type pair struct{ seal, cert, key []byte }

func newPair() (*pair, error) {
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
	return &pair{private, cert, key}, nil
}

// parse reads a Secret's data.
func parse(data map[string][]byte) (*Keys, error) {
	private := [][]byte{data[dataSeal], data[dataSealNext]}
	for of, text := range data {
		if strings.HasPrefix(of, dataSealFormer) {
			private = append(private, text)
		}
	}
	opener, err := seal.NewOpener(private...)
	if err != nil {
		return nil, err
	}
	cert, err := certificate.ParseCert(dataCACert, data[dataCACert])
	if err != nil {
		return nil, err
	}
	key, err := certificate.ParseKey(dataCAKey, data[dataCAKey])
	if err != nil {
		return nil, err
	}
	authority, err := certificate.Join(dataCACert, cert, dataCAKey, key)
	if err != nil {
		return nil, err
	}
	return &Keys{Opener: opener, Authority: authority}, nil
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
