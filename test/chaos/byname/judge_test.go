package byname

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Names of the internet, and the header by which a sandbox says who it is and when it asked.
const (
	ruledHost, plainHost = "api.example", "plain.example"
	headerClaim          = "X-Claim"
	headerSent           = "X-Sent"
)

// outlive is how long after the acknowledged fence of its claim a connection may pass bytes.
const outlive = time.Second

// credential is what requests of a claim to ruledHost carry, and nothing else does.
func credential(claim string) string { return "key-of-" + claim }

// judge is what the internet holds against what it is asked. It is safe for concurrent use.
type judge struct {
	t *testing.T

	mu     sync.Mutex
	fenced map[string]time.Time // when a claim's fence was acknowledged
	// ruled and plain are requests, streamed what was sent by streams.
	ruled, plain, streamed int
	wrong                  int
}

func newJudge(t *testing.T) *judge { return &judge{t: t, fenced: map[string]time.Time{}} }

// over notes that a claim's fence is acknowledged.
func (j *judge) over(claim string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fenced[claim] = time.Now()
}

// fail fails the test with what one request did; the first ones say it all. mu is held.
func (j *judge) fail(format string, args ...any) {
	if j.wrong++; j.wrong <= 20 {
		j.t.Errorf(format, args...)
	}
}

// sent judges the moment at which a claim's client sent something that has arrived here. The
// client's clock is this one, so an internet that is late to read says nothing false. mu is
// held.
func (j *judge) sent(claim string, at time.Time) {
	if fenced, over := j.fenced[claim]; over && at.Sub(fenced) > outlive {
		j.fail("a connection passes bytes of claim %s that were sent %s after its fence was acknowledged", claim, at.Sub(fenced))
	}
}

// ServeHTTP is the internet.
func (j *judge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	claim, auth := r.Header.Get(headerClaim), r.Header.Values("Authorization")
	at, err := strconv.ParseInt(r.Header.Get(headerSent), 10, 64)
	j.mu.Lock()
	switch {
	case claim == "" || err != nil:
		j.fail("a request of nobody: %s %s", r.Host, r.URL.Path)
	case r.Host == ruledHost && (len(auth) != 1 || auth[0] != credential(claim)):
		j.fail("WRONG CREDENTIAL: a request of claim %s to %s carries %q", claim, r.Host, auth)
	case r.Host == plainHost && len(auth) > 0:
		j.fail("WRONG CREDENTIAL: a request of claim %s to %s, which has no rule, carries %q", claim, r.Host, auth)
	case r.Host == ruledHost:
		j.ruled++
	default:
		j.plain++
	}
	j.sent(claim, time.Unix(0, at))
	j.mu.Unlock()
	if r.URL.Path == "/stream" {
		j.stream(w, r, claim)
		return
	}
	fmt.Fprint(w, claim)
}

// stream takes times until the connection ends, and answers each with a byte.
func (j *judge) stream(w http.ResponseWriter, r *http.Request, claim string) {
	c := http.NewResponseController(w)
	_ = c.EnableFullDuplex()
	for {
		var at [8]byte
		if _, err := io.ReadFull(r.Body, at[:]); err != nil {
			return
		}
		j.mu.Lock()
		j.streamed++
		j.sent(claim, time.Unix(0, int64(binary.BigEndian.Uint64(at[:]))))
		j.mu.Unlock()
		if _, err := w.Write([]byte{1}); err != nil || c.Flush() != nil {
			return
		}
	}
}

// answered is how many requests and bytes of streams the internet has answered.
func (j *judge) answered() (ruled, plain, streamed int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ruled, j.plain, j.streamed
}
