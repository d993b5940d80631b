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
	"github.com/sandlane/sandlane/egress/record"
)

// resolveTimeout bounds the search for a name's real addresses: resolvers of sandboxes wait
// for 5 s.
const resolveTimeout = 4 * time.Second

// serveNames answers the questions of a TCP connection.
func (s *Server) serveNames(l *link, use *claims.Use, c *leased) {
	from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	_ = dns.Stream(c, func(message []byte) []byte { return s.answer(l.ctx, from, use, message) })
}

// answerer answers one question that came by UDP.
func (s *Server) answerer(ctx context.Context, from netip.Addr, arrival claims.Arrival) dns.Answerer {
	return func(message []byte) []byte {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		use, err := arrival.Wait(ctx, cancel)
		if err != nil {
			return dns.Answer(message, func(name string, addrs bool) dns.Verdict {
				return s.told(nil, question{from, name, addrs}, verdictUnknown, dnsmessage.RCodeRefused)
			})
		}
		defer use.Done()
		return s.answer(ctx, from, use, message)
	}
}

// answer answers a question of a claim's.
func (s *Server) answer(ctx context.Context, from netip.Addr, use *claims.Use, message []byte) []byte {
	return dns.Answer(message, func(name string, addrs bool) dns.Verdict {
		q := question{from, name, addrs}
		host, err := names.Host(name)
		if err != nil {
			return s.told(use, q, verdictDenied, dnsmessage.RCodeNameError)
		}
		decision, claim := use.Judge(host), use.Claim()
		switch {
		case claim == nil:
			return s.told(use, q, verdictUnknown, dnsmessage.RCodeRefused)
		case !decision.Allowed:
			return s.told(use, q, verdictDenied, dnsmessage.RCodeNameError)
		case claim.Policy.DeniesAll() || decision.Rule != nil:
			return s.told(use, q, verdictHere, dnsmessage.RCodeSuccess, s.o.Address)
		}
		ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		found, err := s.o.Upstream.Addrs(ctx, host)
		var unresolved *net.DNSError
		switch {
		case errors.As(err, &unresolved) && unresolved.IsNotFound:
			return s.told(use, q, verdictFailed, dnsmessage.RCodeNameError)
		case err != nil:
			return s.told(use, q, verdictFailed, dnsmessage.RCodeServerFailure)
		}
		return s.told(use, q, verdictPassed, dnsmessage.RCodeSuccess, found...)
	})
}

// question is what a sandbox asks for.
type question struct {
	from  netip.Addr
	name  string
	addrs bool // those of the name, rather than something else about it
}

// told counts an answer, and records it if nothing follows from it. use may be nil.
func (s *Server) told(use *claims.Use, q question, verdict string, code dnsmessage.RCode, addrs ...netip.Addr) dns.Verdict {
	s.o.Metrics.questions.WithLabelValues(verdict).Inc()
	if code != dnsmessage.RCodeSuccess && q.addrs { // resolvers ask for other things beside them
		r := record.Record{Time: time.Now(), From: q.from.String(), Port: portNames, Host: q.name, Verdict: verdict}
		if use != nil {
			of(&r, use.Claim())
		}
		s.o.Record(r)
	}
	return dns.Verdict{Code: code, Addrs: addrs}
}
