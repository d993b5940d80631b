package index

// Paused returns how many sandboxes of a pool are paused and keep their pods, by the watch.
func (x *Index) Paused(namespace, pool string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.paused[poolKey{namespace, pool}]
}

// countPaused counts a sandbox's change; either record may be nil.
func (x *Index) countPaused(old, new *sandbox) {
	was, is := pausedIn(old), pausedIn(new)
	if was == is {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if was != (poolKey{}) {
		if x.paused[was]--; x.paused[was] == 0 {
			delete(x.paused, was)
		}
	}
	if is != (poolKey{}) {
		x.paused[is]++
	}
}

// pausedIn is the pool that a sandbox is paused in; zero if it is not.
func pausedIn(s *sandbox) poolKey {
	if s == nil || s.ended || !s.paused || s.claim == "" {
		return poolKey{}
	}
	return poolKey{s.namespace.Value(), s.pool.Value()}
}
