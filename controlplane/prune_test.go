package controlplane

import (
	"context"
	"testing"
)

// A list that began before a gateway was known closes no connection to it, however
// late it is dealt with: a call may be in flight there. A list that begins later does.
func TestOlderListClosesNoConnection(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		older := s.client.beginList()
		g := s.run("g1", "a")
		g.releases.set(func(context.Context) ([]string, bool) {
			s.client.prune(nil, older)
			return nil, true
		})
		if _, err := s.client.PrepareRelease(t.Context(), releases); err != nil {
			t.Errorf("a call during which an older list was dealt with: %v", err)
		}
		open := func() int {
			s.client.mu.Lock()
			defer s.client.mu.Unlock()
			return len(s.client.conns)
		}
		if n := open(); n != 1 {
			t.Errorf("%d connections after an older list, want 1", n)
		}
		between := s.client.beginList() // and ends after a list that names the gateway
		s.wantUnanswered(s.fence(1), "", "meanwhile")
		s.client.prune(nil, between)
		if n := open(); n != 1 {
			t.Errorf("%d connections after a list that began before the last that names the gateway, want 1", n)
		}
		s.client.prune(nil, s.client.beginList())
		if n := open(); n != 0 {
			t.Errorf("%d connections after a newer list without the gateway, want 0", n)
		}
	})
}
