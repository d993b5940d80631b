// Package failpoint lets chaos tests stop a process at a named place of its
// code: kill it there, hold it there, or slow it down there. Call Hit, with the name
// package/place, where a test is to be able to stop a process.
//
// It does nothing in a normal build: Hit is empty and is compiled away, and the
// functions that others call from wiring return what they were given. With the
// build tag failpoints, and the variable SANDLANE_FAILPOINTS naming a folder, a
// point is armed by a file of the point's name in that folder, whose text says
// what happens:
//
//	kill        the file is renamed to NAME.hit, and the process kills itself
//	hold        a file NAME.held is made, and the caller waits until the first is gone
//	delay 5s    read by Delay; Hit ignores it
//
// Watches delays what an API client's watches bring by such a point, Requests
// holds an API client's requests and answers at one.
//
// A process finds its own folder there: `sandlane up` gives each child one of
// its name (Env). Only test/chaos builds with the tag. Points are named
// package/place.
package failpoint
