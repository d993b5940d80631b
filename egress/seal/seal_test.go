package seal

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

var place = Place{"team-a", "api-key"}

func pair(t *testing.T) (private []byte, public *PublicKey) {
	t.Helper()
	private, encoded, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if public, err = ParsePublicKey(encoded); err != nil {
		t.Fatal(err)
	}
	return private, public
}

func opener(t *testing.T, private ...[]byte) *Opener {
	t.Helper()
	o, err := NewOpener(private...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// A value opens where it was sealed for, and nowhere else.
func TestOpen(t *testing.T) {
	private, public := pair(t)
	o := opener(t, private)
	for _, value := range []string{"", "s3cret", strings.Repeat("x", 64<<10)} {
		sealed, err := public.Seal(place, []byte(value))
		if err != nil {
			t.Fatal(err)
		}
		if value != "" && bytes.Contains(sealed, []byte(value)) {
			t.Error("what is sealed shows its value")
		}
		if got, err := o.Open(place, sealed); err != nil || string(got) != value {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		for _, other := range []Place{{"team-b", "api-key"}, {"team-a", "other"}, {"team-a api-key", ""}, {"", "team-a api-key"}, {`team-a" "api-key`, ""}, {"api-key", "team-a"}} {
			if got, err := o.Open(other, sealed); !errors.Is(err, ErrBroken) || got != nil {
				t.Errorf("opened at %+v: %v", other, err)
			}
		}
		sealed[len(sealed)-1] ^= 1
		if _, err := o.Open(place, sealed); !errors.Is(err, ErrBroken) {
			t.Errorf("changed, and opened: %v", err)
		}
	}
	for _, sealed := range []string{"", "short", "eight by", "as long as it may be, this is none"} {
		if _, err := o.Open(place, []byte(sealed)); !errors.Is(err, ErrNoKey) {
			t.Errorf("%q: %v", sealed, err)
		}
	}
	sealed, _ := public.Seal(place, []byte("s3cret"))
	if _, err := o.Open(place, sealed[:8]); !errors.Is(err, ErrBroken) {
		t.Errorf("cut off: %v", err)
	}
}

// While a new pair takes over both open; what was sealed to one that is gone does not.
func TestRotation(t *testing.T) {
	oldPrivate, oldPublic := pair(t)
	newPrivate, newPublic := pair(t)
	before, _ := oldPublic.Seal(place, []byte("before"))
	after, _ := newPublic.Seal(place, []byte("after"))
	both := opener(t, newPrivate, oldPrivate)
	for want, sealed := range map[string][]byte{"before": before, "after": after} {
		if got, err := both.Open(place, sealed); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", want, got, err)
		}
	}
	if _, err := opener(t, newPrivate).Open(place, before); !errors.Is(err, ErrNoKey) {
		t.Errorf("without the old key: %v", err)
	}
}

func TestKeysThatAreNone(t *testing.T) {
	if _, err := ParsePublicKey([]byte("s3cret")); err == nil {
		t.Error("a public key is read")
	}
	if _, err := NewOpener([]byte("s3cret")); err == nil || err.Error() != "private key 1 cannot be read" {
		t.Errorf("a private key is read: %v", err)
	}
}
