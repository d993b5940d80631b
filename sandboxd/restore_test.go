package sandboxd

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A restore in many parts, whose buffers serve each other, has every byte. The race detector
// would see a buffer that is used too early; TestBuffersOfParts sees it for sure.
func TestRestoreInManyParts(t *testing.T) {
	const parts = 200
	g, a, base := layered(t, &stubFreezer{})
	g.init(a, 204, "", `{}`)
	want := make([]byte, parts<<14)
	_, _ = rand.Read(want) // it never fails
	if err := os.WriteFile(filepath.Join(base, "f"), want, 0o600); err != nil {
		t.Fatal(err)
	}
	status, data := g.command(a, "archive", emptyDirs, "")
	if status != 200 || len(data) < len(want) {
		t.Fatalf("%d, %d bytes", status, len(data))
	}
	g, b, to := layered(t, &stubFreezer{})
	size := len(data)/parts + 1
	for offset := 0; ; offset += size {
		last := offset+size >= len(data)
		arguments := fmt.Sprintf(`{"id":"r1","offset":%d,"last":%v,"emptyDirs":["/data"]}`, offset, last)
		status, answer := g.command(b, "restore", arguments, data[offset:min(offset+size, len(data))])
		if status != 202 && (status != 200 || !last) {
			t.Fatalf("the part from %d: %d %s", offset, status, answer)
		}
		if last {
			break
		}
	}
	eventually(t, "the restore to end", func() bool {
		_, answer := b.do("GET", "/init", "")
		return strings.Contains(answer, `"restored":"r1"`)
	})
	if got, err := os.ReadFile(filepath.Join(to, "f")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; they differ", len(got), err)
	}
}

// The buffer of a part is given back once all of it is read.
func TestBuffersOfParts(t *testing.T) {
	x := newRestoring()
	first, second := []byte("first"), []byte("second")
	go func() { x.parts <- first; x.parts <- second }()
	r, buf := &partsReader{x: x}, make([]byte, 3)
	for _, want := range []string{"fir", "st", "sec"} {
		if x.buffer() != nil {
			t.Errorf("a buffer is given back before %q is read", want)
		}
		if n, err := r.Read(buf); string(buf[:n]) != want || err != nil {
			t.Fatalf("read %q, %v, want %q", buf[:n], err, want)
		}
	}
	if got := x.buffer(); string(got) != "first" || x.buffer() != nil {
		t.Errorf("given back: %q", got)
	}
}

// No buffer is kept once all is restored, since the sandbox may need the memory.
func TestNoBufferIsKept(t *testing.T) {
	x := newRestoring()
	restored, err := x.acceptPart(t.Context(), restoreArguments{ID: "r1", Last: true}, []byte("part"), func(r io.Reader) error {
		got, err := io.ReadAll(r)
		if string(got) != "part" || len(x.spare) != 1 {
			t.Errorf("read %q, and %d buffers were given back", got, len(x.spare))
		}
		return err
	})
	if !restored || err != nil {
		t.Fatalf("restored %v, %v", restored, err)
	}
	if x.buffer() != nil {
		t.Error("a buffer is kept")
	}
}

// Nothing runs in a sandbox whose files are restored in part.
func TestInitAfterHalfARestore(t *testing.T) {
	g, a, _ := layered(t, &stubFreezer{})
	if status, answer := g.command(a, "restore", `{"id":"r1"}`, strings.Repeat("\x00", 512)); status != 202 {
		t.Fatalf("%d %s", status, answer)
	}
	g.init(a, 409, "being restored", `{}`)
	if _, answer := a.do("GET", "/init", ""); strings.Contains(answer, "r1") {
		t.Errorf("GET /init tells what is not restored: %s", answer)
	}
	eventually(t, "the restore to fail", func() bool {
		status, _ := g.command(a, "restore", `{"id":"r1","offset":512,"last":true}`, strings.Repeat("x", 512))
		return status == 422
	})
	g.init(a, 409, "not restored", `{}`)
	a.want(401, "not initialised", "GET", "/envs", "")
}

// A restore that is under way ends with sandboxd (and its goroutine, see TestMain).
func TestStopDuringARestore(t *testing.T) {
	g, a, _ := layered(t, &stubFreezer{})
	if status, answer := g.command(a, "restore", `{"id":"r1"}`, strings.Repeat("\x00", 100)); status != 202 {
		t.Fatalf("%d %s", status, answer)
	}
	a.stop()
}
