package writes

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Paths that several packages test and write.
var (
	Phase   = Label(v1alpha1.LabelPhase)
	Claim   = Annotation(v1alpha1.AnnotationClaim)
	Address = Annotation(v1alpha1.AnnotationAddress)
)

// Patch is a list of operations, applied together or not at all. The zero
// value is empty; methods return the longer patch.
type Patch []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// For begins a patch of exactly the object with this UID.
func For(uid types.UID) Patch { return Patch{}.Test("/metadata/uid", string(uid)) }

// Test asks that the path holds the value; nil asks that nothing is there.
func (p Patch) Test(path string, value any) Patch {
	return append(p, operation{"test", path, value})
}

// Set writes the value, whether something is there or not. The parent must exist.
func (p Patch) Set(path string, value any) Patch {
	return append(p, operation{"add", path, value})
}

// Remove takes away what is there; it must be.
func (p Patch) Remove(path string) Patch { return append(p, operation{"remove", path, nil}) }

// RemoveFinalizer takes away one finalizer of those the object was seen with;
// others that came or went meanwhile make the patch fail.
func (p Patch) RemoveFinalizer(seen []string, name string) Patch {
	for i, f := range seen {
		if f == name {
			path := fmt.Sprintf("/metadata/finalizers/%d", i)
			return p.Test(path, name).Remove(path)
		}
	}
	return p
}

// Build returns the patch for a client. It panics on a value that has no JSON
// form, which is a mistake in the caller.
func (p Patch) Build() client.Patch { return client.RawPatch(types.JSONPatchType, p.Bytes()) }

// Bytes is the patch in JSON, for clients that are not controller-runtime's. It panics
// as Build does.
func (p Patch) Bytes() []byte {
	raw, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("encoding a JSON Patch: %v", err))
	}
	return raw
}

// Label returns the path of a label.
func Label(key string) string { return Key("/metadata/labels", key) }

// Annotation returns the path of an annotation.
func Annotation(key string) string { return Key("/metadata/annotations", key) }

// Key returns the path of a map entry, escaped by RFC 6901.
func Key(parent, key string) string { return parent + "/" + escape.Replace(key) }

var escape = strings.NewReplacer("~", "~0", "/", "~1")
