package envoy

import (
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandlane/sandlane/extproc"
)

// apiTimeout is how long the REST API may take to answer: as long as E2B's SDKs
// wait.
const apiTimeout = 60 * time.Second

// The hosts on which the REST API is found: api.<domain>, and those that extproc's
// classifyHost calls shared. The expressions also match some hosts that classifyHost
// rejects: Envoy accepts no regular expressions that are much longer.
const (
	hostPort   = `(:[0-9]+)?`
	nameEnd    = `\.?` + hostPort
	dnsLabels  = `[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*`
	octet      = `(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	apiHost    = `(?i)api\.` + dnsLabels + nameEnd
	sharedName = `(?i)(localhost|sandbox\.` + dnsLabels + `)` + nameEnd
	sharedIPv4 = octet + `(\.` + octet + `){3}` + nameEnd
	sharedIPv6 = `(?i)\[[0-9a-f:.]+\]` + hostPort
)

// The paths of the REST API, as the client wrote them, without the query. What
// stands below /sandboxes/<ID>/ is the API's if it begins with a plain word or
// nothing; ExtProc takes all else there for a port (extproc, parsePath).
const (
	apiSandboxes = `/sandboxes(/[^/]*(/[A-Za-z]*(/.*)?)?)?`
	apiOthers    = `/(v2|v3|(default-)?templates|snapshots|volumes|volumecontent|secrets)(/.*)?|/health`
	apiPaths     = apiSandboxes + `|` + apiOthers
)

// manyReadings matches paths that a server may take for another one: with an empty or
// dot segment, or a backslash, encoded or not. None is the API's, whatever apiPaths
// says: ExtProc judges each of their readings.
const (
	slash        = `(/|%2f)`
	dots         = `(\.|%2e){1,2}`
	manyReadings = `(?i)[^?]*(\\|%5c|` + slash + `(` + slash + `|` + dots + `(` + slash + `|$|\?))).*`
)

// targetHeaders name a sandbox on shared hosts. A request with any of them is
// ExtProc's, also one that it refuses.
var targetHeaders = []string{"e2b-sandbox-id", "e2b-sandbox-port", "x-sandbox-id", "x-sandbox-port"}

// routes sends the REST API's requests to the gateway, past ExtProc, and all else
// to the pods. It is decided before ExtProc sees the request and not again: a path
// that ExtProc rewrites stays where it was. What Envoy answers by itself comes first.
func routes(o *Options) *routev3.RouteConfiguration {
	all := []*routev3.Route{linkRoute(), apiRoute(hostMatches(apiHost))}
	for _, host := range []string{sharedName, sharedIPv4, sharedIPv6} {
		all = append(all, apiRoute(append(notAddressed(), hostMatches(host))...))
	}
	all = append(all, repeatableRoute(), sandboxRoute())
	if o.FastPath.given() {
		all = withHits(all)
	}
	return &routev3.RouteConfiguration{
		Name: "main",
		VirtualHosts: []*routev3.VirtualHost{{
			Name:                   "all",
			Domains:                []string{"*"},
			RequestHeadersToRemove: removedHeaders,
			Routes:                 all,
		}},
	}
}

// repeatableRoute is sandboxRoute for requests that may be sent again. The filters of the
// cluster of pods know more of each attempt, and refuse most (ageFilters).
func repeatableRoute() *routev3.Route {
	r := sandboxRoute()
	r.Match.Headers = []*routev3.HeaderMatcher{matches(":method", "GET|HEAD")}
	for _, name := range []string{"content-length", "transfer-encoding", "upgrade"} {
		r.Match.Headers = append(r.Match.Headers, without(name))
	}
	r.GetRoute().RetryPolicy.RetryOn = "reset-before-request,reset"
	return r
}

// sandboxRoute sends everything to the pods, without a time limit. Only a request
// that was never sent is tried again, so that no sandbox sees one twice.
func sandboxRoute() *routev3.Route {
	return &routev3.Route{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: SandboxCluster},
			Timeout:          zeroDuration,
			RetryPolicy:      retryUnsent(),
		}},
	}
}

// apiRoute sends the REST API's paths to the gateway if all headers match.
func apiRoute(headers ...*routev3.HeaderMatcher) *routev3.Route {
	return &routev3.Route{
		Match: &routev3.RouteMatch{
			PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: apiPaths}},
			Headers:       append(headers, hasOneReading()),
		},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: apiCluster},
			Timeout:          durationpb.New(apiTimeout),
			RetryPolicy:      retryUnsent(),
		}},
		TypedPerFilterConfig: map[string]*anypb.Any{extProcName: mustAny(&extprocv3.ExtProcPerRoute{
			Override: &extprocv3.ExtProcPerRoute_Disabled{Disabled: true},
		})},
	}
}

// linkRoute sends links that open a port to the gateway: no sandbox sees their tickets.
func linkRoute() *routev3.Route {
	r := apiRoute()
	r.Match = &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: extproc.LinkPath}}
	return r
}

func retryUnsent() *routev3.RetryPolicy {
	return &routev3.RetryPolicy{
		RetryOn:    "reset-before-request",
		NumRetries: u32(Retries),
		RetryBackOff: &routev3.RetryPolicy_RetryBackOff{
			BaseInterval: durationpb.New(MaxRetryBackOff / 4),
			MaxInterval:  durationpb.New(MaxRetryBackOff),
		},
	}
}

// notAddressed matches requests without any of targetHeaders.
func notAddressed() []*routev3.HeaderMatcher {
	var all []*routev3.HeaderMatcher
	for _, name := range targetHeaders {
		all = append(all, without(name))
	}
	return all
}

func without(header string) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{
		Name: header, InvertMatch: true, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true},
	}
}

func hasOneReading() *routev3.HeaderMatcher {
	m := matches(":path", manyReadings)
	m.InvertMatch = true
	return m
}

func hostMatches(regex string) *routev3.HeaderMatcher { return matches(":authority", regex) }

// matches compares the whole value of a header with a regular expression.
func matches(name, regex string) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{
		Name: name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: regex}},
		}},
	}
}
