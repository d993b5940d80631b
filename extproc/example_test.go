package extproc_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/extproc"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// gateway is what a gateway process puts behind the interfaces. This one knows one
// sandbox, "hello", which runs at 10.0.0.7.
type gateway struct{ use routecache.ClaimUse }

func (g *gateway) Lookup(id string) routing.Answer {
	if id != "hello" {
		return routing.Answer{}
	}
	return routing.Answer{
		State: routing.Running, Namespace: "default", Pool: "echo",
		Route: &routecache.Route{
			SandboxID: id, Pool: routecache.PoolOf("default", "echo"), ClaimID: "c1", PodUID: "u1",
			Addr: netip.MustParseAddr("10.0.0.7"), PodRV: 41,
		},
	}
}

func (g *gateway) Resolve(_ context.Context, id, _ string) (routing.Answer, error) {
	return g.Lookup(id), nil
}

func (*gateway) Activate(context.Context, routing.Request) error {
	return routing.ErrNoCapacity
}

func (*gateway) Verify(context.Context, string) (routing.KeyOwner, error) {
	return routing.KeyOwner{}, routing.ErrBadKey
}

func (*gateway) PoolAccess(_, _ string) (v1alpha1.FirstRequestAccess, bool) {
	return v1alpha1.AccessPublic, true
}
func (*gateway) EnvAccess(_, _ string) (v1alpha1.FirstRequestAccess, bool) { return "", false }
func (*gateway) Member(_, _, _ string) bool                                { return false }
func (*gateway) MayMakeOf(_, _, _ string) bool                             { return false }
func (*gateway) Reach(_, _ string) v1alpha1.FirstRequestReach              { return v1alpha1.ReachPublic }
func (*gateway) ReachOfEnv(_, _, _ string) v1alpha1.FirstRequestReach      { return v1alpha1.ReachPublic }
func (*gateway) MayMake(_, _, _ string) bool                               { return true }
func (*gateway) ValidEnvd(string, types.UID, string) bool                  { return false }
func (*gateway) ValidTraffic(string, types.UID, string) bool               { return false }

func (*gateway) ValidPortCookie(string, types.UID, uint16, string) bool { return false }

func (*gateway) Held() bool                                     { return true }
func (*gateway) Await(context.Context, string, string) error    { return nil }
func (*gateway) Open(*routecache.Route) bool                    { return true }
func (*gateway) Unsent(*routecache.Route)                       {}
func (*gateway) Wait(string, string, bool) (func(), error)      { return func() {}, nil }
func (*gateway) Park(string) func()                             { return func() {} }
func (*gateway) Resolving(string) func()                        { return func() {} }
func (g *gateway) ClaimUse(string, string) *routecache.ClaimUse { return &g.use }
func (*gateway) StreamEnded(string, string, time.Time)          {}

// Envoy asks where a request goes, and is told the pod's address in metadata.
func Example() {
	dir, err := os.MkdirTemp("", "extproc")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	g, socket := &gateway{}, filepath.Join(dir, "extproc.sock")
	server, err := extproc.NewServer(extproc.Options{
		Socket: socket, Cache: routecache.New(0),
		Resolver: g, Activator: g, Keys: g, Pools: g, Tokens: g, Lease: g, Activity: g, Holds: g, Room: g,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Start(ctx) }()
	defer func() { stop(); <-stopped }()

	// What follows is Envoy's part.
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx, grpc.WaitForReady(true))
	if err != nil {
		fmt.Println(err)
		return
	}
	header := func(name, value string) *corev3.HeaderValue {
		return &corev3.HeaderValue{Key: name, RawValue: []byte(value)}
	}
	err = stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			header(":authority", "8000-hello.localhost"), header(":path", "/"), header(":method", "GET"),
		}}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := stream.Recv()
	if err != nil {
		fmt.Println(err)
		return
	}
	metadata := answer.GetDynamicMetadata().GetFields()[extproc.MetadataNamespace].GetStructValue().GetFields()
	fmt.Println(metadata[extproc.MetadataDestination].GetStringValue())
	// Output:
	// 10.0.0.7:8000
}
