package network

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A pod's only route leads to the machine, where servers that listen on all
// addresses would answer it. So the pod's own network refuses what would open a
// connection out of it: nothing leaves but TCP segments of connections that were
// made from outside. The rules lie in the pod's namespace, where its processes,
// which lack CAP_NET_ADMIN, cannot change them, no other firewall of the machine
// flushes them, and they go when the namespace does. They keep no state: no
// connection of the machine is tracked for them.
//
// A pod of a pool with egress ByName may also connect, from its own address, to the
// three ports of the egress process at the bridge's address.

// Ports of the egress process.
const (
	portNames = 53
	portHTTP  = 80
	portHTTPS = 443
)

const (
	sourceAt, destinationAt = 12, 16 // bytes of the IPv4 header

	tcpFlagsAt = 13 // byte of the TCP header
	tcpSYN     = 0x02
	tcpACK     = 0x10
)

// way is where a pod with the address from may connect to.
type way struct{ from, egress netip.Addr }

// closeOutgoing sets the rules; open is nil without egress. Call it before anything runs in
// the namespace.
func closeOutgoing(ns netns.NsHandle, open *way) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return fmt.Errorf("close the way out of the pod: %w", err)
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "sandlane"})
	chain := conn.AddChain(&nftables.Chain{
		Name: "out", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter,
	})
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	rules := [][]expr.Any{
		{ // to itself
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: interfaceName("lo")},
			accept,
		},
		{ // TCP, but for a first segment: SYN without ACK
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlagsAt, Len: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{tcpSYN | tcpACK}, Xor: []byte{0}},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{tcpSYN}},
			accept,
		},
	}
	if open != nil {
		for _, to := range []struct{ protocol, port int }{
			{unix.IPPROTO_TCP, portNames}, {unix.IPPROTO_UDP, portNames}, {unix.IPPROTO_TCP, portHTTP}, {unix.IPPROTO_TCP, portHTTPS},
		} {
			rules = append(rules, append(open.matches(to.protocol, to.port), accept))
		}
	}
	rules = append(rules, []expr.Any{ // told at once, rather than left to time out
		&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED},
	})
	for _, rule := range rules {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule})
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("close the way out of the pod (nf_tables of the kernel): %w", err)
	}
	return nil
}

// matches are what a packet to a port of the egress process has.
func (w *way) matches(protocol, port int) []expr.Any {
	all := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(protocol)}}, //nolint:gosec // TCP or UDP
	}
	for _, field := range []struct {
		base   expr.PayloadBase
		offset uint32
		is     []byte
	}{
		{expr.PayloadBaseNetworkHeader, sourceAt, w.from.AsSlice()},
		{expr.PayloadBaseNetworkHeader, destinationAt, w.egress.AsSlice()},
		{expr.PayloadBaseTransportHeader, 2, []byte{byte(port >> 8), byte(port)}}, //nolint:gosec // its two bytes
	} {
		all = append(all,
			&expr.Payload{DestRegister: 1, Base: field.base, Offset: field.offset, Len: uint32(len(field.is))}, //nolint:gosec // 2 or 4
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: field.is})
	}
	return all
}

// interfaceName is a name as the kernel compares it: with zeros to its full length.
func interfaceName(name string) []byte {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}

// TryClosing tries the rules in a namespace that is gone afterwards. After an error the bridge opens
// networks without them.
func (b *Bridge) TryClosing() error {
	ns, err := newNamespace()
	if err != nil {
		b.leaveOutgoing = true
		return err
	}
	defer func() { _ = ns.Close() }()
	err = closeOutgoing(ns, nil)
	b.leaveOutgoing = err != nil
	return err
}
