package relay

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
)

// scan returns the addresses on which programs of this network namespace listen. If the
// kernel cannot be asked, or the container may not ask it, scan reads the files of /proc. That
// takes a hundred times as long, a hundredth of a second on a large machine, since the kernel
// goes through a table of all connections of the machine.
func scan() ([]netip.AddrPort, error) {
	if all, err := diag(); err == nil {
		return all, nil
	}
	return files()
}

// files is scan with the files of /proc.
func files() ([]netip.AddrPort, error) {
	var all []netip.AddrPort
	for _, file := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("reading which sockets listen: %w", err)
		}
		all, err = parse(all, f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
	}
	return all, nil
}

// stateListen is the state TCP_LISTEN in the files.
var stateListen = []byte("0A")

// parse appends the listeners of a file in the form of /proc/net/tcp. It skips lines that it
// cannot parse.
func parse(all []netip.AddrPort, r io.Reader) ([]netip.AddrPort, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		// sl local_address rem_address st …
		if !bytes.Contains(lines.Bytes(), stateListen) { // most lines, where there are many
			continue
		}
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 4 || !bytes.Equal(fields[3], stateListen) {
			continue
		}
		if at, ok := parseAddress(fields[1]); ok {
			all = append(all, at)
		}
	}
	return all, lines.Err()
}

// parseAddress reads ADDRESS:PORT in hexadecimal digits. The address is written as
// words of 32 bits in the order of this machine's processor.
func parseAddress(text []byte) (netip.AddrPort, bool) {
	words, port, found := bytes.Cut(text, []byte{':'})
	number, err := strconv.ParseUint(string(port), 16, 16)
	raw, err2 := hex.AppendDecode(nil, words)
	if !found || err != nil || err2 != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), ok
}
