package access

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/sandlane/sandlane/sandboxd/identity"
)

// numberHeader carries the number of an order.
const numberHeader = "Sandlane-Pause-Order"

// Order reads an order of a gateway, such as "freeze", and returns its number. It checks
// that the order is signed for this pod, this process and this sandbox, as /init is; but
// without a key every order is refused. If ok is false, Order has answered the request.
func (s *State) Order(w http.ResponseWriter, r *http.Request, order string) (number int64, ok bool) {
	number, err := strconv.ParseInt(r.Header.Get(numberHeader), 10, 64)
	if err != nil || number < 0 {
		Error(w, http.StatusBadRequest, "invalid order number")
		return 0, false
	}
	if s.options.InitKey == nil || !s.verify(r.Header, s.orderMessage(r.Header, order, number)) {
		Error(w, http.StatusUnauthorized, "unauthorized access, /"+order+" is for the control plane only")
		return 0, false
	}
	return number, true
}

// argumentsHeader carries the arguments of a command.
const argumentsHeader = "Sandlane-Arguments"

// Command reads a command of a gateway, such as "archive", with arguments and a body of at
// most limit bytes, which is read into buf if it fits there. It is signed as an order is. If
// ok is false, Command has answered the request.
func (s *State) Command(w http.ResponseWriter, r *http.Request, name string, limit int64, buf []byte) (arguments string, body []byte, ok bool) {
	body, digest, err := readBody(w, r, limit, buf)
	if err != nil {
		Error(w, http.StatusBadRequest, "invalid body: "+err.Error())
		return "", nil, false
	}
	arguments = r.Header.Get(argumentsHeader)
	if s.options.InitKey == nil || !s.verify(r.Header, s.commandMessage(r.Header, name, arguments, digest)) {
		Error(w, http.StatusUnauthorized, "unauthorized access, /"+name+" is for the control plane only")
		return "", nil, false
	}
	return arguments, body, true
}

// readBody reads the body of a request, in one piece if its length is known, and then into
// buf if it fits there. Its digest is computed while the rest of it is on its way.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, buf []byte) (body []byte, digest [sha256.Size]byte, err error) {
	sum := sha256.New()
	from := io.TeeReader(http.MaxBytesReader(w, r.Body, limit), sum)
	if r.ContentLength <= 0 || r.ContentLength > limit {
		body, err = io.ReadAll(from)
	} else {
		if int64(cap(buf)) < r.ContentLength {
			buf = make([]byte, r.ContentLength)
		}
		body = buf[:r.ContentLength]
		_, err = io.ReadFull(from, body)
	}
	return body, [sha256.Size]byte(sum.Sum(nil)), err
}

// commandMessage returns the message that is signed for a command; gateway/sandboxdclient signs the
// same message.
func (s *State) commandMessage(header http.Header, name, arguments string, body [sha256.Size]byte) []byte {
	return fmt.Appendf(nil, "sandlane %s 1\n%q\n%q\n%q\n%q\n%x\n",
		name, s.options.PodUID, s.nonce, header.Get(identity.SandboxHeader), arguments, body)
}

// Initialised reports whether /init was called; before that no command can be started.
func (s *State) Initialised() bool {
	_, claimed := s.token()
	return claimed
}

// orderMessage returns the message that is signed for an order; gateway/sandboxdclient signs the same
// message.
func (s *State) orderMessage(header http.Header, order string, number int64) []byte {
	return fmt.Appendf(nil, "sandlane %s 1\n%q\n%q\n%q\n%d\n",
		order, s.options.PodUID, s.nonce, header.Get(identity.SandboxHeader), number)
}
