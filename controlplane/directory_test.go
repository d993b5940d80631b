package controlplane

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/test/bubble"
)

func newDirectory(t *testing.T, api DirectoryLeases) *Directory {
	t.Helper()
	d, err := NewDirectory(DirectoryOptions{Leases: api})
	if err != nil {
		t.Fatal(err)
	}
	d.noteRemembered(time.Now().Add(24 * 365 * time.Hour)) // whatever is lost: no Client asks here
	return d
}

// watch runs the Directory until the test's bubble ends.
func (d *Directory) watch(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Start(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Start returned %v", err)
		}
	}
}

func (d *Directory) names(t *testing.T) string {
	t.Helper()
	gateways, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, g := range gateways {
		s := g.Name + "=" + g.Holder.String()
		if g.Gone {
			s += "(gone)"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func wantNames(t *testing.T, d *Directory, want, when string) {
	t.Helper()
	if got := d.names(t); got != want {
		t.Fatalf("%s: gateways are %q, want %q", when, got, want)
	}
}

// write stores a lease as if a gateway had.
func (f *fakeAPI) write(l *coordinationv1.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, ok := f.leases[l.Name]; ok {
		l.UID = old.UID
	}
	f.put("test", l)
}

func (f *fakeAPI) drop(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(name)
}

const leaseAndGrace = 10*time.Minute + 30*time.Second

func TestDirectoryCountsLeaseAndGrace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now().Add(-time.Hour)))
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1", "first seen")
		first := time.Now()
		after(5 * time.Minute)
		api.write(lease("gw", "a/1", 600, time.Now()))
		after(time.Minute)
		wantNames(t, d, "gw=a/1", "renewed a minute ago, seen now")
		seen := time.Now()
		after(time.Minute)
		revoke(t, api, "gw")
		wantNames(t, d, "gw=revoked:a/1", "revoked")
		after(leaseAndGrace - time.Since(seen) - time.Millisecond)
		wantNames(t, d, "gw=revoked:a/1", "just before")
		if !d.LastLoss().IsZero() {
			t.Errorf("a loss at %v", d.LastLoss())
		}
		after(time.Millisecond)
		wantNames(t, d, "", "lease and grace after the last renewal was seen")
		if d.LastLoss() != time.Now() {
			t.Errorf("loss at %v, want now, %v", d.LastLoss().Sub(first), time.Since(first))
		}
		other := newDirectory(t, api)
		wantNames(t, other, "gw=revoked:a/1", "a new directory")
		api.write(lease("gw", "a/2", 600, time.Now()))
		wantNames(t, d, "gw=a/2", "rejoined before the lease was deleted")
	})
}

func TestDirectoryEndsLeasesByLiveListsOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1", "first seen")
		api.setAway(true)
		after(time.Hour)
		if _, err := d.List(t.Context()); err == nil {
			t.Fatal("an answer while the API server is away")
		}
		if !d.LastLoss().IsZero() {
			t.Error("ended a lease without having looked")
		}
		api.setAway(false)
		// The gateway reached the API server all the while.
		api.write(lease("gw", "a/1", 600, time.Now()))
		wantNames(t, d, "gw=a/1", "after an hour away")
		// The list was sent before the time was up, and answered after.
		after(leaseAndGrace - time.Second)
		api.setAfter(func(verb, _ string) error { time.Sleep(2 * time.Second); return nil })
		wantNames(t, d, "gw=a/1", "listed just before")
		api.setAfter(nil)
		wantNames(t, d, "", "listed after")
	})
}

func TestDirectoryDeletesWhatIsOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("dead", "a/1", 600, time.Now()))
		api.write(lease("left", "left:b/1", 600, time.Now()))
		d := newDirectory(t, api)
		stop := d.watch(t)
		defer stop()
		if api.get("left") != nil || api.get("dead") == nil {
			t.Errorf("left: %v, dead: %v", api.get("left"), api.get("dead"))
		}
		after(leaseAndGrace - time.Second)
		if api.get("dead") == nil {
			t.Fatal("deleted before its time")
		}
		after(12 * time.Second)
		if api.get("dead") != nil {
			t.Error("an expired lease is still there")
		}
		wantNames(t, d, "", "at the end")
	})
}

func TestDirectoryDoesNotDeleteALeaseRenewedMeanwhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1", "first")
		after(leaseAndGrace)
		wantNames(t, d, "", "expired")
		api.before = func(verb, _ string) error {
			if verb == "delete" {
				api.write(lease("gw", "a/2", 600, time.Now()))
			}
			return nil
		}
		d.refresh(t.Context())
		wantNames(t, d, "gw=a/2", "rejoined before the delete")
	})
}

func TestDirectoryTellsCleanStopsFromVanishedLeases(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		for _, name := range []string{"clean", "gone", "back"} {
			api.write(lease(name, name+"/1", 600, time.Now()))
		}
		d := newDirectory(t, api)
		stop := d.watch(t)
		defer stop()
		after(time.Minute)
		api.write(lease("clean", "left:clean/1", 600, time.Now()))
		for _, name := range []string{"clean", "gone", "back"} {
			api.drop(name)
		}
		vanished := time.Now()
		synctest.Wait()
		wantNames(t, d, "back=revoked:back/1 gone=revoked:gone/1", "after the deletions")
		api.write(lease("back", "back/2", 600, time.Now()))
		wantNames(t, d, "back=back/2 gone=revoked:gone/1", "one rejoined")
		after(time.Until(vanished.Add(leaseAndGrace)) - time.Millisecond)
		api.write(lease("back", "back/2", 600, time.Now()))
		wantNames(t, d, "back=back/2 gone=revoked:gone/1", "just before")
		after(time.Millisecond)
		wantNames(t, d, "back=back/2", "a vanished lease counts its time out")
	})
}

// The live list can show that a lease is gone before the watch does, and the
// other way round.
func TestDirectoryMergesListsAndEventsInAnyOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		old := api.get("gw")
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1", "first")
		early, err := api.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		api.write(lease("gw", "left:a/1", 600, time.Now()))
		last := api.get("gw")
		api.drop("gw")
		wantNames(t, d, "gw=revoked:a/1", "listed without the watch")
		d.upsert(last) // the watch lags
		wantNames(t, d, "gw=revoked:a/1", "a late event")
		last.ResourceVersion = "3"
		d.remove(last)
		wantNames(t, d, "", "a late deletion that shows the clean stop")
		d.upsert(old)
		d.mu.Lock()
		d.replace([]*coordinationv1.Lease{&early.Items[0]}, early.ResourceVersion)
		d.mu.Unlock()
		wantNames(t, d, "", "an old list and an old event")

		api.write(lease("gw", "b/1", 600, time.Now()))
		created := api.get("gw")
		d.upsert(created)
		d.mu.Lock()
		d.replace(nil, "3") // sent before the create, answered after its event
		got := len(d.view())
		gone := d.entries["gw"].Gone
		d.mu.Unlock()
		if got != 1 || gone {
			t.Errorf("an older list took a new lease away: %d gateways, gone %v", got, gone)
		}
	})
}

func TestDirectoryForeignHolder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1", "first")
		after(time.Minute)
		api.write(lease("gw", "somebody", 600, api.get("gw").Spec.RenewTime.Time))
		wantNames(t, d, "gw=revoked:a/1", "a holder that nobody of ours wrote")
		after(leaseAndGrace - time.Minute)
		wantNames(t, d, "", "it counted as no renewal")
	})
}

func TestParseHolder(t *testing.T) {
	for _, s := range []string{"a/1", "revoked:a-b.c/18446744073709551615", "left:x/0"} {
		h, err := ParseHolder(s)
		if err != nil || h.String() != s {
			t.Errorf("%q parsed to %+v (%v), %q", s, h, err, h)
		}
	}
	for _, s := range []string{"", "a", "/1", "a/", "a/-1", "a/1/2", "other:a/1", "a:b/1", "revoked:revoked:a/1", "a/x"} {
		if h, err := ParseHolder(s); err == nil {
			t.Errorf("%q parsed to %+v", s, h)
		}
	}
}

func TestGatewayLabel(t *testing.T) {
	long := strings.Repeat("x", 26) + "-" + strings.Repeat("y", 62)
	for name, want := range map[string]string{"gw": "gw", long: long[27:], strings.Repeat("p", 70): strings.Repeat("p", 63)} {
		if got := gatewayLabel(name); got != want {
			t.Errorf("label of %q is %q, want %q", name, got, want)
		}
	}
}

func TestDirectoryNotesATakeoverAsALoss(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1", "first")
		after(time.Minute)
		api.write(lease("gw", "a/2", 600, time.Now()))
		wantNames(t, d, "gw=a/2", "rejoined")
		if !d.LastLoss().IsZero() {
			t.Error("a rejoin of the same process is no loss")
		}
		api.write(lease("gw", "b/1", 600, time.Now()))
		wantNames(t, d, "gw=b/1", "taken over")
		if !d.LastLoss().Equal(time.Now()) {
			t.Errorf("loss at %v, want now", d.LastLoss())
		}
	})
}

func TestDirectoryForgetsWhatItDeleted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1", "first")
		after(leaseAndGrace)
		before, err := api.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		d.refresh(t.Context())
		if api.get("gw") != nil {
			t.Fatal("an expired lease is still there")
		}
		// A list made just before the delete is answered after it.
		d.mu.Lock()
		d.replace([]*coordinationv1.Lease{&before.Items[0]}, before.ResourceVersion)
		got := len(d.view())
		d.mu.Unlock()
		if got != 0 {
			t.Error("an older list brought back a lease that was deleted")
		}
	})
}

func TestHolderSucceeds(t *testing.T) {
	for _, c := range []struct {
		holder, noted string
		want          bool
	}{
		{"a/2", "a/1", true}, {"b/1", "a/9", true}, {"a/2", "revoked:a/1", true},
		{"a/1", "a/1", false}, {"a/1", "revoked:a/1", false}, {"revoked:a/1", "a/1", false},
		// Not of a gateway's own making as it stands.
		{"revoked:b/1", "a/1", false}, {"revoked:a/2", "a/1", false}, {"left:b/1", "a/1", false},
	} {
		holder, err := ParseHolder(c.holder)
		if err != nil {
			t.Fatal(err)
		}
		noted, err := ParseHolder(c.noted)
		if err != nil {
			t.Fatal(err)
		}
		if got := holder.succeeds(noted); got != c.want {
			t.Errorf("%s succeeds %s: %v, want %v", c.holder, c.noted, got, c.want)
		}
	}
}
