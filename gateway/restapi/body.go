package restapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"unicode/utf8"

	"sigs.k8s.io/json"
)

// maxBody bounds a request's body.
const maxBody = 1 << 20

// readBody replaces the body, of known length or chunked, by one in memory.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	tooLarge := refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("The request's body is larger than %d bytes.", maxBody))
	if r.ContentLength > maxBody {
		w.Header().Set("Connection", "close")
		return tooLarge
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
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

// decode reads the validated body into into; an empty one leaves it as it is. Names
// count as they are written, as in openapi.yaml against which the body was checked:
// the decoder of the standard library would take "Timeout" for "timeout", unchecked.
func decode(r *http.Request, into any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("read a body from memory: %w", err)
	}
	if len(data) == 0 {
		return nil
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(data, into); err != nil {
		// The decoder's text may repeat what the body says; it is not passed on.
		return refuse(http.StatusBadRequest, "The request's body is not what this operation takes.")
	}
	return nil
}
