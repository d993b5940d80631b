package credentials

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
)

// Sentinels of this package.
var (
	// ErrKeyNotFound means that no key has this ID.
	ErrKeyNotFound = errors.New("no such API key")
)

const (
	keyPrefix  = "e2b_"
	idLength   = 8  // hex digits that are the key's ID
	hexLength  = 40 // hex digits after the prefix
	saltLength = 16 // bytes

	secretPrefix = "api-key-"

	dataHash      = "hash"
	dataSalt      = "salt"
	dataNamespace = "namespace"
)

// Key describes an API key without holding it.
type Key struct {
	ID        string
	Team      string
	Namespace string
	Created   time.Time
}

// newKey makes up a key.
func newKey() string {
	random := make([]byte, hexLength/2)
	rand.Read(random) // never fails
	return keyPrefix + hex.EncodeToString(random)
}

// keyID returns the ID in a key; false if the key is malformed.
func keyID(key string) (string, bool) {
	if len(key) != len(keyPrefix)+hexLength || key[:len(keyPrefix)] != keyPrefix || !isHex(key[len(keyPrefix):]) {
		return "", false
	}
	return key[len(keyPrefix):][:idLength], true
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Stored is what a Secret keeps of a key, for a Secret that is not written by a Store
// but by the chart of a team: as JSON, salt and hash are base64.
type Stored struct {
	ID   string `json:"id"`
	Salt []byte `json:"salt"`
	Hash []byte `json:"hash"`
}

// New makes up a key, and returns it with what is to be stored of it. The key itself is
// kept nowhere.
func New() (string, Stored) {
	key := newKey()
	id, _ := keyID(key)
	data := secretData(key, "")
	return key, Stored{ID: id, Salt: data[dataSalt], Hash: data[dataHash]}
}

// record is a stored key.
type record struct {
	routing.KeyOwner
	// namespaceUID tells the key's namespace from a later one of its name.
	namespaceUID types.UID
	salt         []byte
	hash         [sha256.Size]byte
}

func hashKey(salt []byte, key string) [sha256.Size]byte {
	buf := make([]byte, 0, saltLength+len(keyPrefix)+hexLength)
	return sha256.Sum256(append(append(buf, salt...), key...))
}

// matches takes the same time for every key.
func (r *record) matches(key string) bool {
	hash := hashKey(r.salt, key)
	return subtle.ConstantTimeCompare(hash[:], r.hash[:]) == 1
}

// secretData is what a key's Secret holds. Its inverse is recordOf.
func secretData(key, namespace string) map[string][]byte {
	salt := make([]byte, saltLength)
	rand.Read(salt) // never fails
	hash := hashKey(salt, key)
	return map[string][]byte{dataSalt: salt, dataHash: hash[:], dataNamespace: []byte(namespace)}
}

// owner is the reference by which a key's Secret belongs to its namespace: it says which
// one of that name, and Kubernetes deletes the Secret after the namespace.
func owner(ns *corev1.Namespace) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID}
}

// ownerOf is the inverse of owner; zero if there is no such reference.
func ownerOf(s *corev1.Secret) metav1.OwnerReference {
	for _, o := range s.OwnerReferences {
		if o.APIVersion == "v1" && o.Kind == "Namespace" {
			return o
		}
	}
	return metav1.OwnerReference{}
}

// recordOf reads a key's Secret. An error says what the Secret lacks and nothing
// of what it holds.
func recordOf(s *corev1.Secret) (*record, error) {
	id, owner := s.Labels[v1alpha1.LabelAPIKey], ownerOf(s)
	r := &record{
		KeyOwner: routing.KeyOwner{Team: s.Labels[v1alpha1.LabelTeam], Namespace: string(s.Data[dataNamespace]), KeyID: id},
		salt:     s.Data[dataSalt],

		namespaceUID: owner.UID,
	}
	switch {
	case len(id) != idLength || !isHex(id) || s.Name != secretPrefix+id:
		return nil, fmt.Errorf("label %s does not match the Secret's name", v1alpha1.LabelAPIKey)
	case r.Team == "":
		return nil, fmt.Errorf("no label %s", v1alpha1.LabelTeam)
	case r.Namespace == "":
		return nil, fmt.Errorf("no %s in its data", dataNamespace)
	case owner.Name != r.Namespace || owner.UID == "":
		return nil, errors.New("it is not owned by its namespace")
	case len(r.salt) != saltLength:
		return nil, fmt.Errorf("%s is not %d bytes long", dataSalt, saltLength)
	case copy(r.hash[:], s.Data[dataHash]) != len(r.hash) || len(s.Data[dataHash]) != len(r.hash):
		return nil, fmt.Errorf("%s is not %d bytes long", dataHash, len(r.hash))
	}
	return r, nil
}
