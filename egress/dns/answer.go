package dns

import (
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// ttl is in seconds: a name's answer may change with the sandbox's rules.
const ttl = 5

// maxAddrs keeps an answer within 512 bytes, whatever the name.
const maxAddrs = 8

// Verdict is what is answered about a name.
type Verdict struct {
	// Code is how the question is answered; RCodeSuccess goes with Addrs.
	Code dnsmessage.RCode
	// Addrs are IPv4 addresses; the first ones are told.
	Addrs []netip.Addr
}

// Answer returns the answer to a message; nil is none, for what is no question. A name is
// there or not whatever is asked of it, but only questions of type A are answered with
// data: a client learns no IPv6 address, and no key or protocol that an HTTPS record has.
// The function is given the name in lower case, without the dot at its end; addrs says
// whether its verdict's addresses will be used.
func Answer(message []byte, of func(name string, addrs bool) Verdict) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(message)
	if err != nil || h.Response {
		return nil
	}
	out := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}}
	questions, err := p.AllQuestions()
	switch {
	case err != nil || len(questions) != 1:
		out.RCode = dnsmessage.RCodeFormatError
	case h.OpCode != 0:
		out.RCode = dnsmessage.RCodeNotImplemented
	case questions[0].Class != dnsmessage.ClassINET:
		out.RCode = dnsmessage.RCodeRefused
	default:
		q := questions[0]
		out.Questions = questions
		v := of(strings.ToLower(strings.TrimSuffix(q.Name.String(), ".")), q.Type == dnsmessage.TypeA)
		out.RCode = v.Code
		if q.Type == dnsmessage.TypeA && v.Code == dnsmessage.RCodeSuccess {
			out.Answers = records(q.Name, v.Addrs)
		}
	}
	b, err := out.Pack()
	if err != nil {
		return nil
	}
	return b
}

func records(name dnsmessage.Name, addrs []netip.Addr) (list []dnsmessage.Resource) {
	for _, a := range addrs[:min(len(addrs), maxAddrs)] {
		list = append(list, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: ttl},
			Body:   &dnsmessage.AResource{A: a.As4()},
		})
	}
	return list
}
