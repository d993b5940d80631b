// Package lastcreate remembers when each pool was last asked for a sandbox, whatever
// became of that. A gateway tells its Tracker (Bump), which writes the time to the
// pool's annotation sandlane.dev/last-create. The controller asks gateways for what
// they have in memory, and reads the annotation for what came before they started.
//
// It decides nothing, and nothing waits for it: a time that is lost makes a pool shrink
// or not grow ahead of demand for a while.
//
// # When the annotation is written
//
// Every interval, by each gateway, for each pool that was asked for since. It moves
// forward only, and by an interval at least: of many gateways the first one to write
// spares the others the write. A write tests the value that was seen before it, so of
// two at once one is dropped, since the other's time is as good. A time that lies
// ahead, of a clock that is fast or was set back, counts as the time at which this
// process first saw it: so it is overwritten once it is an interval old, and not by
// every gateway in turn.
//
//	the API server is away         kept, and tried again at the next flush
//	the pool is gone               forgotten
//	another gateway wrote          nothing to do
//	the process stops              one more flush, bounded by a time of its own; what is
//	                               not an interval newer than the annotation is not written
//	the process is killed          what was not flushed is lost, an interval at most
package lastcreate
