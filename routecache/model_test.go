package routecache

import (
	"net/netip"
	"strconv"
	"testing"
)

// model is the cache as simply as it can be said: no shards, no stripes, no
// eviction, no bound, every step since the beginning remembered.
type model struct {
	routes  map[string]*Route
	now     int            // steps so far
	ended   map[string]int // step of the last Invalidate
	emptied int            // step of the last DropAll
	seen    uint64
	fences  []modelFence
}

type modelFence struct {
	addr   netip.Addr
	rv     uint64
	lifted int // step at which the fence and the pod watch had both come; 0 = not yet
}

func (m *model) put(began int, r *Route) bool {
	if m.ended[r.SandboxID] > began || m.emptied > began {
		return false
	}
	for _, f := range m.fences {
		if f.addr == r.Addr && r.PodRV < f.rv && (f.lifted == 0 || f.lifted > began) {
			return false
		}
	}
	if old := m.routes[r.SandboxID]; old == nil || old.PodRV <= r.PodRV {
		m.routes[r.SandboxID] = r
	}
	return true
}

func (m *model) fence(addr netip.Addr, rv uint64) {
	f := modelFence{addr: addr, rv: rv}
	if m.seen >= rv {
		f.lifted = m.now
	}
	m.fences = append(m.fences, f)
	for id, r := range m.routes {
		if r.Addr == addr && r.PodRV < rv {
			delete(m.routes, id)
		}
	}
}

func (m *model) podsSeen(rv uint64) {
	m.seen = max(m.seen, rv)
	for i := range m.fences {
		if f := &m.fences[i]; f.lifted == 0 && f.rv <= m.seen {
			f.lifted = m.now
		}
	}
}

// open is a resolve that has begun, on both sides.
type open struct {
	id    string
	token Token
	began int
}

// FuzzModel drives cache and model with the same steps, three bytes each. The
// cache may refuse more than the model (stripes, superseded fences), never less,
// and never holds a route that the model lacks.
func FuzzModel(f *testing.F) {
	f.Add([]byte{0, 1, 1, 1, 0, 9, 2, 1, 5, 1, 0, 9, 3, 0, 6, 1, 0, 9})
	f.Add([]byte{0, 0, 0, 2, 0, 200, 3, 0, 201, 1, 0, 3, 0, 0, 0, 1, 0, 3})
	f.Add([]byte{0, 3, 0, 4, 3, 0, 1, 0, 7, 0, 3, 0, 1, 1, 7, 5, 0, 0})
	f.Fuzz(func(t *testing.T, steps []byte) {
		c := New(4096)
		m := &model{routes: map[string]*Route{}, ended: map[string]int{}}
		var opens []open
		refusedMore := 0
		for ; len(steps) >= 3; steps = steps[3:] {
			m.now++
			a, b := steps[1], steps[2]
			id, addr := "s"+strconv.Itoa(int(a%8)), worldAddr(int(a/8%4))
			switch steps[0] % 7 {
			case 0:
				opens = append(opens, open{id: id, token: c.Begin(id), began: m.now})
			case 1:
				if len(opens) == 0 {
					continue
				}
				o := opens[int(a)%len(opens)]
				r := &Route{SandboxID: o.id, ClaimID: "c", Addr: worldAddr(int(a / 64)), PodRV: uint64(b), Use: new(ClaimUse)}
				got, want := c.Put(o.token, r), m.put(o.began, r)
				if got && !want {
					t.Fatalf("step %d: Put %+v accepted, the model refuses", m.now, r)
				}
				if want && !got {
					refusedMore++
				}
			case 2:
				if err := c.Fence(t.Context(), []Fence{{Addr: addr, RV: uint64(b)}}); err != nil {
					t.Fatal(err)
				}
				m.fence(addr, uint64(b))
			case 3:
				c.PodsSeen(uint64(b))
				m.podsSeen(uint64(b))
			case 4:
				c.Invalidate(id)
				delete(m.routes, id)
				m.ended[id] = m.now
			case 5:
				if r := m.routes[id]; r != nil {
					c.Drop(r)
					delete(m.routes, id)
				}
			case 6:
				if b < 16 { // seldom
					c.DropAll()
					clear(m.routes)
					m.emptied = m.now
				}
			}
			for i := range 8 {
				id := "s" + strconv.Itoa(i)
				got, want := c.Get(id), m.routes[id]
				if got != nil && got != want && refusedMore == 0 {
					t.Fatalf("step %d: %s: cache has %+v, model has %+v", m.now, id, got, want)
				}
				if got == nil && want != nil && refusedMore == 0 {
					t.Fatalf("step %d: %s: the cache lost %+v", m.now, id, want)
				}
			}
		}
		checkAddresses(t, c)
	})
}
