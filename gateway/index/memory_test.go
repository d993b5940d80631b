package index

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
)

const many = 100_000

// realisticPod returns the i-th pod with texts of real lengths, each in memory of
// its own as after decoding.
func realisticPod(i int) *corev1.Pod {
	id, claim, name := fmt.Sprintf("i%020d", i), fmt.Sprintf("c%020d", i), fmt.Sprintf("python-pool-%010d", i)
	p := claimedPod(name, id, claim, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String(), i+1)
	p.UID = realisticUID(i)
	return p
}

// realisticSandbox returns the sandbox of the i-th pod.
func realisticSandbox(i int) *v1alpha1.Sandbox {
	s := boundSandbox(fmt.Sprintf("i%020d", i), fmt.Sprintf("c%020d", i), fmt.Sprintf("python-pool-%010d", i))
	s.UID, s.Spec.Binding.PodUID = realisticUID(many+i), string(realisticUID(i))
	return s
}

func realisticUID(i int) types.UID { return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i)) }

// 100,000 pods cost at most 600 bytes each, their sandboxes 400 on top
// (bench/report/budgets.go).
func TestMemory(t *testing.T) {
	x, pods, sandboxes, _ := unstarted(Hooks{})
	start := heapInUse()
	for i := range many {
		must(t, pods.Add(realisticPod(i)))
	}
	withPods := heapInUse()
	for i := range many {
		must(t, sandboxes.Add(realisticSandbox(i)))
	}
	withBoth := heapInUse()
	perPod, perSandbox := float64(withPods-start)/many, float64(withBoth-withPods)/many
	t.Logf("%.0f bytes a pod, %.0f a sandbox", perPod, perSandbox)
	if perPod > 600 || perSandbox > 400 {
		t.Errorf("%.0f bytes a pod (budget 600), %.0f a sandbox (budget 400)", perPod, perSandbox)
	}
	if a := x.Resolve("i00000000000000000077"); a.State != routing.Running {
		t.Errorf("%v", a.State)
	}
}

// recordBytes is what the record of a sandbox took before there were pauses, and the 8
// bytes that these may take.
const recordBytes = 128 + 8

// The record of a sandbox takes no more than that of the memory, texts apart: the
// allocator rounds up.
func TestRecordOfASandbox(t *testing.T) {
	records := make([]*sandbox, many)
	start := heapInUse()
	for i := range records {
		records[i] = new(sandbox)
	}
	each := float64(heapInUse()-start) / many
	runtime.KeepAlive(records)
	t.Logf("%.0f bytes", each)
	if each > recordBytes {
		t.Errorf("%.0f bytes, want at most %d", each, recordBytes)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// maxResolveAllocs is what an answer of the index takes: the route.
const maxResolveAllocs = 1

func TestResolveAllocations(t *testing.T) {
	x, pods, sandboxes, _ := unstarted(Hooks{})
	must(t, pods.Add(realisticPod(1)))
	must(t, sandboxes.Add(realisticSandbox(1)))
	id := realisticSandbox(1).Name
	if n := testing.AllocsPerRun(100, func() {
		if x.Resolve(id).Route == nil {
			t.Fatal("no route")
		}
	}); n > maxResolveAllocs {
		t.Errorf("%v allocations, want at most %d", n, maxResolveAllocs)
	}
}

func BenchmarkResolve(b *testing.B) {
	x, pods, sandboxes, _ := unstarted(Hooks{})
	ids := make([]string, 10_000)
	for i := range ids {
		s := realisticSandbox(i)
		must(b, pods.Add(realisticPod(i)))
		must(b, sandboxes.Add(s))
		ids[i] = s.Name
	}
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if x.Resolve(ids[i%len(ids)]).Route == nil {
				b.Fatal("no route")
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				x.Resolve(ids[i%len(ids)])
			}
		})
	})
}

func BenchmarkPodEvent(b *testing.B) {
	_, pods, _, _ := unstarted(Hooks{})
	p := realisticPod(1)
	b.ReportAllocs()
	for b.Loop() {
		must(b, pods.Update(p))
	}
}
