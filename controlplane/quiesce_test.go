package controlplane

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
)

// fakeQuiescer answers what it is told to.
type fakeQuiescer struct {
	mu    sync.Mutex
	asked []Quiesce
	err   error
}

func (f *fakeQuiescer) Quiesce(_ context.Context, q Quiesce) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, q)
	return f.err
}

func (f *fakeQuiescer) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// One gateway is enough; its word counts, and one that does not answer is passed over.
func TestQuiesce(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		q := Quiesce{SandboxID: "i0", ClaimID: "c", Freeze: true, Generation: 7}
		if err := s.client.Quiesce(t.Context(), q); err == nil {
			t.Error("without a gateway it is done")
		}
		one, two := s.run("g1", "a"), s.run("g2", "b")
		s.cutOff("g1", true)
		for _, c := range []struct{ says, want error }{
			{nil, nil}, {ErrMoved, ErrMoved}, {ErrNoFreezer, ErrNoFreezer},
		} {
			two.quiets.set(c.says)
			if err := s.client.Quiesce(t.Context(), q); !errors.Is(err, c.want) {
				t.Errorf("%v: %v", c.says, err)
			}
		}
		two.quiets.set(errors.New("the pod is deaf"))
		err := s.client.Quiesce(t.Context(), q)
		if !errors.Is(err, ErrNotDone) || errors.Is(err, ErrMoved) || errors.Is(err, ErrNoFreezer) || !strings.Contains(err.Error(), "deaf") {
			t.Errorf("a failure: %v", err)
		}
		if len(one.quiets.asked) != 0 || len(two.quiets.asked) != 4 || two.quiets.asked[0] != q {
			t.Errorf("asked: %+v and %+v", one.quiets.asked, two.quiets.asked)
		}
		s.cutOff("g2", true)
		if err := s.client.Quiesce(t.Context(), q); err == nil || errors.Is(err, ErrNotDone) {
			t.Errorf("none has answered: %v", err)
		}
	})
}
