package cache

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// The indexes: fields by which a cached client lists (client.MatchingFields).
const (
	// IndexSandboxPool: Sandboxes by the name of their pool.
	IndexSandboxPool = "sandboxPool"
	// IndexClaimedSandboxID: Sandboxes that are claimed by their ID.
	IndexClaimedSandboxID = "sandboxID"
	// IndexUser: Sandboxes and Checkpoints by the ID of the API key that made them.
	IndexUser = "user"
	// IndexTemplateID: SandboxPools by the names that users may use for them, in lower case:
	// their own name, their aliases and the name of their env.
	IndexTemplateID = "templateID"
	// IndexCheckpointID: Checkpoints by the ID of their data.
	IndexCheckpointID = "checkpointID"
	// IndexNamespace: Sandboxes, which are cluster-scoped, by their namespace. The API
	// server selects by the same field.
	IndexNamespace = v1alpha1.FieldNamespace
)

// IndexFunc is one index: Extract returns the values of an object of Obj's kind.
type IndexFunc struct {
	Obj       client.Object
	FieldName string
	Extract   client.IndexerFunc
}

// GetIndexFuncs returns all indexes. Caches of programs and of tests have these and no
// others.
func GetIndexFuncs() []IndexFunc {
	return []IndexFunc{
		{&v1alpha1.Sandbox{}, IndexNamespace, of(func(s *v1alpha1.Sandbox) []string { return value(s.Spec.Namespace) })},
		{&v1alpha1.Sandbox{}, IndexSandboxPool, of(func(s *v1alpha1.Sandbox) []string { return value(s.Spec.Pool) })},
		{&v1alpha1.Sandbox{}, IndexClaimedSandboxID, of(func(s *v1alpha1.Sandbox) []string {
			if !claimed(s) {
				return nil
			}
			return value(s.Name)
		})},
		{&v1alpha1.Sandbox{}, IndexUser, owner},
		{&v1alpha1.Checkpoint{}, IndexUser, owner},
		{&v1alpha1.Checkpoint{}, IndexCheckpointID, of(func(cp *v1alpha1.Checkpoint) []string { return value(cp.Status.CheckpointID) })},
		{&v1alpha1.SandboxPool{}, IndexTemplateID, of(templateIDs)},
	}
}

// AddIndexesToCache adds all indexes. Call it once for each cache: adding an index twice is
// an error.
func AddIndexesToCache(c client.FieldIndexer) error {
	for _, f := range GetIndexFuncs() {
		if err := c.IndexField(context.Background(), f.Obj, f.FieldName, f.Extract); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", f.Obj, f.FieldName, err)
		}
	}
	return nil
}

// claimed reports whether a sandbox has a pod, or is paused, and has not ended.
func claimed(s *v1alpha1.Sandbox) bool {
	return s.Spec.End == nil && s.DeletionTimestamp == nil && (s.Spec.Binding != nil || s.Spec.Paused)
}

// templateIDs returns the names that users may use for a pool.
func templateIDs(p *v1alpha1.SandboxPool) []string {
	ids := append([]string{p.Name}, aliases(p)...)
	if env := p.Labels[v1alpha1.LabelEnv]; env != "" && env != p.Name {
		ids = append(ids, env)
	}
	return ids
}

// aliases returns the further names of a pool, in lower case.
func aliases(p *v1alpha1.SandboxPool) []string {
	var all []string
	for name := range strings.SplitSeq(p.Annotations[v1alpha1.AnnotationAliases], ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			all = append(all, name)
		}
	}
	return all
}

func owner(o client.Object) []string { return value(o.GetAnnotations()[v1alpha1.AnnotationOwner]) }

// of turns an index function for the objects of one kind into one for any object.
func of[T client.Object](extract func(T) []string) client.IndexerFunc {
	return func(o client.Object) []string {
		if typed, ok := o.(T); ok {
			return extract(typed)
		}
		return nil
	}
}

// value returns s as the only value of an index; none if s is empty.
func value(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
