package envoy

import (
	"math"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	localv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// clientAddresses is for how many addresses a rate is kept; past that the one
	// whose last request is longest ago is forgotten, and begins with a full bucket.
	clientAddresses = 10_000
	// clientPrefixV6 is what one client has of IPv6: it picks the rest itself.
	clientPrefixV6 = 64
	clientAddress  = "masked_remote_address" // as Envoy names it in descriptors
)

// clientRateFilter refuses with 429 what an address sends beyond the rate, before the
// gateway hears of it. The address is that of the connection, or what trusted hops saw (Options.TrustedHops).
// Envoy makes one bucket for each address from a descriptor without a value.
func clientRateFilter(perSecond int) *hcmv3.HttpFilter {
	all := &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: 100}}
	bucket := func(rate uint32) *typev3.TokenBucket {
		return &typev3.TokenBucket{MaxTokens: rate, TokensPerFill: wrapperspb.UInt32(rate), FillInterval: durationpb.New(time.Second)}
	}
	return httpFilter("envoy.filters.http.local_ratelimit", &localv3.LocalRateLimit{
		StatPrefix:     "client",
		FilterEnabled:  all, // neither is on by default
		FilterEnforced: all,
		// The filter wants a bucket for what no descriptor fits; every request has an address.
		TokenBucket:                     bucket(math.MaxUint32),
		AlwaysConsumeDefaultTokenBucket: wrapperspb.Bool(false),
		MaxDynamicDescriptors:           wrapperspb.UInt32(clientAddresses),
		Descriptors: []*ratelimitv3.LocalRateLimitDescriptor{{
			Entries:     []*ratelimitv3.RateLimitDescriptor_Entry{{Key: clientAddress}},
			TokenBucket: bucket(uint32(perSecond)),
		}},
		RateLimits: []*routev3.RateLimit{{Actions: []*routev3.RateLimit_Action{{
			ActionSpecifier: &routev3.RateLimit_Action_MaskedRemoteAddress_{MaskedRemoteAddress: &routev3.RateLimit_Action_MaskedRemoteAddress{
				V4PrefixMaskLen: wrapperspb.UInt32(32),
				V6PrefixMaskLen: wrapperspb.UInt32(clientPrefixV6),
			}},
		}}}},
	})
}
