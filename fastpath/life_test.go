package fastpath

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/cmodule"
)

// eventually waits until ok is true, and fails the test if that takes too long.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(20 * time.Second)
	defer end.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatal(what)
		}
	}
}

// waiting runs Wait, and shows that it does not return by itself.
func waiting(t *testing.T, table *Table) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- table.Wait(context.Background()) }()
	select {
	case err := <-done:
		t.Fatalf("a wait returned while a worker was in a reading: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	return done
}

// A wait returns only after the reading that found the route has set the address, and
// the entry that it reads stays as it is until then.
func TestWaitOutlastsAReading(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "stall")
	w.put(t, route(generatedID, "10.0.0.5"))
	envoy.Send(t, cmodule.AppendRequest(nil, request(generatedID, "80")...))
	if b := envoy.Byte(t); b != 'w' {
		t.Fatalf("%q instead of a stalled reading", b)
	}
	w.cache.Invalidate(generatedID)
	brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := w.table.Wait(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait that was cut short: %v", err)
	}
	w.table.mu.Lock()
	if len(w.table.retired) != 1 {
		t.Errorf("%d entries are retired", len(w.table.retired))
	}
	w.table.mu.Unlock()
	done := waiting(t, w.table)
	envoy.Send(t, []byte{'g'})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := envoy.Answer(t); got["destination"] != "10.0.0.5:80" {
		t.Errorf("the reading's answer: %v", got)
	}
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	if len(w.table.retired) != 0 {
		t.Error("an entry rests after the wait")
	}
}

// The reading of an Envoy that is killed counts as over; the next Envoy takes its slots over.
func TestKilledEnvoyHoldsNothingUp(t *testing.T) {
	w := newWorld(t, 100)
	first := w.envoy(t, "stall")
	w.put(t, route(generatedID, "10.0.0.5"))
	first.Send(t, cmodule.AppendRequest(nil, request(generatedID, "80")...))
	first.Byte(t)
	done := waiting(t, w.table)
	if err := first.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if w.table.control.seq(0)&1 == 0 {
		t.Fatal("the dead Envoy's worker is in no reading")
	}
	second := w.envoy(t, "run")
	if w.table.control.seq(0)&1 == 1 {
		t.Error("the next Envoy left its slot in a reading")
	}
	if second.Ask(t, request(generatedID, "80")...) == nil {
		t.Error("the next Envoy does not answer")
	}
}

// A second Envoy beside a living one answers nothing, until the first is dead.
func TestSecondEnvoyAnswersNothing(t *testing.T) {
	w := newWorld(t, 100)
	first := w.envoy(t, "run")
	w.put(t, route(generatedID, "10.0.0.5"))
	second := cmodule.Start(t, cmodule.Build(t), "run", w.folder)
	for range 3 {
		w.table.beat(t.Context())
		if got := second.Ask(t, request(generatedID, "80")...); got != nil {
			t.Fatalf("the second Envoy answered: %v", got)
		}
	}
	if first.Ask(t, request(generatedID, "80")...) == nil {
		t.Fatal("the first Envoy does not answer")
	}
	_ = first.Cmd.Process.Kill()
	_ = first.Cmd.Wait()
	eventually(t, "the second Envoy never answers", func() bool {
		w.table.beat(t.Context())
		return second.Ask(t, request(generatedID, "80")...) != nil
	})
}

// Envoy answers nothing without heartbeats, without a lease, or if its version was not
// tested.
func TestTrust(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "run")
	w.put(t, route(generatedID, "10.0.0.5"))
	answers := func() bool { return envoy.Ask(t, request(generatedID, "80")...) != nil }
	if !answers() {
		t.Fatal("no answer after a heartbeat")
	}
	began := time.Now()
	eventually(t, "trust does not end without a heartbeat", func() bool { return !answers() })
	if took := time.Since(began); took > longestTrust+5*time.Second {
		t.Errorf("trust ended after %v", took)
	}
	w.table.beat(t.Context())
	if !answers() {
		t.Error("no answer after the next heartbeat")
	}
	w.lease.Store(0)
	w.table.Distrust(false)
	if answers() {
		t.Error("an answer after the lease was lost")
	}
	w.table.beat(t.Context())
	if answers() {
		t.Error("a heartbeat after the loss gave trust back")
	}
	w.lease.Store(int64(time.Millisecond))
	w.table.beat(t.Context())
	eventually(t, "trust outlives the lease", func() bool { return !answers() })
	w.lease.Store(int64(time.Hour))
	w.table.beat(t.Context())
	if !answers() {
		t.Error("no answer with a lease again")
	}
	w.table.Distrust(true)
	w.table.beat(t.Context())
	if answers() {
		t.Error("an answer after trust has ended for good")
	}
}

// Envoy refuses trust that lies further ahead than longestTrust, which no gateway wrote,
// and trust for another Envoy.
func TestTrustOfAnother(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "run")
	w.put(t, route(generatedID, "10.0.0.5"))
	answers := func() bool { return envoy.Ask(t, request(generatedID, "80")...) != nil }
	c := w.table.control
	for _, off := range []int{offTrustBoot, offTrustWall} {
		w.table.beat(t.Context())
		c.store(off, c.load(off)+uint64(time.Minute))
		if answers() {
			t.Errorf("offset %d: trusted a minute ahead", off)
		}
	}
	w.table.beat(t.Context())
	c.store(offTrustTerm, c.load(offTrustTerm)+1)
	if answers() {
		t.Error("trusted what was for another Envoy")
	}
}

func TestUntestedEnvoyIsNotTrusted(t *testing.T) {
	for _, version := range []string{"1.41.0", "", "1.40.0-dev"} {
		w := newWorld(t, 100)
		w.version = version
		envoy := w.envoy(t, "run")
		w.put(t, route(generatedID, "10.0.0.5"))
		if envoy.Ask(t, request(generatedID, "80")...) != nil {
			t.Errorf("version %q: answered", version)
		}
	}
}

// The next gateway process settles the table beside a living Envoy: routes of the former
// process are not answered, and new ones are, also when the table has another size.
func TestNextGatewaySettles(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "run")
	for _, size := range []int{100, 100, 5000, 100} {
		w.put(t, route(generatedID, "10.0.0.5"))
		w.table.beat(t.Context())
		if envoy.Ask(t, request(generatedID, "80")...) == nil {
			t.Fatalf("size %d: no answer before", size)
		}
		_ = w.table.control.close() // as if the process was killed: trust stays
		w.begin(t, size)
		w.table.beat(t.Context())
		if got := envoy.Ask(t, request(generatedID, "80")...); got != nil {
			t.Fatalf("size %d: the former gateway's route is answered: %v", size, got)
		}
	}
}

// Settle waits for a worker whose reading began under the former gateway process.
func TestSettleWaitsForAReading(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "stall")
	w.put(t, route(generatedID, "10.0.0.5"))
	envoy.Send(t, cmodule.AppendRequest(nil, request(generatedID, "80")...))
	envoy.Byte(t)
	if err := w.table.control.close(); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := SettleFolder(brief, w.folder); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("settled during a reading: %v", err)
	}
	envoy.Send(t, []byte{'g'})
	if err := SettleFolder(t.Context(), w.folder); err != nil {
		t.Fatal(err)
	}
	if w.table.control.load(offTrustBoot) != 0 {
		t.Error("a settled folder is trusted")
	}
}

// SettleFolder says at once that there is no table, and waits for the longest trust if the
// table cannot be locked.
func TestSettleFolder(t *testing.T) {
	if err := SettleFolder(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrNoTable) {
		t.Errorf("without a folder: %v", err)
	}
	// What Open made before it failed says nothing of a table that was there.
	fresh := cmodule.Folder(t)
	if c, err := openControl(fresh, true); err != nil || c.close() != nil {
		t.Fatal(err)
	}
	if err := SettleFolder(t.Context(), fresh); !errors.Is(err, ErrNoTable) {
		t.Errorf("with a control file that describes no table: %v", err)
	}
	w := newWorld(t, 100)
	began := time.Now()
	if err := SettleFolder(t.Context(), w.folder); err != nil {
		t.Error(err)
	}
	if time.Since(began) < longestTrust {
		t.Error("a table that another process holds was not waited for")
	}
}

// Two gateways never write one table, and a folder that is not on tmpfs has none.
func TestOpenRefuses(t *testing.T) {
	w := newWorld(t, 100)
	if _, err := Open(Options{Folder: w.folder, Size: 100}); err == nil {
		t.Error("a second gateway opened the table")
	}
	if _, err := Open(Options{Folder: t.TempDir(), Size: 100}); err == nil {
		t.Error("a table outside tmpfs")
	}
	info, err := os.Stat(filepath.Join(w.folder, "control"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("control: %v %v", info.Mode(), err)
	}
}

// Files that were removed are not used again: an Envoy that has them mapped must not
// take them for those of the next gateway.
func TestRemovedFilesMakeANewGeneration(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "run")
	w.put(t, route(generatedID, "10.0.0.5"))
	before := w.table.control.load(offGeneration)
	files, err := filepath.Glob(filepath.Join(w.folder, "routes.*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, again := range [][]byte{nil, content} { // removed, and replaced by another file
		_ = os.Remove(files[0])
		if again != nil {
			if err := os.WriteFile(files[0], again, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_ = w.table.control.close()
		w.begin(t, 100)
		w.table.beat(t.Context())
		if w.table.control.load(offGeneration) == before {
			t.Fatal("the generation of removed files is used again")
		}
		if got := envoy.Ask(t, request(generatedID, "80")...); got != nil {
			t.Fatalf("answered from removed files: %v", got)
		}
		before = w.table.control.load(offGeneration)
		if files, err = filepath.Glob(filepath.Join(w.folder, "routes.*")); err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
	}
}
