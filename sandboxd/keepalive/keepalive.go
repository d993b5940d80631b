// Package keepalive says how often a stream carries a keepalive: Interval reads it from a
// request. The packages of sandboxd that stream call it.
package keepalive

import (
	"net/http"
	"strconv"
	"time"
)

// Default is the pause after which an idle stream carries a keepalive, unless its request
// says otherwise.
const Default = 90 * time.Second

// Interval returns the pause that the header Keepalive-Ping-Interval of E2B's SDKs asks
// for, in seconds; Default for none, and for what is no number of seconds up to a day.
func Interval(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Keepalive-Ping-Interval"))
	if err != nil || seconds <= 0 || seconds > 24*60*60 {
		return Default
	}
	return time.Duration(seconds) * time.Second
}
