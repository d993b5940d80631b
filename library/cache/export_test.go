package cache

import "time"

// SetPoll changes how often waiting tasks of c read the API server. Call it before there
// are any.
func SetPoll(c *Cache, d time.Duration) { c.poll = d }
