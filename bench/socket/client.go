package socket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/sandlane/sandlane/bench/load"
)

// bytesCodec passes encoded messages through without decoding them.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// request is what Envoy sends for a request of curl to a sandbox.
func request(host string) ([]byte, error) {
	m := &corev3.HeaderMap{}
	for _, h := range [][2]string{
		{":authority", host}, {":path", "/"}, {":method", "GET"}, {":scheme", "http"}, {"user-agent", "curl/8.14.1"}, {"accept", "*/*"},
	} {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: h[0], RawValue: []byte(h[1])})
	}
	return proto.Marshal(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: m, EndOfStream: true}},
	})
}

// client is one connection.
type client struct {
	conn     *grpc.ClientConn
	requests [][]byte
}

func dial(socket string, requests [][]byte) (*client, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})), grpc.WithInitialConnWindowSize(16<<20), grpc.WithInitialWindowSize(1<<20))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	return &client{conn: conn, requests: requests}, nil
}

// round keeps the given number of streams busy for d.
func (c *client) round(ctx context.Context, streams int, d time.Duration) (load.Report, error) {
	var (
		count atomic.Int64
		all   sync.WaitGroup
		errs  = make([]error, streams)
		start = time.Now()
	)
	for i := range streams {
		all.Go(func() {
			for n := i; time.Since(start) < d && ctx.Err() == nil; n += streams {
				if errs[i] = c.ask(ctx, &c.requests[n%len(c.requests)]); errs[i] != nil {
					return
				}
				count.Add(1)
			}
		})
	}
	all.Wait()
	return load.Report{Requests: count.Load(), Took: time.Since(start)}, errors.Join(errs...)
}

// once sends every request once, over the given number of streams.
func (c *client) once(ctx context.Context, streams int) (load.Report, error) {
	var (
		next  atomic.Int64
		all   sync.WaitGroup
		errs  = make([]error, streams)
		start = time.Now()
	)
	for i := range streams {
		all.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(c.requests)); n = next.Add(1) - 1 {
				if errs[i] = c.ask(ctx, &c.requests[n]); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return load.Report{Requests: int64(len(c.requests)), Took: time.Since(start)}, errors.Join(errs...)
}

// destination is a field that every answer with a route has, and no error.
var destination = []byte("destination")

var process = &grpc.StreamDesc{StreamName: "Process", ServerStreams: true, ClientStreams: true}

// ask sends one request and reads the answer and the end of the stream.
func (c *client) ask(ctx context.Context, request *[]byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.conn.NewStream(ctx, process, extprocv3.ExternalProcessor_Process_FullMethodName)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(request); err != nil {
		return err
	}
	var answer []byte
	if err := stream.RecvMsg(&answer); err != nil {
		return err
	}
	if !bytes.Contains(answer, destination) {
		return fmt.Errorf("an answer of %d bytes is not a route", len(answer))
	}
	if err := stream.RecvMsg(&answer); !errors.Is(err, io.EOF) {
		return fmt.Errorf("after the answer: %w", err)
	}
	return nil
}
