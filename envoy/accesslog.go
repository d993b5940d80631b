package envoy

import (
	"fmt"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandlane/sandlane/extproc"
)

// longStream is the duration in milliseconds from which the end of a stream is
// reported; the module of the fast path relies on it (LONG_STREAM). Shorter ones are
// known from their start, whose use ExtProc noted or the module marked; a record for every
// request would cost a fifth more CPU.
const longStream = 1000

// accessLogs tells the gateway of requests that met a pod that is gone, of the ends of
// long streams, and of errors that Envoy or ExtProc answered, but for those of too many
// requests of an address: telling would cost what refusing saves. A record carries
// ExtProc's metadata, or the module's, and the ID that an error's answer has.
func accessLogs() []*accesslogv3.AccessLog {
	return []*accesslogv3.AccessLog{{
		Name: "envoy.access_loggers.http_grpc",
		Filter: anyOf(
			responseFlags("UF", "UC", "UH"),
			hasMetadata(extproc.MetadataFinal, anyValue),
			allOf(statusFrom(400), compareStatus(accesslogv3.ComparisonFilter_NE, 429, "sandlane.access_log_not_rate"), expression(`response.code_details != "via_upstream"`)),
			&accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_DurationFilter{
				DurationFilter: &accesslogv3.DurationFilter{Comparison: atLeast(longStream, "sandlane.long_stream_ms")},
			}},
		),
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: mustAny(&grpclogv3.HttpGrpcAccessLogConfig{
			CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{
				LogName:             AccessLogName,
				TransportApiVersion: corev3.ApiVersion_V3,
				GrpcService:         gatewayService(),
				BufferFlushInterval: durationpb.New(time.Second),
				CustomTags: []*tracingv3.CustomTag{{
					Tag:  extproc.HeaderRequestID,
					Type: &tracingv3.CustomTag_Value{Value: fmt.Sprintf("%%RESP(%s):%d%%", extproc.HeaderRequestID, extproc.MaxRequestID)},
				}},
			},
		})},
	}}
}

func responseFlags(flags ...string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: flags},
	}}
}

func anyOf(filters ...*accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_OrFilter{
		OrFilter: &accesslogv3.OrFilter{Filters: filters},
	}}
}

func allOf(filters ...*accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
		AndFilter: &accesslogv3.AndFilter{Filters: filters},
	}}
}

// atLeast compares with a constant; Envoy asks for a runtime key beside it.
func atLeast(value uint32, runtimeKey string) *accesslogv3.ComparisonFilter {
	return &accesslogv3.ComparisonFilter{
		Op:    accesslogv3.ComparisonFilter_GE,
		Value: &corev3.RuntimeUInt32{DefaultValue: value, RuntimeKey: runtimeKey},
	}
}
