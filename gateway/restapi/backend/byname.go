package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/egress/seal"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routecache"
)

// trustTimeout bounds how long an update waits for the sandbox.
const trustTimeout = 5 * time.Second

// maxSealed bounds the bytes of a sandbox's rules: every gateway keeps them in memory.
const maxSealed = 64 << 10

// byName reports whether pods of a pool may be allowed hosts by name.
func byName(pool index.PoolInfo) bool {
	return pool.Spec != nil && pool.Spec.Egress == v1alpha1.EgressByName
}

// spec is the rules as egress processes read them, with header values sealed for that one
// sandbox.
func (x *Backend) spec(ctx context.Context, namespace, id string, e restapi.Egress) (*v1alpha1.SandboxEgress, error) {
	spec := &v1alpha1.SandboxEgress{DenyAll: e.DeniesAll(), AllowNames: e.Names, AllowBlocks: texts(e.Allow)}
	if !spec.DenyAll {
		spec.DenyBlocks = texts(e.Deny)
	}
	if len(e.Rules) == 0 {
		return spec, nil
	}
	raw, err := json.Marshal(e.Rules)
	if err != nil {
		return nil, errors.New("encode the rules") // the error could show a value
	}
	if len(raw) > maxSealed {
		return nil, restapi.Invalidf("rules: must not have more than %d bytes together", maxSealed)
	}
	public, err := x.publicKeys(ctx)
	if errors.Is(err, keys.ErrNone) {
		return nil, fmt.Errorf("%w: %w", restapi.Invalidf("rules: this installation runs no egress process yet"), err)
	}
	if err != nil {
		return nil, err
	}
	if spec.Sealed, err = public.Seal.Seal(seal.OfSandbox(namespace, id), raw); err != nil {
		return nil, err
	}
	for _, host := range slices.Sorted(maps.Keys(e.Rules)) {
		rule := v1alpha1.EgressRule{Host: host}
		for _, header := range slices.Sorted(maps.Keys(e.Rules[host])) {
			rule.Headers = append(rule.Headers, v1alpha1.EgressHeader{Name: header, Shown: names.Shown(e.Rules[host][header])})
		}
		spec.Rules = append(spec.Rules, rule)
	}
	return spec, nil
}

func texts(blocks []netip.Prefix) (all []string) {
	for _, p := range blocks {
		all = append(all, p.String())
	}
	return all
}

// setSpec writes the rules to the sandbox. Egress processes follow them by a watch.
func (x *Backend) setSpec(ctx context.Context, s *v1alpha1.Sandbox, e restapi.Egress) error {
	spec, err := x.spec(ctx, s.Spec.Namespace, s.Name, e)
	if err != nil {
		return err
	}
	token := x.callable.Begin(s.Name)
	written := &v1alpha1.Sandbox{ObjectMeta: s.ObjectMeta}
	err = x.api.Patch(ctx, written, writes.For(s.UID).
		Test("/metadata/deletionTimestamp", nil).
		Test("/spec/end", nil).
		Set("/spec/egress", spec).
		Build())
	if writes.Moved(err) {
		return restapi.ErrNotFound
	}
	if err == nil && len(spec.Rules) > 0 {
		err = x.trust(ctx, token, written)
	}
	return err
}

// trust has the programs of a sandbox that may run without rules so far trust egress. A pod that
// backs it only after its rules were written learns that when it is initialised.
func (x *Backend) trust(ctx context.Context, token routecache.Token, s *v1alpha1.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, trustTimeout)
	defer cancel()
	for delays := backoff.Doubling(50*time.Millisecond, time.Second); ; {
		pod, err := x.callable.Callable(ctx, token, s)
		if err == nil {
			calling, done := context.WithTimeout(ctx, metricsTimeout) // see agent.Agent
			err = x.agent.Trust(calling, s, pod)
			done()
		}
		switch {
		case err == nil, errors.Is(err, sandboxdclient.ErrPodGone):
			return nil
		case !errors.Is(err, writes.ErrStale) || !backoff.Sleep(ctx, delays.Step()):
			return fmt.Errorf("%w: %w", restapi.ErrUnanswered, err)
		}
		token = x.callable.Begin(s.Name)
		if s, err = x.get(ctx, s.Spec.Namespace, s.Name); err != nil {
			return err
		}
	}
}

// poolNames are the names that a sandbox's pool allows it; nil if the pool says nothing.
func poolNames(s *v1alpha1.Sandbox) *[]string {
	if v1alpha1.ClaimRules(s.Spec.FirstRequest, s.Spec.Egress) == "" {
		return nil
	}
	names := slices.Clone(s.Spec.Egress.AllowNames)
	return &names
}

// rulesShown are a sandbox's rules as the API shows them.
func rulesShown(s *v1alpha1.Sandbox) map[string]map[string]string {
	if s.Spec.Egress == nil {
		return nil
	}
	shown := map[string]map[string]string{}
	for _, rule := range s.Spec.Egress.Rules {
		shown[rule.Host] = map[string]string{}
		for _, header := range rule.Headers {
			shown[rule.Host][header.Name] = header.Shown
		}
	}
	return shown
}
