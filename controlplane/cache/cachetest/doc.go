// Package cachetest makes managers and Caches for tests of programs that use package
// cache, without an API server: GetMockManager, and New for a Cache that runs.
//
// Reads, indexes, informers and tasks are production's (NewControllerManager,
// BuildCacheConfig, NewCache). The API server is controller-runtime's fake client, which
// refuses a write of an older resourceVersion with a conflict, as the real one does; added
// here is what our objects need besides: UIDs, generations that count changes of the spec,
// a refused JSON Patch as the answer 422, and watches that lose nothing. It validates
// nothing and fills in no defaults.
//
// It is for tests alone: no program of ours has it in its binary, which a test holds.
package cachetest
