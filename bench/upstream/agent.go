package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// ServeAgent answers /init as the sandboxd of every pod: first a nonce for the signature,
// which it does not check, then success. It ends when the listener is closed.
func ServeAgent(l net.Listener) error {
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"nonce":"bench"}`))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})}
	if err := s.Serve(l); !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve as sandboxd: %w", err)
	}
	return nil
}
