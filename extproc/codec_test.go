package extproc

import (
	"bytes"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// structHeaders reads the headers as protobuf decodes them.
func structHeaders(m *corev3.HeaderMap) Headers {
	var h Headers
	for _, e := range m.GetHeaders() {
		f := h.field(e.GetKey())
		if f == nil {
			continue
		}
		if f.Count++; f.Count > 1 {
			continue
		}
		if f.Value = e.GetValue(); len(e.GetRawValue()) > 0 {
			f.Value = string(e.GetRawValue())
		}
	}
	return h
}

// checkDecode compares the codec with protobuf on a message that protobuf takes.
func checkDecode(t *testing.T, wire []byte) {
	t.Helper()
	want := &extprocv3.ProcessingRequest{}
	if proto.Unmarshal(wire, want) != nil {
		_ = new(call).decode(wire) // must not panic
		return
	}
	for _, data := range []mem.BufferSlice{
		{mem.SliceBuffer(wire)},
		{mem.SliceBuffer(wire[:len(wire)/2]), mem.SliceBuffer(wire[len(wire)/2:])},
	} {
		got := &call{}
		if err := newCodec().Unmarshal(data, got); err != nil {
			t.Fatalf("%v: %v", want, err)
		}
		if got.isHeaders != (want.GetRequestHeaders() != nil) {
			t.Errorf("%v: headers %v", want, got.isHeaders)
		}
		if h := structHeaders(want.GetRequestHeaders().GetHeaders()); got.headers != h {
			t.Errorf("%v: %+v, protobuf has %+v", want, got.headers, h)
		}
	}
}

func wireRequests(t testing.TB) [][]byte {
	t.Helper()
	attributes, err := structpb.NewStruct(map[string]any{"a": 1, "b": []any{"c"}})
	if err != nil {
		t.Fatal(err)
	}
	full := newStream(t.Context(), browserRequest()...).req
	full.GetRequestHeaders().EndOfStream = true
	full.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": attributes}
	full.ProtocolConfig = &extprocv3.ProtocolConfiguration{}
	twice := newStream(t.Context(), named("a", "x-sandbox-id", "b")...).req
	plain := newStream(t.Context(), host("plain")...).req
	for _, h := range plain.GetRequestHeaders().GetHeaders().GetHeaders() {
		h.Value, h.RawValue = string(h.RawValue), nil
	}
	body := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte("x")}}}
	trailers := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}}
	all := [][]byte{{}}
	for _, m := range []proto.Message{full, twice, plain, body, trailers} {
		wire, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, wire)
	}
	// Parts of one message, and of several kinds, one after the other.
	return append(all, bytes.Join(all[1:4], nil), bytes.Join(all[1:5], nil), bytes.Join([][]byte{all[1], all[4], all[3]}, nil))
}

// Whatever protobuf makes of a request, the codec makes of it too.
func TestDecodeIsProtobufs(t *testing.T) {
	for _, wire := range wireRequests(t) {
		checkDecode(t, wire)
		for i := range wire { // cut off anywhere
			checkDecode(t, wire[:i])
		}
	}
	if err := new(call).decode([]byte{0x12, 0x05, 0x0a}); err == nil {
		t.Error("a message that is cut off was decoded")
	}
}

func FuzzDecode(f *testing.F) {
	for _, wire := range wireRequests(f) {
		f.Add(wire)
	}
	f.Fuzz(checkDecode)
}

// The codec leaves every other message to protobuf.
func TestOtherMessagesAreProtobufs(t *testing.T) {
	want := immediateAnswer(rejectNotFound(), false)
	wire, err := newCodec().Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := &extprocv3.ProcessingResponse{}
	if err := newCodec().Unmarshal(wire, got); err != nil || !proto.Equal(got, want) {
		t.Errorf("%v, %v: want %v", got, err, want)
	}
}
