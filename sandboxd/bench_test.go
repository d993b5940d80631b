package sandboxd

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

// stream posts one Start in the binary codec and reads the answer to its end
// without decoding it, so that the figure is sandboxd's and not the client's.
func (a *agent) stream(b *testing.B, frame []byte) int64 {
	req, err := http.NewRequest(http.MethodPost, a.url+"/process.Process/Start", bytes.NewReader(frame))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/connect+proto")
	req.Header.Set("Connect-Protocol-Version", "1")
	res, err := a.client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	n, err := io.Copy(io.Discard, res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		b.Fatalf("status %d, %v", res.StatusCode, err)
	}
	return n
}

func frameOf(b *testing.B, config *processpb.ProcessConfig) []byte {
	message, err := proto.Marshal(&processpb.StartRequest{Process: config, Stdin: new(false)})
	if err != nil {
		b.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// BenchmarkSpawn is one command from the request to its end event.
func BenchmarkSpawn(b *testing.B) {
	a := newAgent(b, Options{})
	frame := frameOf(b, &processpb.ProcessConfig{Cmd: "/bin/true"})
	b.ReportAllocs()
	for b.Loop() {
		a.stream(b, frame)
	}
}

// BenchmarkSpawnParallel is as many commands at once as there are processors.
func BenchmarkSpawnParallel(b *testing.B) {
	a := newAgent(b, Options{})
	frame := frameOf(b, &processpb.ProcessConfig{Cmd: "/bin/true"})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			a.stream(b, frame)
		}
	})
}

// BenchmarkOutput is the standard output of one command, 64 MiB each time.
func BenchmarkOutput(b *testing.B) {
	a := newAgent(b, Options{})
	const size = 64 << 20
	frame := frameOf(b, &processpb.ProcessConfig{Cmd: "head", Args: []string{"-c", "67108864", "/dev/zero"}})
	b.SetBytes(size)
	for b.Loop() {
		if n := a.stream(b, frame); n < size {
			b.Fatalf("%d bytes", n)
		}
	}
}
