package fastpath

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sandlane/sandlane/test/cmodule"
)

// With garbage in the control file and in the marks the module gives the right answer or
// none, and reads nothing out of bounds. Once the head is right again, it answers again.
func TestGarbageInControlAndMarks(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "run", cmodule.Sanitized...)
	w.put(t, route(generatedID, "10.0.0.5"))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := w.table.control
	garbage := func(off int) uint64 {
		switch random.IntN(5) {
		case 0:
			return 0
		case 1:
			return ^uint64(0)
		case 2:
			return c.load(off) + uint64(random.IntN(5)) - 2
		case 3:
			return 1 << random.IntN(64)
		}
		return random.Uint64()
	}
	answers, none := 0, 0
	for range 20_000 {
		w.table.renew()
		right := slices.Clone(c.bytes)
		for range 1 + random.IntN(3) {
			off := 8 * random.IntN(offMarksInode/8+1)
			if random.IntN(3) == 0 {
				off = 8 * random.IntN(controlSize/8)
			}
			c.store(off, garbage(off))
		}
		*u32(w.table.marks, 4*random.IntN(len(w.table.marks)/4)) = random.Uint32()
		switch got := envoy.Ask(t, request(generatedID, "80")...); {
		case got == nil:
			none++
		case got["destination"] != "10.0.0.5:80" || got["claim"] != "claim-of-"+generatedID || got["pod_uid"] != "uid-of-"+generatedID:
			t.Fatalf("a wrong answer: %v", got)
		default:
			answers++
		}
		for off := 0; off < offWorkers; off += 8 {
			c.store(off, *u64(right, off))
		}
		c.store(offTerms, *u64(right, offTerms))
	}
	if answers == 0 || none == 0 {
		t.Errorf("%d answers, %d times none", answers, none)
	}
	w.table.beat(t.Context())
	if envoy.Ask(t, request(generatedID, "80")...) == nil {
		t.Error("no answer with the right head")
	}
}

// An Envoy that finds a head which no gateway of this layout wrote maps nothing and lives.
func TestGarbageInTheHeadThatIsMapped(t *testing.T) {
	w := newWorld(t, 100)
	w.put(t, route(generatedID, "10.0.0.5"))
	c := w.table.control
	program := cmodule.Build(t, cmodule.Sanitized...)
	answered := func() bool {
		envoy := cmodule.Start(t, program, "run", w.folder)
		defer func() {
			_ = envoy.Cmd.Process.Kill()
			_ = envoy.Cmd.Wait()
		}()
		envoy.Ask(t, request("nobody", "80")...) // takes the table over, if it is one
		w.table.beat(t.Context())
		return envoy.Ask(t, request(generatedID, "80")...) != nil
	}
	for off, values := range map[int][]uint64{
		offMagic:      {0, magic + 1},
		offLayout:     {0, layout - 1, layout + 1, ^uint64(0)},
		offGeneration: {0, c.load(offGeneration) + 1, ^uint64(0)},
		offEntries:    {0, c.load(offEntries) - 1, c.load(offEntries) + 1, indexMask, 1 << 40, ^uint64(0)},
		offBuckets:    {0, 3, c.load(offBuckets) / 2, c.load(offBuckets) * 2, 1 << 32, 1 << 63, ^uint64(0)},
	} {
		right := c.load(off)
		for _, value := range values {
			c.store(off, value)
			if answered() {
				t.Errorf("answered with %#x at %d", value, off)
			}
		}
		c.store(off, right)
	}
	if !answered() {
		t.Error("no answer with the right head")
	}
}

// A gateway with another layout writes its table in the same folder: the module answers
// nothing from then on. The next gateway with the module's layout settles that table, and
// the module answers again; what is without a table settles it as well.
func TestAnotherLayout(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "run")
	w.put(t, route(generatedID, "10.0.0.5"))
	answers := func() bool { return envoy.Ask(t, request(generatedID, "80")...) != nil }
	for range 3 {
		w.table.beat(t.Context())
		eventually(t, "no answer before", func() bool { w.table.beat(t.Context()); return answers() })
		c := w.table.control
		c.store(offLayout, layout+1)
		c.store(offGeneration, randomWord())
		if answers() {
			t.Fatal("answered from a table of another layout")
		}
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
		if err := SettleFolder(t.Context(), w.folder); err != nil {
			t.Errorf("a table of another layout is not settled: %v", err)
		}
		if c.load(offTrustBoot) != 0 || c.load(offTrustWall) != 0 {
			t.Error("a settled table of another layout is trusted")
		}
		w.begin(t, 100)
		w.table.beat(t.Context())
		if answers() {
			t.Fatal("answered from the table before")
		}
		w.put(t, route(generatedID, "10.0.0.5"))
	}
}
