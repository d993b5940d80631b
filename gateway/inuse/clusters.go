package inuse

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"strconv"
)

// maxLine bounds a line of Envoy's answer; the longest are some hundred bytes.
const maxLine = 64 << 10

var activeFigure = []byte("::rq_active::")

// parseActive reads Envoy's /clusters text and returns how many requests are
// open per address of the cluster: summed over the ports, and over the lines of
// one address and port, of which Envoy prints several when it has several
// workers. Addresses with none are left out. The lines are
//
//	sandbox::198.18.0.5:8000::rq_active::1
//	sandbox::[fd00::5]:8000::rq_active::1
//
// Anything that cannot be read is an error, and so is an answer without a single
// line of the cluster: what is not known must not look idle.
func parseActive(text io.Reader, cluster string) (map[netip.Addr]uint64, error) {
	prefix := []byte(cluster + "::")
	active := map[netip.Addr]uint64{}
	found := false
	lines := bufio.NewScanner(text)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	for lines.Scan() {
		line, ok := bytes.CutPrefix(lines.Bytes(), prefix)
		if !ok {
			continue
		}
		found = true
		addr, n, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		if n > 0 {
			active[addr] += n
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("no cluster %q", cluster)
	}
	return active, nil
}

// parseLine reads a line after the cluster's name; lines of other figures, and
// of nothing open, give 0.
func parseLine(line []byte) (netip.Addr, uint64, error) {
	hostPort, value, ok := bytes.Cut(line, activeFigure)
	if !ok || len(value) == 1 && value[0] == '0' { // most lines: no need to look at the address
		return netip.Addr{}, 0, nil
	}
	n, err := strconv.ParseUint(string(value), 10, 32)
	if err != nil {
		return netip.Addr{}, 0, err
	}
	addr, err := netip.ParseAddrPort(string(hostPort))
	if err != nil {
		return netip.Addr{}, 0, err
	}
	return addr.Addr().Unmap(), n, nil
}
