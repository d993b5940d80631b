package extproc

import (
	"net"
	"path/filepath"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// replay is a stream that gives the same request again and again, and encodes the
// answers.
type replay struct {
	fakeStream
	codec codec
	wire  mem.BufferSlice
}

func newReplay(t testing.TB, headers ...string) *replay {
	t.Helper()
	s := &replay{fakeStream: *newStream(t.Context(), headers...), codec: newCodec()}
	wire, err := proto.Marshal(s.req)
	if err != nil {
		t.Fatal(err)
	}
	s.wire = mem.BufferSlice{mem.SliceBuffer(wire)}
	return s
}

func (s *replay) RecvMsg(into any) error { return s.codec.Unmarshal(s.wire, into) }

func (s *replay) SendMsg(m any) error {
	_, err := s.codec.Marshal(m)
	return err
}

// browserRequest is a hit with the headers that Envoy forwards for curl.
func browserRequest() []string {
	return append(host("hello"), "user-agent", "curl/8.14.1", "accept", "*/*")
}

// maxHitAllocs is what one hit allocates here, decoding and encoding included: 8
// measured, half of them the values of the four headers. gRPC comes on top
// (BenchmarkSocket counts it).
const maxHitAllocs = 8

func TestHitAllocations(t *testing.T) {
	f := newFixture(t)
	f.put(t, testRoute("hello"))
	s := newReplay(t, browserRequest()...)
	got := testing.AllocsPerRun(1000, func() {
		if err := f.Process(s); err != nil {
			t.Fatal(err)
		}
	})
	if got > maxHitAllocs {
		t.Errorf("a hit allocates %v times, at most %d are allowed", got, maxHitAllocs)
	}
	t.Logf("%v allocations", got)
}

func BenchmarkHit(b *testing.B) {
	f := newFixture(b)
	f.put(b, testRoute("hello"))
	s := newReplay(b, browserRequest()...)
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := f.Process(s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := f.Process(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// forms are the ways to name a sandbox, and what each may allocate to be read: the
// target, and what of the path is written anew.
var forms = map[string]struct {
	headers []string
	allocs  float64
}{
	"host":    {host("hello"), 1},
	"headers": {named("hello"), 1},
	"path":    {[]string{":authority", "127.0.0.1:8080", ":path", "/sandboxes/hello/8000/a/b?c=d"}, 1},
}

func TestParseTargetAllocations(t *testing.T) {
	for name, form := range forms {
		h := request(form.headers...)
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := ParseTarget(h); err != nil {
				t.Fatal(err)
			}
		}); n > form.allocs {
			t.Errorf("%s: %v allocations, at most %v are allowed", name, n, form.allocs)
		}
	}
}

func BenchmarkParseTarget(b *testing.B) {
	for name, form := range forms {
		h := request(form.headers...)
		b.Run(name+"/sequential", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseTarget(h); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := ParseTarget(h); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func TestEncodeAnswerAllocations(t *testing.T) {
	r, target := testRoute("hello"), &Target{ID: "hello", Port: 8000, Form: FormHost, Path: "/"}
	if n := testing.AllocsPerRun(1000, func() { routeAnswer(r, target, &Headers{}) }); n > 1 {
		t.Errorf("an answer allocates %v times, for its bytes once is enough", n)
	}
}

func BenchmarkEncodeAnswer(b *testing.B) {
	r, t := testRoute("hello"), &Target{ID: "hello", Port: 8000, Form: FormHost, Path: "/"}
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if len(routeAnswer(r, t, &Headers{})) == 0 {
				b.Fatal("no answer")
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				routeAnswer(r, t, &Headers{})
			}
		})
	})
}

// nothing is the floor: an ext_proc server that only names a destination.
type nothing struct {
	extprocv3.UnimplementedExternalProcessorServer
}

func (nothing) Process(s extprocv3.ExternalProcessor_ProcessServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	return s.Send(&extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			MetadataNamespace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				MetadataDestination: structpb.NewStringValue("198.18.0.7:8000"),
			}}),
		}},
	})
}

// BenchmarkSocket compares the server with a do-nothing server, both over a
// unix socket with one connection, 64 streams at a time.
func BenchmarkSocket(b *testing.B) {
	f := newFixture(b)
	f.put(b, testRoute("hello"))
	floor := func() *grpc.Server {
		srv := grpc.NewServer()
		extprocv3.RegisterExternalProcessorServer(srv, nothing{})
		return srv
	}
	for _, side := range []struct {
		name  string
		serve func() *grpc.Server
	}{{"do-nothing", floor}, {"sandlane", f.grpcServer}} {
		b.Run(side.name, func(b *testing.B) {
			srv, path := side.serve(), filepath.Join(b.TempDir(), "s.sock")
			ln, err := net.Listen("unix", path)
			if err != nil {
				b.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- srv.Serve(ln) }()
			conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				b.Fatal(err)
			}
			client := extprocv3.NewExternalProcessorClient(conn)
			req := newStream(b.Context(), browserRequest()...).req
			b.SetParallelism(32) // 64 streams on two cores
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					stream, err := client.Process(b.Context())
					if err != nil {
						b.Error(err)
						return
					}
					if err := stream.Send(req); err != nil {
						b.Error(err)
						return
					}
					for err == nil {
						_, err = stream.Recv()
					}
				}
			})
			b.StopTimer()
			_ = conn.Close()
			srv.Stop()
			<-served
		})
	}
}
