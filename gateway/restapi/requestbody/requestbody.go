// Package requestbody reads the bodies of requests into memory, bounded and as text that a
// decoder takes for what it says. Package restapi calls Read before it validates a request.
package requestbody

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"unicode/utf8"
)

// Max bounds a request's body, in bytes.
const Max = 1 << 20

// Error is why a body is refused, with the status and the text of the answer.
type Error struct {
	Status  int
	Message string
}

func (e *Error) Error() string { return e.Message }

func refuse(status int, message string) error { return &Error{Status: status, Message: message} }

// Read replaces the body, of known length or chunked, by one in memory. Its errors are of
// type [*Error].
func Read(w http.ResponseWriter, r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	tooLarge := refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("The request's body is larger than %d bytes.", Max))
	if r.ContentLength > Max {
		w.Header().Set("Connection", "close")
		return tooLarge
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, Max))
	var exceeded *http.MaxBytesError
	switch {
	case errors.As(err, &exceeded):
		w.Header().Set("Connection", "close")
		return tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return refuse(http.StatusRequestTimeout, "The request's body took too long to arrive.")
	case err != nil:
		return refuse(http.StatusBadRequest, "The request's body could not be read.")
	}
	if !utf8.Valid(data) {
		return refuse(http.StatusBadRequest, "The request's body is not valid UTF-8.")
	}
	if loneSurrogate(data) {
		return refuse(http.StatusBadRequest, "The request's body has half of a character: a surrogate without its other half.")
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	return nil
}
