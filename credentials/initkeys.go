package credentials

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// The keys that gateways sign with what they send to the /init of a pod's sandboxd.
//
// The Secret init-keys holds the private ones, for gateways alone; the ConfigMap
// init-keys the public ones, which the pool reconciler gives to pods. Each pod has one
// public key and the ID of it for life (v1alpha1.LabelInitKey). New pods get the
// current key. The next one is made before it is used, so that gateways know it
// before a pod has it. A rotation makes the next key the current one; the keys before
// it stay in the Secret while a pod carries them, and for one rotation longer.
//
// A process that dies between the two writes leaves a ConfigMap that is behind: pods
// get the key that was current before, whose private part stays until the ConfigMap has
// the Secret's current key.
const (
	initKeysName = "init-keys" // of the Secret and of the ConfigMap

	dataCurrent   = "current" // the ID of a key
	dataNext      = "next"    // the ID of a key
	keyDataPrefix = "key-"    // before an ID: the key
)

// ErrInitKeysLost means that the Secret of the init keys is gone and pods may carry
// some of them.
var ErrInitKeysLost = errors.New("the init keys are lost")

// InitKeys are the private keys that what is sent to /init is signed with. It is
// immutable.
type InitKeys struct {
	current, next string
	keys          map[string]ed25519.PrivateKey // by ID; current and next among them
}

// InitKey is the public part of a key, as a pod gets it.
type InitKey struct {
	// ID names the key.
	ID string
	// Public is the key in base64.
	Public string
}

// Sign signs a message with the key of this ID. false means that there is none.
func (k *InitKeys) Sign(id string, message []byte) (signature []byte, ok bool) {
	key, ok := k.keys[id]
	if !ok {
		return nil, false
	}
	return ed25519.Sign(key, message), true
}

// Current returns the key that new pods get.
func (k *InitKeys) Current() InitKey { return k.public(k.current) }

// Next returns the key that new pods get after the next rotation.
func (k *InitKeys) Next() InitKey { return k.public(k.next) }

func (k *InitKeys) public(id string) InitKey {
	public := k.keys[id].Public().(ed25519.PublicKey)
	return InitKey{ID: id, Public: base64.StdEncoding.EncodeToString(public)}
}

// newInitKeys makes the first two keys.
func newInitKeys() *InitKeys {
	k := &InitKeys{keys: map[string]ed25519.PrivateKey{}}
	k.current, k.next = k.add(), k.add()
	return k
}

// add makes one more key and returns its ID, which derives from the public part: two
// processes that make keys at once never give one ID to two.
func (k *InitKeys) add() string {
	public, private, _ := ed25519.GenerateKey(rand.Reader) // the reader never fails
	sum := sha256.Sum256(public)
	id := hex.EncodeToString(sum[:8])
	k.keys[id] = private
	return id
}

// rotated returns keys whose current one is the next of k. Of the others it keeps the
// current one of k, which a controller may give to a pod a moment longer, and those
// that pods carry.
func (k *InitKeys) rotated(carried map[string]bool) *InitKeys {
	r := &InitKeys{current: k.next, keys: maps.Clone(k.keys)}
	maps.DeleteFunc(r.keys, func(id string, _ ed25519.PrivateKey) bool {
		return id != k.current && id != k.next && !carried[id]
	})
	r.next = r.add()
	return r
}

// secretData is what the Secret holds. Its inverse is initKeysOf.
func (k *InitKeys) secretData() map[string][]byte {
	data := map[string][]byte{dataCurrent: []byte(k.current), dataNext: []byte(k.next)}
	for id, key := range k.keys {
		data[keyDataPrefix+id] = key.Seed()
	}
	return data
}

// initKeysOf reads the Secret. An error says what it lacks and nothing of what it
// holds.
func initKeysOf(s *corev1.Secret) (*InitKeys, error) {
	k := &InitKeys{
		current: string(s.Data[dataCurrent]), next: string(s.Data[dataNext]), keys: map[string]ed25519.PrivateKey{},
	}
	for name, seed := range s.Data {
		if len(name) <= len(keyDataPrefix) || name[:len(keyDataPrefix)] != keyDataPrefix {
			continue
		}
		if len(seed) != ed25519.SeedSize {
			return nil, fmt.Errorf("%s is not %d bytes long", name, ed25519.SeedSize)
		}
		k.keys[name[len(keyDataPrefix):]] = ed25519.NewKeyFromSeed(seed)
	}
	for _, name := range []string{dataCurrent, dataNext} {
		if id := string(s.Data[name]); k.keys[id] == nil {
			return nil, fmt.Errorf("it names %q as its %s key and does not hold it", id, name)
		}
	}
	return k, nil
}
