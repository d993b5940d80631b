package extproc

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// replay is a stream that gives the same request again and again.
type replay struct {
	grpc.ServerStream
	ctx context.Context
	req *extprocv3.ProcessingRequest
}

func (s *replay) Context() context.Context                    { return s.ctx }
func (s *replay) Recv() (*extprocv3.ProcessingRequest, error) { return s.req, nil }
func (s *replay) Send(r *extprocv3.ProcessingResponse) error  { return nil }

// browserRequest is a hit with the headers that Envoy forwards for curl.
func browserRequest() []string {
	return append(host("hello"), "user-agent", "curl/8.14.1", "accept", "*/*")
}

// maxHitAllocs is what one hit allocates in the handler, 5 measured, and a
// fifth more. gRPC and the encoding come on top (BenchmarkSocket counts them).
const maxHitAllocs = 6

func TestHitAllocations(t *testing.T) {
	f := newFixture(t)
	f.put(t, testRoute("hello"))
	s := &replay{ctx: t.Context(), req: newStream(t.Context(), browserRequest()...).req}
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
	s := &replay{ctx: b.Context(), req: newStream(b.Context(), browserRequest()...).req}
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

func BenchmarkParseTarget(b *testing.B) {
	for name, h := range map[string]*Headers{
		"host":    request(host("hello")...),
		"headers": request(named("hello")...),
		"path":    request(":authority", "127.0.0.1:8080", ":path", "/sandboxes/hello/8000/a/b?c=d"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseTarget(h); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMarshalAnswer(b *testing.B) {
	r, t := testRoute("hello"), &Target{ID: "hello", Port: 8000, Form: FormHost, Path: "/"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := proto.Marshal(routeAnswer(r, t)); err != nil {
			b.Fatal(err)
		}
	}
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
				metadataDestination: structpb.NewStringValue("198.18.0.7:8000"),
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
