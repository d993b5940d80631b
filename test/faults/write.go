package faults

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Kind is which of Sandlane's writes one is.
type Kind string

// The writes of an activation.
const (
	Create Kind = "create sandbox"
	Bind   Kind = "bind sandbox"
	Unbind Kind = "unbind sandbox"
	Claim  Kind = "claim pod"
	Stop   Kind = "stop pod"
)

// Write is one write of a client.
type Write struct {
	Kind   Kind
	Object string // path of the object
	// Sandbox is its ID; of a Stop, that of the last claim this client sent to
	// the pod.
	Sandbox string
	// Nth counts this client's writes of the kind for the sandbox, from 0.
	Nth int
}

// objectOf returns the path of the object that a request is about, and "" if it
// is about none: a list or a watch.
func objectOf(r *http.Request, body []byte) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i, p := range parts {
		if p != "sandboxes" && p != "pods" {
			continue
		}
		if i+1 < len(parts) {
			return r.URL.Path
		}
		var created struct {
			Metadata struct{ Name string }
		}
		if r.Method == http.MethodPost && json.Unmarshal(body, &created) == nil {
			return strings.TrimSuffix(r.URL.Path, "/") + "/" + created.Metadata.Name
		}
	}
	return ""
}

// classify says which write a request is, and of which sandbox if it tells; ""
// if none of those that may fail.
func classify(r *http.Request, object string, body []byte) (kind Kind, sandbox string) {
	sandboxes := strings.Contains(object, "/sandboxes/")
	name := object[strings.LastIndexByte(object, '/')+1:]
	if sandboxes && r.Method == http.MethodPost {
		return Create, name
	}
	if r.Method != http.MethodPatch || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json-patch+json") {
		return "", ""
	}
	var ops []struct {
		Op, Path string
		Value    any
	}
	if json.Unmarshal(body, &ops) != nil {
		return "", ""
	}
	for _, o := range ops {
		switch {
		case sandboxes && o.Path == "/spec/binding" && o.Op == "add":
			return Bind, name
		case sandboxes && o.Path == "/spec/binding" && o.Op == "remove":
			return Unbind, name
		case !sandboxes && o.Path == pointer("labels", v1alpha1.LabelSandboxID) && o.Op == "add":
			id, _ := o.Value.(string)
			return Claim, id
		case !sandboxes && o.Path == pointer("labels", v1alpha1.LabelPhase) && o.Op == "add" && o.Value == string(v1alpha1.PodStopping):
			return Stop, ""
		}
	}
	return "", ""
}

// pointer is the JSON Pointer of a label or annotation.
func pointer(where, key string) string {
	return "/metadata/" + where + "/" + strings.ReplaceAll(key, "/", "~1")
}
