package schedule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
)

// chaos answers calls late and wrongly, before and after applying them.
func chaos(seed uint64) func(string, func() error) error {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, seed))
	roll := func() (int, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(20), time.Duration(rnd.Int64N(int64(200 * time.Millisecond)))
	}
	return func(_ string, apply func() error) error {
		n, d := roll()
		<-time.After(d)
		switch n {
		case 0:
			return errors.New("connection reset")
		case 1:
			return errors.Join(apply(), errors.New("connection reset"))
		case 2:
			return tooMany(1)
		case 3:
			return statusError(500, "", nil)
		case 4:
			return statusError(409, "", nil)
		case 5:
			go func() { <-time.After(time.Second); _ = apply() }() // lands late
			return context.DeadlineExceeded
		}
		return apply()
	}
}

// Whatever the API server does, every accepted request gets exactly one result
// by its deadline, no pod serves two, and a claim is only on the pod that its request
// was given.
func TestEveryRequestGetsOneResult(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { manyRequests(t, seed) })
		})
	}
}

func manyRequests(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	r := newRig(t)
	r.api.answers(chaos(seed))
	type asked struct {
		*ClaimRequest
		answeredAt time.Time
		res        ClaimResult
	}
	var all []*asked
	var readers sync.WaitGroup
	for i := range 150 {
		patience := time.Duration(rnd.Int64N(int64(10 * time.Second)))
		q := &asked{ClaimRequest: r.ask(t, fmt.Sprint("s", i), patience, func(q *ClaimRequest) {
			q.Bind = func(context.Context, *corev1.Pod) error { <-time.After(time.Millisecond); return nil }
		})}
		all = append(all, q)
		readers.Go(func() { q.res = <-resultsOf(q.ClaimRequest); q.answeredAt = time.Now() })
		if i%2 == 0 {
			pod := r.api.idle(fmt.Sprint("p", i))
			go func() { <-time.After(patience / 2); r.Offer(pod) }()
		}
		<-time.After(time.Duration(rnd.Int64N(int64(20 * time.Millisecond))))
	}
	readers.Wait()
	pass(time.Minute)
	r.stop()
	served := make(map[string]string)
	for _, q := range all {
		if late := q.answeredAt.Sub(q.Deadline); late > 0 {
			t.Errorf("request %s was answered %v late", q.SandboxID, late)
		}
		if len(q.ResultCh) > 0 {
			t.Errorf("request %s has two results", q.SandboxID)
		}
		if q.res.Err != nil {
			continue
		}
		name := q.res.Pod.Name
		if other, ok := served[name]; ok {
			t.Errorf("pod %s serves %s and %s", name, other, q.SandboxID)
		}
		served[name] = q.SandboxID
		claim := Claim{SandboxID: q.SandboxID, ClaimID: q.ClaimID, PodUID: q.res.Pod.UID}
		if now := r.api.pod(name); !claim.On(now) || v1alpha1.PhaseOf(now) != v1alpha1.PodRunning {
			t.Errorf("pod %s of %s has labels %v, annotations %v", name, q.SandboxID, now.Labels, now.Annotations)
		}
	}
	if len(served) < 30 {
		t.Errorf("only %d of 75 pods were given out", len(served))
	}
}
