package routecache

import "testing"

// An API server that goes back makes versions of before larger than those of now. After
// a Rewind a new fence holds as before, and earlier fences do not.
func TestRewind(t *testing.T) {
	c := New(100)
	c.PodsSeen(1000)
	put(c, testRoute("before", "10.0.0.1", 900))
	fence(t, c, addr1, 2000) // its pod watch never came so far
	begun := c.Begin("begun")

	c.Rewind()
	if c.Len() != 0 {
		t.Error("a route of before is kept")
	}
	meanwhile := c.Begin("meanwhile")
	if put(c, testRoute("early", "10.0.0.2", 7)) {
		t.Error("a route is cached before the pods are listed anew")
	}
	c.PodsSeen(500)
	if c.Put(begun, testRoute("begun", "10.0.0.2", 900)) || c.Put(meanwhile, testRoute("meanwhile", "10.0.0.2", 7)) {
		t.Error("a resolve that began before the list is let in")
	}
	if !put(c, testRoute("now", "10.0.0.1", 490)) {
		t.Error("a fence of before refuses a route of now")
	}

	fence(t, c, addr1, 520)
	if c.Get("now") != nil || put(c, testRoute("now", "10.0.0.1", 490)) {
		t.Error("a fence that the pod watch has not come to does not refuse")
	}
	c.PodsSeen(520)
	if !put(c, testRoute("next", "10.0.0.1", 530)) {
		t.Error("a route of the address's next pod is refused")
	}
}
