package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandlane/sandlane/egress/claims"
	"github.com/sandlane/sandlane/egress/dns"
	"github.com/sandlane/sandlane/egress/names"
)

// resolveTimeout bounds the search for a name's real addresses: resolvers of sandboxes wait
// for 5 s.
const resolveTimeout = 4 * time.Second

// serveNames answers the questions of a TCP connection.
func (s *Server) serveNames(l *link, use *claims.Use, c net.Conn) {
	_ = dns.Stream(c, func(message []byte) []byte { return s.answer(l.ctx, use, message) })
}

// answerer answers one question that came by UDP.
func (s *Server) answerer(ctx context.Context, arrival claims.Arrival) dns.Answerer {
	return func(message []byte) []byte {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		use, err := arrival.Wait(ctx, cancel)
		if err != nil {
			return dns.Answer(message, func(string, bool) dns.Verdict { return s.told(verdictUnknown, dnsmessage.RCodeRefused) })
		}
		defer use.Done()
		return s.answer(ctx, use, message)
	}
}

// answer answers a question of a claim's.
func (s *Server) answer(ctx context.Context, use *claims.Use, message []byte) []byte {
	return dns.Answer(message, func(name string, _ bool) dns.Verdict {
		host, err := names.Host(name)
		if err != nil {
			return s.told(verdictDenied, dnsmessage.RCodeNameError)
		}
		decision, claim := use.Judge(host), use.Claim()
		switch {
		case claim == nil:
			return s.told(verdictUnknown, dnsmessage.RCodeRefused)
		case !decision.Allowed:
			return s.told(verdictDenied, dnsmessage.RCodeNameError)
		case claim.Policy.DeniesAll() || decision.Rule != nil:
			return s.told(verdictHere, dnsmessage.RCodeSuccess, s.o.Address)
		}
		ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		addrs, err := s.o.Upstream.Addrs(ctx, host)
		var unresolved *net.DNSError
		switch {
		case errors.As(err, &unresolved) && unresolved.IsNotFound:
			return s.told(verdictFailed, dnsmessage.RCodeNameError)
		case err != nil:
			return s.told(verdictFailed, dnsmessage.RCodeServerFailure)
		}
		return s.told(verdictPassed, dnsmessage.RCodeSuccess, addrs...)
	})
}

// told counts an answer.
func (s *Server) told(verdict string, code dnsmessage.RCode, addrs ...netip.Addr) dns.Verdict {
	s.o.Metrics.questions.WithLabelValues(verdict).Inc()
	return dns.Verdict{Code: code, Addrs: addrs}
}
