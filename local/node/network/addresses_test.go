package network

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// needRoot skips with the reason.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if err := Try(); err != nil {
		t.Skip("needs networks of pods: ", err)
	}
}

// hashOf is a node's hash that no other test has.
func hashOf(t *testing.T) string {
	t.Helper()
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b[:])
}

func TestAddresses(t *testing.T) {
	subnet := netip.MustParsePrefix("198.18.0.0/29") // .1 is the machine's, .2 to .6 are pods'
	for _, lifo := range []bool{false, true} {
		a := NewAddresses(subnet, lifo)
		if !a.Keep("old", netip.MustParseAddr("198.18.0.3")) || a.Keep("x", netip.MustParseAddr("198.18.0.3")) ||
			a.Keep("x", netip.MustParseAddr("198.18.0.1")) || a.Keep("x", netip.MustParseAddr("198.18.0.7")) || a.Keep("x", netip.Addr{}) {
			t.Error("keep takes what it must not, or refuses what it may")
		}
		take := func(uid string) string {
			addr, err := a.Take(types.UID(uid))
			if err != nil {
				return err.Error()
			}
			return addr.String()[len("198.18.0."):]
		}
		if got := []string{take("p"), take("q"), take("old")}; !slices.Equal(got, []string{"2", "4", "3"}) {
			t.Errorf("lifo %v: got %v", lifo, got)
		}
		a.GiveBack("p")
		want := "5"
		if lifo {
			want = "2"
		}
		if got := take("r"); got != want {
			t.Errorf("lifo %v: after a release %s, want %s", lifo, got, want)
		}
		take("s")
		take("t")
		if got := take("u"); !strings.Contains(got, "no free pod address") {
			t.Errorf("lifo %v: all taken, got %s", lifo, got)
		}
	}
}

func TestPickSubnetIsExclusive(t *testing.T) {
	for _, isolated := range []bool{true, false} {
		a, err := PickSubnet(isolated)
		if err != nil {
			t.Fatal(err)
		}
		b, err := PickSubnet(isolated)
		if err != nil {
			t.Fatal(err)
		}
		if a.Overlaps(b.Prefix) || a.Bits() != 22 {
			t.Errorf("isolated %v: picked %s and %s", isolated, a.Prefix, b.Prefix)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		c, err := PickSubnet(isolated)
		if err != nil {
			t.Fatal(err)
		}
		if c.Overlaps(b.Prefix) {
			t.Errorf("isolated %v: %s is picked again", isolated, c.Prefix)
		}
		_, _ = b.Close(), c.Close()
	}
}

// A folder of locks that another user has made is not used.
func TestFolderOfLocksIsOurs(t *testing.T) {
	dir := t.TempDir()
	if err := OwnFolder(dir); err != nil {
		t.Error(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if OwnFolder(link) == nil {
		t.Error("a link is taken")
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if OwnFolder(dir) == nil {
		t.Error("a folder that others can write in is taken")
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if OwnFolder(dir) == nil {
		t.Error("another user's folder is taken")
	}
}
