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

var activeFigure, connectionsFigure = []byte("::rq_active::"), []byte("::cx_active::")

// parseActive reads Envoy's /clusters text and returns how many requests are
// open per address of the cluster, and how many connections, with those that are being made: summed over the ports, and over the lines of
// one address and port, of which Envoy prints several when it has several
// workers. Addresses with none are left out. The lines are
//
//	sandbox::198.18.0.5:8000::rq_active::1
//	sandbox::[fd00::5]:8000::cx_active::1
//
// Anything that cannot be read is an error, and so is an answer without a single
// line of the cluster: what is not known must not look idle.
func parseActive(text io.Reader, cluster string) (active, connections map[netip.Addr]uint64, err error) {
	prefix := []byte(cluster + "::")
	active, connections = map[netip.Addr]uint64{}, map[netip.Addr]uint64{}
	found := false
	lines := bufio.NewScanner(text)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	for lines.Scan() {
		line, ok := bytes.CutPrefix(lines.Bytes(), prefix)
		if !ok {
			continue
		}
		found = true
		into, figure := active, activeFigure
		if bytes.Contains(line, connectionsFigure) {
			into, figure = connections, connectionsFigure
		}
		addr, n, err := parseLine(line, figure)
		if err != nil {
			return nil, nil, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		if n > 0 {
			into[addr] += n
		}
	}
	if err := lines.Err(); err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, nil, fmt.Errorf("no cluster %q", cluster)
	}
	return active, connections, nil
}

// parseLine reads a line after the cluster's name; lines of other figures, and
// of nothing open, give 0.
func parseLine(line, figure []byte) (netip.Addr, uint64, error) {
	hostPort, value, ok := bytes.Cut(line, figure)
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
