// Command sandlane-bench-floor is an ordinary do-nothing server for Envoy's ext_proc filter:
// grpc-go with its defaults and Sandlane's window sizes. It answers each request with a
// message that it made at its start and encodes for each answer. It looks up no sandbox,
// keeps nothing and counts nothing. With more than one address it looks its answer up by the
// host. For each line on its input it prints the number of its allocations.
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"runtime"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

type floor struct {
	extprocv3.UnimplementedExternalProcessorServer
	only    *extprocv3.ProcessingResponse
	answers map[string]*extprocv3.ProcessingResponse // by :authority; nil: all requests get only
}

func (f *floor) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	request, err := stream.Recv()
	if err != nil {
		return err
	}
	if f.answers == nil {
		return stream.Send(f.only)
	}
	for _, h := range request.GetRequestHeaders().GetHeaders().GetHeaders() {
		if h.GetKey() == ":authority" {
			return stream.Send(f.answers[string(h.GetRawValue())])
		}
	}
	return stream.Send(f.only)
}

// answer returns an answer with the same fields as Sandlane's (docs/design/design.md 5).
func answer(id string, addr netip.Addr, port int) *extprocv3.ProcessingResponse {
	metadata, err := structpb.NewStruct(map[string]any{"sandlane": map[string]any{
		"destination": netip.AddrPortFrom(addr, uint16(port)).String(),
		"sandbox_id":  id, "port": port,
		"pod_uid": "00000000-0000-4000-8000-000000000000", "claim": "00000000-0000-4000-8000-000000000001",
	}})
	if err != nil {
		log.Fatal(err)
	}
	return &extprocv3.ProcessingResponse{
		Response:        &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}},
		DynamicMetadata: metadata,
	}
}

func main() {
	socket := flag.String("socket", "", "unix socket to listen on")
	first := flag.String("first", "127.1.0.0", "address of sandbox b0; the others follow")
	count := flag.Int("count", 1, "how many sandboxes there are, named b0, b1 ...")
	port := flag.Int("port", 8000, "port that all sandboxes are reached at")
	named := flag.Int("named-port", 0, "port in the names that clients ask for; 0 is the same")
	flag.Parse()
	if *named == 0 {
		*named = *port
	}
	addr := netip.MustParseAddr(*first)
	f := &floor{only: answer("b0", addr, *port)}
	if *count > 1 {
		f.answers = make(map[string]*extprocv3.ProcessingResponse, *count)
		start := binary.BigEndian.Uint32(addr.AsSlice())
		for i := range *count {
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], start+uint32(i))
			id := fmt.Sprintf("b%d", i)
			f.answers[fmt.Sprintf("%d-%s.localhost", *named, id)] = answer(id, netip.AddrFrom4(b), *port)
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
