// Package cachetest makes managers and Caches for tests of programs that use package
// cache, without an API server: GetMockManager makes a manager, New a Cache that runs.
//
// Reads, indexes, informers and tasks are those of package cache (NewControllerManager,
// BuildCacheConfig, NewCache). The API server is controller-runtime's fake client, which
// refuses a write of an older resourceVersion with a conflict, as a real one does. This
// package adds what Sandlane's objects also need: UIDs, generations that count changes of the
// spec, the answer 422 to a refused JSON Patch, and watches that lose no event. It validates
// nothing, sets no defaults, and refuses server-side apply with an error.
//
// It is only for tests: a test ensures that no program of Sandlane imports it.
package cachetest
