package envoy

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// upgradeTypes are the protocols that a connection may be upgraded to. Envoy passes on
// unread what follows such a request, so ExtProc refuses it on sandboxd's port, where
// paths are judged.
var upgradeTypes = []string{"websocket", "tcp", "spdy/3.1"}

func upgrades() []*hcmv3.HttpConnectionManager_UpgradeConfig {
	var all []*hcmv3.HttpConnectionManager_UpgradeConfig
	for _, name := range upgradeTypes {
		all = append(all, &hcmv3.HttpConnectionManager_UpgradeConfig{UpgradeType: name})
	}
	return all
}

// otherUpgrades matches all other values of the header Upgrade: Envoy takes such a
// header away, and the request is one without it (RFC 9110, 7.8). There is no negation:
// a value leaves the words after some prefix of theirs, with another letter or at its end.
func otherUpgrades() []*matcherv3.StringMatcher {
	next := map[string]string{} // prefix → letters that follow it in some word
	for _, word := range upgradeTypes {
		for i := range word {
			if letter := word[i : i+1]; !strings.Contains(next[word[:i]], letter) {
				next[word[:i]] += letter
			}
		}
		next[word] += ""
	}
	var all []*matcherv3.StringMatcher
	for _, prefix := range slices.Sorted(maps.Keys(next)) {
		rest := "."
		if next[prefix] != "" {
			rest = "[^" + regexp.QuoteMeta(next[prefix]) + "]"
		}
		rest += ".*"
		if !slices.Contains(upgradeTypes, prefix) {
			rest = "(" + rest + ")?"
		}
		all = append(all, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
			SafeRegex: &matcherv3.RegexMatcher{Regex: "(?is)" + regexp.QuoteMeta(prefix) + rest},
		}})
	}
	return all
}
