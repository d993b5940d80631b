package backend

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/routing"
)

// listPage is how many sandboxes one call to the API server returns.
const listPage = 500

// List implements restapi.Sandboxes. Without a version it is a consistent list from the
// API server. With one it may be what such a list returned up to [keepFor] ago, if
// that was not older than the version, corrected by what the index knows since: a
// list of n sandboxes page by page then costs one pass, not one for each page.
func (x *Backend) List(ctx context.Context, namespace, atLeast string) (restapi.Listing, error) {
	if l := x.kept.get(namespace, atLeast); l != nil {
		return x.corrected(l), nil
	}
	l, err := x.list(ctx, namespace)
	if err != nil {
		return restapi.Listing{}, err
	}
	x.kept.put(namespace, l)
	return restapi.Listing{Sandboxes: l.sandboxes, Version: l.version}, nil
}

// list reads a namespace's sandboxes from the API server.
func (x *Backend) list(ctx context.Context, namespace string) (*keptList, error) {
	end, err := x.lists.begin(ctx, readerOf(ctx, namespace))
	if err != nil {
		return nil, err
	}
	defer end()
	l := &keptList{read: time.Now(), sandboxes: []restapi.Sandbox{}}
	page := &v1alpha1.SandboxList{}
	for {
		err := x.api.List(ctx, page, client.MatchingFields{v1alpha1.FieldNamespace: namespace},
			client.Limit(listPage), client.Continue(page.Continue))
		if err != nil {
			return nil, fmt.Errorf("list sandboxes: %w", err)
		}
		if l.version == "" { // all pages are of the first one's
			l.version = page.ResourceVersion
		}
		for i := range page.Items {
			if s := &page.Items[i]; !hasEnded(s) {
				l.sandboxes = append(l.sandboxes, x.describe(s))
			}
		}
		if page.Continue == "" {
			break
		}
	}
	restapi.SortNewestFirst(l.sandboxes)
	if x.index != nil {
		l.unseen = map[string]bool{}
		for i := range l.sandboxes {
			if s := &l.sandboxes[i]; !x.index.Life(s.ID).Known {
				l.unseen[s.ID] = true
			}
		}
	}
	return l, nil
}

// corrected returns a list that was read before without the sandboxes that have
// ended since, and with the ends that the others have now.
func (x *Backend) corrected(l *keptList) restapi.Listing {
	now := time.Now()
	left := make([]restapi.Sandbox, 0, len(l.sandboxes))
	for i := range l.sandboxes {
		s := l.sandboxes[i]
		life := x.index.Life(s.ID)
		switch {
		case life.Known && life.UID == s.UID:
			if x.ended.Correct(routing.Answer{State: routing.Running, ClaimID: life.ClaimID}).State == routing.Ended {
				continue
			}
			if life.Paused && !s.Paused {
				s.EndAt = now.Truncate(time.Second)
			} else if !life.Paused {
				s.EndAt = life.EndAt
			}
			s.Paused = life.Paused
		case life.Known || !l.unseen[s.ID]: // its record is gone
			continue
		}
		if life.Ended || !s.Paused && !s.AutoPause && !s.EndAt.IsZero() && !now.Before(s.EndAt) {
			continue
		}
		left = append(left, s)
	}
	return restapi.Listing{Sandboxes: left, Version: l.version, Kept: true}
}

// notOlder reports whether a list of version has all that one of want has.
func notOlder(version, want string) bool {
	order, err := resourceversion.CompareResourceVersion(version, want)
	return err == nil && order >= 0
}
