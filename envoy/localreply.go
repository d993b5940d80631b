package envoy

import (
	"fmt"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sandlane/sandlane/extproc"
)

// What Envoy says by itself, in E2B's words where E2B has some.
const (
	portClosedMessage = "The sandbox is running but port is not open"
	noHTTPMessage     = "The sandbox is running but its server gave no valid answer: it closed the connection, answered too late to connect, or broke the rules of HTTP"
	refusedMessage    = "The request breaks the rules of HTTP, or a limit of the sandbox gateway: %RESPONSE_CODE_DETAILS%"
	noAnswerMessage   = "The sandbox gateway could not answer. Try again in a moment."
	tooOftenMessage   = "Too many requests from this address. Try again in a moment."
	unknownMessage    = "The sandbox gateway did not finish. What was asked for may have been done."

	metadataSandboxID = "%DYNAMIC_METADATA(" + extproc.MetadataNamespace + ":" + extproc.MetadataSandboxID + ")%"
	metadataPort      = "%DYNAMIC_METADATA(" + extproc.MetadataNamespace + ":" + extproc.MetadataPort + ")%"
)

// localReplies shapes the answers that Envoy makes itself. The first match wins:
// a port that refuses connections; then another failure of a pod's server; then a REST
// API that broke off, or took too long, in the middle of a request, which no client may
// repeat by itself; then the answers of ExtProc, which are final; then what a client
// address sent beyond its rate; then every other failure, which is a gateway without an
// answer; then requests that Envoy refuses. Only a request that ExtProc sent to a pod has
// metadata of one. Each has the header X-Request-ID.
func localReplies() *hcmv3.LocalReplyConfig {
	routed := hasMetadata(extproc.MetadataSandboxID, anyValue)
	refusedByPod := allOf(responseFlags("UF"), routed, detailsContain("Connection_refused"))
	// badStatusFilter answers 502, without a flag.
	upstream := allOf(anyOf(responseFlags("UF", "UC", "UR", "URX", "UPE"), statusIs(502, "sandlane.local_reply_upstream")), routed)
	tooLate, brokeOff := responseFlags("UT"), responseFlags("UC", "UR", "UPE")
	ours := hasMetadata(extproc.MetadataFinal, anyValue)
	failed := statusFrom(500)
	// The filter of clientRateFilter sets its flag too late for a mapper to see it.
	refused := statusIs(429, "sandlane.local_reply_rate")
	closed := jsonBody(map[string]any{
		"sandboxId": metadataSandboxID, "message": portClosedMessage, "port": metadataPort, "code": 502,
	})
	noHTTP := jsonBody(map[string]any{
		"sandboxId": metadataSandboxID, "message": noHTTPMessage, "port": metadataPort, "code": 502,
	})
	invalid := jsonBody(map[string]any{"message": refusedMessage, "code": "%RESPONSE_CODE%"})
	noAnswer := jsonBody(map[string]any{"message": noAnswerMessage, "code": 503})
	unknown := func(code int) *corev3.SubstitutionFormatString {
		return jsonBody(map[string]any{"message": unknownMessage, "code": code})
	}
	noRepeat := []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "should-retry", Value: "false"}}}
	retry := []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "retry-after", Value: "1"}}}
	tooOften := jsonBody(map[string]any{"message": tooOftenMessage, "code": 429})
	return &hcmv3.LocalReplyConfig{Mappers: withRequestIDs([]*hcmv3.ResponseMapper{
		{Filter: allOf(refusedByPod, browser()), StatusCode: wrapperspb.UInt32(502), BodyFormatOverride: htmlBody("502",
			"Closed Port Error", "The sandbox <code>"+metadataSandboxID+"</code> is running but there's no service running on port "+metadataPort+".")},
		{Filter: refusedByPod, StatusCode: wrapperspb.UInt32(502), BodyFormatOverride: closed},
		{Filter: allOf(upstream, browser()), StatusCode: wrapperspb.UInt32(502), BodyFormatOverride: htmlBody("502",
			"No valid answer", "The server on port "+metadataPort+" of the sandbox <code>"+metadataSandboxID+"</code> gave no valid answer.")},
		{Filter: upstream, StatusCode: wrapperspb.UInt32(502), BodyFormatOverride: noHTTP},
		{Filter: tooLate, StatusCode: wrapperspb.UInt32(504), HeadersToAdd: noRepeat, BodyFormatOverride: unknown(504)},
		{Filter: brokeOff, StatusCode: wrapperspb.UInt32(500), HeadersToAdd: noRepeat, BodyFormatOverride: unknown(500)},
		{Filter: ours},
		{Filter: refused, HeadersToAdd: retry, BodyFormatOverride: tooOften},
		{Filter: allOf(failed, browser()), StatusCode: wrapperspb.UInt32(503), HeadersToAdd: retry,
			BodyFormatOverride: htmlBody("503", "No answer from the gateway", noAnswerMessage)},
		{Filter: failed, StatusCode: wrapperspb.UInt32(503), HeadersToAdd: retry, BodyFormatOverride: noAnswer},
		{Filter: statusFrom(400), BodyFormatOverride: invalid},
	})}
}

// withRequestIDs makes two of each mapper: one repeats the client's ID, the other makes one
// where there is none, or none that may stand in a log. A hit that a pod answers meets neither.
func withRequestIDs(mappers []*hcmv3.ResponseMapper) []*hcmv3.ResponseMapper {
	id := func(m *hcmv3.ResponseMapper, format string) *hcmv3.ResponseMapper {
		m = proto.CloneOf(m)
		m.HeadersToAdd = append(m.HeadersToAdd, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: extproc.HeaderRequestID, Value: format},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
		return m
	}
	var all []*hcmv3.ResponseMapper
	for _, m := range mappers {
		named := id(m, "%REQ("+extproc.HeaderRequestID+")%")
		named.Filter = allOf(namedByClient(), m.GetFilter())
		all = append(all, named, id(m, "%UNIQUE_ID%"))
	}
	return all
}

func statusFrom(status uint32) *accesslogv3.AccessLogFilter {
	return compareStatus(accesslogv3.ComparisonFilter_GE, status, fmt.Sprintf("sandlane.local_reply_from_%d", status))
}

func statusIs(status uint32, runtimeKey string) *accesslogv3.AccessLogFilter {
	return compareStatus(accesslogv3.ComparisonFilter_EQ, status, runtimeKey)
}

func compareStatus(op accesslogv3.ComparisonFilter_Op, status uint32, runtimeKey string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_StatusCodeFilter{
		StatusCodeFilter: &accesslogv3.StatusCodeFilter{Comparison: &accesslogv3.ComparisonFilter{
			Op:    op,
			Value: &corev3.RuntimeUInt32{DefaultValue: status, RuntimeKey: runtimeKey},
		}},
	}}
}

// detailsContain matches requests whose %RESPONSE_CODE_DETAILS% contain the text.
func detailsContain(text string) *accesslogv3.AccessLogFilter {
	return expression(fmt.Sprintf("response.code_details.contains(%q)", text))
}

func expression(cel string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name:       "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: mustAny(&celv3.ExpressionFilter{Expression: cel})},
		},
	}}
}

// namedByClient matches requests whose ID may stand in a log. The REST API has the same rule
// (gateway/restapi/requestid). Envoy takes no regular expression that counts so far.
func namedByClient() *accesslogv3.AccessLogFilter {
	return allOf(
		header(extproc.HeaderRequestID, `[!-~]+`, false),
		expression(fmt.Sprintf("size(request.headers[%q]) <= %d", extproc.HeaderRequestID, extproc.MaxRequestID)),
	)
}

var anyValue = &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}}

// hasMetadata matches requests for which ExtProc set a key to such a value.
func hasMetadata(key string, value *matcherv3.ValueMatcher) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_MetadataFilter{
		MetadataFilter: &accesslogv3.MetadataFilter{
			Matcher: &matcherv3.MetadataMatcher{
				Filter: extproc.MetadataNamespace,
				Path:   []*matcherv3.MetadataMatcher_PathSegment{{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: key}}},
				Value:  value,
			},
			MatchIfKeyNotFound: wrapperspb.Bool(false),
		},
	}}
}

// browser matches requests of a person's browser, by E2B's rule: it navigates,
// or it has a browser's name, does not ask for JSON alone, and is no script.
func browser() *accesslogv3.AccessLogFilter {
	return anyOf(
		header("sec-fetch-mode", `(?i)navigate`, false),
		allOf(
			header("user-agent", `(?i).*(mozilla|chrome|safari|firefox|edge|opera|msie).*`, false),
			header("sec-fetch-mode", `(?i)(cors|no-cors|same-origin|websocket)`, true),
			header("x-requested-with", `.+`, true),
			anyOf(header("accept", `(?i).*html.*`, false), header("accept", `(?i).*json.*`, true)),
		),
	)
}

// header matches the whole value of a header against a regular expression, or,
// with not, everything else including its absence.
func header(name, regex string, not bool) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_HeaderFilter{
		HeaderFilter: &accesslogv3.HeaderFilter{Header: &routev3.HeaderMatcher{
			Name: name,
			HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: regex}},
			}},
			InvertMatch:               not,
			TreatMissingHeaderAsEmpty: true,
		}},
	}}
}

func jsonBody(fields map[string]any) *corev3.SubstitutionFormatString {
	s, err := structpb.NewStruct(fields)
	if err != nil {
		panic(err) // the fields are literals of this file
	}
	return &corev3.SubstitutionFormatString{
		Format:      &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: s},
		ContentType: "application/json; charset=utf-8",
	}
}

// htmlBody makes a page. Its placeholders are an ID and a number that ExtProc
// has checked, so nothing in it needs escaping.
func htmlBody(code, title, text string) *corev3.SubstitutionFormatString {
	page := `<html><head><meta charset="utf-8"><title>` + title + `</title></head><body style="font-family:sans-serif;margin:4em auto;max-width:36em"><h1>` +
		title + `</h1><p>` + text + `</p><p><small>` + code + ` · Sandlane</small></p></body></html>`
	return &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
			Specifier: &corev3.DataSource_InlineString{InlineString: page},
		}},
		ContentType: "text/html; charset=utf-8",
	}
}
