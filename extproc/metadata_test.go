package extproc

import (
	"net/netip"
	"strings"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sandlane/sandlane/routecache"
)

// The bytes written by hand are those that structpb stands for, at all lengths
// at which a length prefix grows.
func TestMetadataIsWhatStructpbSays(t *testing.T) {
	for _, addr := range []string{"198.18.0.7", "fd00:1111:2222:3333:4444:5555:6666:7777"} {
		for _, n := range []int{0, 1, 20, 57, 63, 100, 127, 128, 300, 20000} {
			r := &routecache.Route{
				SandboxID: strings.Repeat("a", n), PodUID: strings.Repeat("b", n), ClaimID: strings.Repeat("c", n),
				Addr: netip.MustParseAddr(addr),
			}
			target := &Target{ID: r.SandboxID, Port: 65535, Form: FormHost, Path: "/"}
			inner, err := structpb.NewStruct(map[string]any{
				"destination": netip.AddrPortFrom(r.Addr, 65535).String(), "sandbox_id": r.SandboxID,
				"pod_uid": r.PodUID, "claim": r.ClaimID, "port": 65535,
			})
			if err != nil {
				t.Fatal(err)
			}
			began := bootMillis()
			want := &extprocv3.ProcessingResponse{
				Response:        &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}},
				DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{"sandlane": structpb.NewStructValue(inner)}},
			}
			got := &extprocv3.ProcessingResponse{}
			if err := proto.Unmarshal(routeAnswer(r, target, &Headers{}), got); err != nil {
				t.Fatalf("%s, %d: %v", addr, n, err)
			}
			answered := got.GetDynamicMetadata().GetFields()["sandlane"].GetStructValue().GetFields()["answered"]
			if at := answered.GetNumberValue(); at < began || at > bootMillis() {
				t.Errorf("%s, %d: answered at %v, not between %v and now", addr, n, at, began)
			}
			inner.Fields["answered"] = answered
			if !proto.Equal(got, want) {
				t.Errorf("%s, %d: %v, want %v", addr, n, got, want)
			}
		}
	}
}
