package dns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// maxMessage bounds a question by UDP, and maxAsked how many of one address are answered at
// once: one sandbox's questions are no reason to drop another's.
const (
	maxMessage = 1232
	maxAsked   = 64
)

// streamIdle is how long a connection may be silent between two questions.
const streamIdle = 10 * time.Second

// Answerer answers one message; nil is no answer.
type Answerer func(message []byte) []byte

// Packets answers the questions that come by UDP, until the connection is closed. arrived
// is called for each as soon as it was read, by one goroutine; the Answerer that it returns
// is called by another. It returns when all are answered.
func Packets(c net.PacketConn, arrived func(from netip.Addr) Answerer) error {
	asked := asked{of: map[netip.Addr]int{}}
	var answering sync.WaitGroup
	defer answering.Wait()
	b := make([]byte, maxMessage+1)
	for {
		n, from, err := c.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a question: %w", err)
		}
		client := from.(*net.UDPAddr).AddrPort().Addr().Unmap()
		if n > maxMessage || !asked.begin(client) {
			continue
		}
		answer, message := arrived(client), append([]byte(nil), b[:n]...)
		answering.Go(func() {
			defer asked.end(client)
			if reply := answer(message); reply != nil {
				_, _ = c.WriteTo(reply, from) // a lost answer is asked for again
			}
		})
	}
}

// asked counts questions that are being answered.
type asked struct {
	mu sync.Mutex
	of map[netip.Addr]int
}

func (a *asked) begin(client netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[client] >= maxAsked {
		return false
	}
	a.of[client]++
	return true
}

func (a *asked) end(client netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[client]--; a.of[client] == 0 {
		delete(a.of, client)
	}
}

// Stream answers the questions that come by a TCP connection, one after the other, until it
// ends or is silent for too long. It does not close it.
func Stream(c net.Conn, answer Answerer) error {
	for {
		if err := c.SetDeadline(time.Now().Add(streamIdle)); err != nil {
			return fmt.Errorf("bound a connection's silence: %w", err)
		}
		var length [2]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read a question's length: %w", err)
		}
		message := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(c, message); err != nil {
			return fmt.Errorf("read a question: %w", err)
		}
		reply := answer(message)
		if reply == nil {
			return nil
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
	}
}
