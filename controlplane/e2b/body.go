package e2b

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// maxBody bounds a request's body.
const maxBody = 1 << 20

// readBody replaces the body, of known length or chunked, by one in memory. Its
// deadline is gone from the connection when it returns.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	tooLarge := refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("The request's body is larger than %d bytes.", maxBody))
	if r.ContentLength > maxBody {
		return tooLarge
	}
	// A writer without deadlines, such as a test's recorder, refuses; nothing is
	// lost then.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(s.body))
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return refuse(http.StatusRequestTimeout, "The request's body took too long to arrive.")
	case err != nil:
		return refuse(http.StatusBadRequest, "The request's body could not be read.")
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	return nil
}

// decode reads the validated body into into; an empty one leaves it as it is.
func decode(r *http.Request, into any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("read a body from memory: %w", err)
	}
	if len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		// The decoder's text may repeat what the body says; it is not passed on.
		return refuse(http.StatusBadRequest, "The request's body is not what this operation takes.")
	}
	return nil
}
