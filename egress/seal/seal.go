// Package seal keeps values that only the egress process may read: what holds a
// [PublicKey] seals them, for one place; an [Opener], which has the private keys, opens them
// there. [NewKey] makes a pair. A new pair is used beside the old one: what is sealed names
// its key.
//
// It stores nothing. A value that is moved to another place does not open, so that nobody
// who may write objects can read another's by a copy.
package seal

import (
	"crypto/hpke"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
)

// Errors of Open. None says anything of a value.
var (
	ErrNoKey  = errors.New("it is sealed to a key that is not here")
	ErrBroken = errors.New("it is not what was sealed for this place")
)

// Place is where a value belongs; it opens nowhere else.
type Place struct{ Namespace, Name string }

// OfSandbox is the place of a sandbox's rules.
func OfSandbox(namespace, id string) Place { return Place{namespace, "sandbox/" + id} }

// OfSecret is the place of a secret's value.
func OfSecret(namespace, name string) Place { return Place{namespace, "secret/" + name} }

// info is what HPKE binds a value to; no two places have the same.
func (p Place) info() []byte {
	return []byte("sandlane egress 1 " + strconv.Quote(p.Namespace) + " " + strconv.Quote(p.Name))
}

// id names a public key within what is sealed to it.
type id [8]byte

func idOf(key hpke.PublicKey) (short id) {
	sum := sha256.Sum256(key.Bytes())
	copy(short[:], sum[:])
	return short
}

// NewKey makes a pair of keys, encoded as ParsePublicKey and NewOpener read them.
func NewKey() (private, public []byte, err error) {
	key, err := hpke.MLKEM768X25519().GenerateKey()
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	if private, err = key.Bytes(); err != nil {
		return nil, nil, fmt.Errorf("encode a key: %w", err)
	}
	return private, key.PublicKey().Bytes(), nil
}

// PublicOf returns the public key of a private one. Its errors say nothing of a key's bytes.
func PublicOf(private []byte) ([]byte, error) {
	key, err := hpke.MLKEM768X25519().NewPrivateKey(private)
	if err != nil {
		return nil, errors.New("the private key cannot be read")
	}
	return key.PublicKey().Bytes(), nil
}

// PublicKey seals values. It is safe for concurrent use.
type PublicKey struct{ key hpke.PublicKey }

// ParsePublicKey reads a key of NewKey's.
func ParsePublicKey(public []byte) (*PublicKey, error) {
	key, err := hpke.MLKEM768X25519().NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("read a public key: %w", err)
	}
	return &PublicKey{key}, nil
}

// Seal seals a value for a place. Two seals of a value differ.
func (k *PublicKey) Seal(place Place, value []byte) ([]byte, error) {
	sealed, err := hpke.Seal(k.key, hpke.HKDFSHA256(), hpke.AES256GCM(), place.info(), value)
	if err != nil {
		return nil, fmt.Errorf("seal a value: %w", err)
	}
	short := idOf(k.key)
	return append(short[:], sealed...), nil
}

// Opener opens values. It is safe for concurrent use.
type Opener struct{ keys map[id]hpke.PrivateKey }

// NewOpener returns an opener with the private keys of NewKey's. Its errors say nothing of
// a key's bytes.
func NewOpener(private ...[]byte) (*Opener, error) {
	o := &Opener{keys: map[id]hpke.PrivateKey{}}
	for i, text := range private {
		key, err := hpke.MLKEM768X25519().NewPrivateKey(text)
		if err != nil {
			return nil, fmt.Errorf("private key %d cannot be read", i+1)
		}
		o.keys[idOf(key.PublicKey())] = key
	}
	return o, nil
}

// Open returns what was sealed for the place; ErrNoKey or ErrBroken if it cannot.
func (o *Opener) Open(place Place, sealed []byte) ([]byte, error) {
	var short id
	rest := sealed[copy(short[:], sealed):]
	key, found := o.keys[short]
	if !found {
		return nil, ErrNoKey
	}
	value, err := hpke.Open(key, hpke.HKDFSHA256(), hpke.AES256GCM(), place.info(), rest)
	if err != nil {
		return nil, ErrBroken
	}
	return value, nil
}
