package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
)

// logLevelPath is where a process's metrics port answers for its log's level.
const logLevelPath = "/log-level"

// LevelHandler returns what answers at [logLevelPath]. Call it after Open.
func (o *LogOptions) LevelHandler() http.Handler { return logLevel{o.now} }

// logLevel answers what the least level is that is logged (GET), and sets it until
// the process ends (PUT, with the level as the body). It answers callers of its own
// machine or pod alone, which `kubectl port-forward` is one of: what may change a
// process may change its log, and nothing else that reaches the port.
type logLevel struct{ level *slog.LevelVar }

func (l logLevel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !fromHere(r.RemoteAddr) {
		http.Error(w, "the log's level is for callers on this machine: use kubectl port-forward", http.StatusForbidden)
		return
	}
	switch r.Method {
	case http.MethodGet:
	case http.MethodPut:
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64))
		if err != nil {
			http.Error(w, "the body must be debug, info, warn or error", http.StatusBadRequest)
			return
		}
		level, err := parseLevel(strings.TrimSpace(string(body)))
		if err != nil {
			http.Error(w, "the body "+err.Error(), http.StatusBadRequest)
			return
		}
		before := l.level.Level()
		l.level.Set(level)
		slog.Warn("the log's level was changed", "from", before, "to", level)
	default:
		w.Header().Set("Allow", "GET, PUT")
		http.Error(w, "GET or PUT", http.StatusMethodNotAllowed)
		return
	}
	_, _ = fmt.Fprintln(w, strings.ToLower(l.level.Level().String()))
}

// fromHere reports whether a connection comes from the address that stands for the
// same network namespace. Others of 127.0.0.0/8 are what proxies in a pod use.
func fromHere(remote string) bool {
	addr, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	ip := addr.Addr().Unmap()
	return ip == netip.IPv6Loopback() || ip == netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

func parseLevel(text string) (level slog.Level, err error) {
	switch strings.ToLower(text) {
	case "debug", "info", "warn", "error":
		return level, level.UnmarshalText([]byte(text))
	}
	return 0, fmt.Errorf("%q: must be debug, info, warn or error", text)
}
