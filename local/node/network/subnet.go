package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Ranges that PickSubnet takes a /22 from: 198.18.0.0/15 is reserved for
// benchmarks (RFC 2544), so no private network or VPN uses it. The first /22s
// of 127.0.0.0/9 are left alone.
var (
	fullRange = netip.MustParsePrefix("198.18.0.0/15")
	noneRange = netip.MustParsePrefix("127.64.0.0/10")
)

// Subnet is a reserved network. Close it when nothing uses it any more; the
// end of the process does so too.
type Subnet struct {
	netip.Prefix
	lock *os.File
}

// Close gives the network back. It may be called more than once.
func (s *Subnet) Close() error { return s.lock.Close() }

// PickSubnet reserves a free /22 for a node: of 198.18.0.0/15 for isolated
// pods, else of 127.64.0.0/10. Free means that no other living
// process reserved it (a lock file each, held by the caller's process until
// Close) and that no link or route of this machine overlaps it. Safe for
// concurrent use by many processes.
func PickSubnet(isolated bool) (*Subnet, error) {
	pool := fullRange
	var used []netip.Prefix
	if !isolated {
		pool = noneRange
	} else {
		var err error
		if used, err = usedNetworks(); err != nil {
			return nil, err
		}
	}
	dir, err := lockDir()
	if err != nil {
		return nil, err
	}
	for base := pool.Addr(); pool.Contains(base); base = plus(base, 1<<10) {
		prefix := netip.PrefixFrom(base, 22)
		if overlapsAny(prefix, used) {
			continue
		}
		lock, err := tryLock(filepath.Join(dir, "subnet-"+base.String()))
		if err != nil {
			return nil, err
		}
		if lock != nil {
			return &Subnet{Prefix: prefix, lock: lock}, nil
		}
	}
	return nil, fmt.Errorf("every /22 of %s is in use", pool)
}

func overlapsAny(p netip.Prefix, used []netip.Prefix) bool {
	for _, u := range used {
		if p.Overlaps(u) {
			return true
		}
	}
	return false
}

func plus(a netip.Addr, n uint32) netip.Addr {
	raw := a.As4()
	v := uint32(raw[0])<<24 | uint32(raw[1])<<16 | uint32(raw[2])<<8 | uint32(raw[3])
	v += n
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// usedNetworks are those of all links and routes, the default route aside.
func usedNetworks() ([]netip.Prefix, error) {
	var used []netip.Prefix
	add := func(n *net.IPNet) {
		if n == nil {
			return
		}
		ones, bits := n.Mask.Size()
		if addr, ok := netip.AddrFromSlice(n.IP.To4()); ok && bits == 32 && ones > 8 {
			used = append(used, netip.PrefixFrom(addr, ones).Masked())
		}
	}
	addrs, err := listed(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("list this machine's addresses: %w", err)
	}
	for _, a := range addrs {
		add(a.IPNet)
	}
	routes, err := listed(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("list this machine's routes: %w", err)
	}
	for _, r := range routes {
		add(r.Dst)
	}
	return used, nil
}

// lockDir is where all processes of this user look, whatever their TMPDIR.
func lockDir() (string, error) {
	dir := "/run/sandlane"
	if os.Geteuid() != 0 {
		dir = os.Getenv("XDG_RUNTIME_DIR")
		if dir == "" {
			dir = "/tmp"
		}
		dir = filepath.Join(dir, "sandlane-"+strconv.Itoa(os.Geteuid()))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the folder of locks: %w", err)
	}
	return dir, OwnFolder(dir)
}

// OwnFolder returns an error unless the path is a folder, and no link to one, that belongs
// to this user and that no other can write in: else another user may have made what is in
// it.
func OwnFolder(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("look whose the folder is: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s is not a folder of this user (%d) alone", dir, os.Geteuid())
	}
	return nil
}

// tryLock returns nil without an error if another process holds the lock.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}
