// Package cmodule builds the program that runs Envoy's module (fastpath/module)
// without Envoy, and speaks to it. Tests of packages fastpath and extproc use it.
package cmodule

import (
	"bufio"
	"encoding/binary"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandlane/sandlane/test/checkout"
)

var (
	mu    sync.Mutex
	built = map[string]string{} // by name
)

// Build compiles the program with more flags, once a process for the same ones, and
// returns its path. The test is skipped where there is no C compiler.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	name := "check-" + strings.NewReplacer(" ", "", "=", "", ",", "").Replace(strings.Join(flags, " "))
	return compile(t, "check/check.c", name, flags...)
}

func compile(t testing.TB, source, name string, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc): the module cannot be built, so it is not tested")
	}
	mu.Lock()
	defer mu.Unlock()
	if path, ok := built[name]; ok {
		return path
	}
	from := checkout.Path(t, "fastpath", "module", source)
	path := filepath.Join(dir(t), name)
	args := append([]string{"-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", path, from}, flags...)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("compile the module: %v\n%s", err, out)
	}
	built[name] = path
	return path
}

// Sanitized are flags that end the program at the first read or write out of bounds,
// and the first operation that C does not define.
var Sanitized = []string{"-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"}

// Process is a running program.
type Process struct {
	Cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Start runs the program; it is killed when the test ends.
func Start(t testing.TB, path string, args ...string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.Command(path, args...)}
	var err error
	if p.in, err = p.Cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.Cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errors strings.Builder
	p.Cmd.Stderr = &errors
	p.out = bufio.NewReaderSize(out, 1<<16)
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Cmd.Process.Kill()
		_ = p.Cmd.Wait()
		if t.Failed() && errors.Len() > 0 {
			t.Logf("the program's errors:\n%s", errors.String())
		}
	})
	return p
}

// AppendRequest appends a request of these names and values in turns.
func AppendRequest(b []byte, headers ...string) []byte {
	b = append(b, byte(len(headers)/2))
	for i := 0; i < len(headers); i += 2 {
		b = append(b, byte(len(headers[i])))
		b = binary.BigEndian.AppendUint16(b, uint16(len(headers[i+1])))
		b = append(append(b, headers[i]...), headers[i+1]...)
	}
	return b
}

// Flush in the place of a request makes the program send what it has answered.
const Flush = 0xff

// Send writes bytes to the program.
func (p *Process) Send(t testing.TB, b []byte) {
	t.Helper()
	if _, err := p.in.Write(b); err != nil {
		t.Fatal(err)
	}
}

// Byte reads one.
func (p *Process) Byte(t testing.TB) byte {
	t.Helper()
	b, err := p.out.ReadByte()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Text reads a string of the program's answers.
func (p *Process) Text(t testing.TB) string {
	t.Helper()
	var size [2]byte
	if _, err := io.ReadFull(p.out, size[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(p.out, b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Answer reads what the module made of a request: the metadata, nil if it left the
// request to ExtProc.
func (p *Process) Answer(t testing.TB) map[string]string {
	t.Helper()
	var metadata map[string]string
	if p.Byte(t) == 1 {
		metadata = map[string]string{"port": p.Text(t)}
		for range 4 {
			name := p.Text(t)
			metadata[name] = p.Text(t)
		}
	}
	if end := p.Byte(t); end != 0xff {
		t.Fatalf("the program's answer ends with %#x", end)
	}
	return metadata
}

// Ask sends a request and reads its answer.
func (p *Process) Ask(t testing.TB, headers ...string) map[string]string {
	t.Helper()
	p.Send(t, AppendRequest(nil, headers...))
	return p.Answer(t)
}

// Order compiles the program that tries each order of a flight and the gateway's steps.
func Order(t testing.TB) string {
	t.Helper()
	return compile(t, "check/order.c", "order")
}

// Module compiles the module itself, as hack/fastpath.sh does, for a real Envoy.
func Module(t testing.TB) string {
	t.Helper()
	return compile(t, "module.c", "module.so", "-fPIC", "-shared")
}
