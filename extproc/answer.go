package extproc

import (
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sandlane/sandlane/routecache"
)

// continueUnchanged is the field request_headers of an answer that rewrites
// nothing, in wire form: an empty HeadersResponse.
var continueUnchanged = []byte{1<<3 | 2, 0}

// routeAnswer sends the request to the route's pod.
func routeAnswer(r *routecache.Route, t *Target, h *Headers) encodedAnswer {
	response := continueUnchanged
	if t.Form == FormPath || h.Cookie.Value != "" {
		var err error
		if response, err = proto.Marshal(&extprocv3.ProcessingResponse{Response: rewrite(t, h)}); err != nil {
			panic("extproc: encoding headers: " + err.Error()) // bytes can always be encoded
		}
	}
	return appendMetadata(response, r, t)
}

// rewrite changes the path of the path form, and takes the cookies of ports off.
func rewrite(t *Target, h *Headers) *extprocv3.ProcessingResponse_RequestHeaders {
	m := &extprocv3.HeaderMutation{}
	if t.Form == FormPath {
		m.SetHeaders = append(m.SetHeaders, setHeader(":path", t.Path))
	}
	if h.Cookie.Value != "" {
		if others := withoutPortCookies(h.Cookie.Value); others != "" {
			m.SetHeaders = append(m.SetHeaders, setHeader(headerCookie, others))
		} else {
			m.RemoveHeaders = []string{headerCookie}
		}
	}
	return &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
		Response: &extprocv3.CommonResponse{HeaderMutation: m},
	}}
}

func setHeader(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// finalMetadata marks an immediate answer, so that Envoy's local_reply_config
// leaves it as it is, and has what logRejection is to log of it.
func finalMetadata(r *rejection) *structpb.Struct {
	fields := map[string]*structpb.Value{MetadataFinal: structpb.NewStringValue(r.sandboxID)}
	if r.cause != nil {
		fields[metadataCause] = structpb.NewStringValue(strings.ToValidUTF8(r.cause.Error(), "?"))
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		MetadataNamespace: structpb.NewStructValue(&structpb.Struct{Fields: fields}),
	}}
}

// immediateAnswer makes Envoy answer the client itself.
func immediateAnswer(r *rejection, asHTML bool) *extprocv3.ProcessingResponse {
	content, contentType := r.render(asHTML)
	headers := []*corev3.HeaderValueOption{setHeader("content-type", contentType)}
	if seconds := r.retryAfterSeconds(); seconds != "" {
		headers = append(headers, setHeader("retry-after", seconds))
	}
	return &extprocv3.ProcessingResponse{
		DynamicMetadata: finalMetadata(r),
		Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(r.status)},
			Headers: &extprocv3.HeaderMutation{SetHeaders: headers},
			Body:    content,
			Details: detailsPrefix + r.reason,
		}},
	}
}

// waitAnswer raises this request's message timeout in Envoy to d.
func waitAnswer(d time.Duration) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{OverrideMessageTimeout: durationpb.New(d)}
}
