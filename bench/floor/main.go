// Command sandlane-bench-floor is an ordinary do-nothing server for Envoy's ext_proc filter:
// grpc-go with its defaults and Sandlane's window sizes. It answers each request with fields
// that it made at its start, and with the time of the answer, which Envoy asks for. It looks
// up no sandbox, and keeps and counts nothing. With more than one address it looks its answer
// up by the host. For each line on its input it prints the number of its allocations.
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

type floor struct {
	extprocv3.UnimplementedExternalProcessorServer
	only    fields
	answers map[string]fields // by :authority; nil: all requests get only
}

func (f *floor) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	request, err := stream.Recv()
	if err != nil {
		return err
	}
	for _, h := range request.GetRequestHeaders().GetHeaders().GetHeaders() {
		if f.answers != nil && h.GetKey() == ":authority" {
			return stream.Send(f.answers[string(h.GetRawValue())].answer())
		}
	}
	return stream.Send(f.only.answer())
}

// fields are those of Sandlane's answers (docs/design/design.md 5), but for the time.
type fields map[string]*structpb.Value

func fieldsOf(id string, addr netip.Addr, port int) fields {
	text := structpb.NewStringValue
	return fields{"destination": text(netip.AddrPortFrom(addr, uint16(port)).String()), "sandbox_id": text(id), "port": structpb.NewNumberValue(float64(port)),
		"pod_uid": text("00000000-0000-4000-8000-000000000000"), "claim": text("00000000-0000-4000-8000-000000000001")}
}

func (f fields) answer() *extprocv3.ProcessingResponse {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // Linux has it
	all := maps.Clone(f)
	all["answered"] = structpb.NewNumberValue(float64(now.Nano()) / 1e6)
	return &extprocv3.ProcessingResponse{
		Response:        &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}},
		DynamicMetadata: &structpb.Struct{Fields: fields{"sandlane": structpb.NewStructValue(&structpb.Struct{Fields: all})}},
	}
}

func main() {
	socket := flag.String("socket", "", "unix socket to listen on")
	first := flag.String("first", "127.1.0.0", "address of sandbox b0; the others follow")
	count := flag.Int("count", 1, "how many sandboxes there are, named b0, b1 ...")
	port := flag.Int("port", 8000, "port that all sandboxes are reached at")
	named := flag.Int("named-port", 8000, "port in the names that clients ask for")
	flag.Parse()
	addr := netip.MustParseAddr(*first)
	f := &floor{only: fieldsOf("b0", addr, *port)}
	if *count > 1 {
		f.answers = make(map[string]fields, *count)
		start := binary.BigEndian.Uint32(addr.AsSlice())
		for i := range *count {
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], start+uint32(i))
			id := fmt.Sprintf("b%d", i)
			f.answers[fmt.Sprintf("%d-%s.localhost", *named, id)] = fieldsOf(id, netip.AddrFrom4(b), *port)
		}
	}
	l, err := net.Listen("unix", *socket)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			fmt.Println(m.Mallocs)
		}
	}()
	server := grpc.NewServer(grpc.MaxConcurrentStreams(100_000), grpc.InitialConnWindowSize(16<<20), grpc.InitialWindowSize(1<<20))
	extprocv3.RegisterExternalProcessorServer(server, f)
	log.Fatal(server.Serve(l))
}
