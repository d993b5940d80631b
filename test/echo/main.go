// Command echo is the image local/echo: the server that the demo pool, the
// end-to-end tests and the benchmarks talk to. It says who it is and what it
// was sent; it is not meant for anything else.
//
// It listens on $POD_IP:8000 where the local node sets SANDLANE_ADDRESS (a
// node without isolation, where all pods share the machine's addresses), else
// on all addresses.
//
// With a port as its argument it listens there, and serves the folder that it was
// started in.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const port = "8000"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	at, handler := port, newHandler(os.Getenv("POD_NAME"), os.Getenv("POD_UID"))
	if len(os.Args) == 2 {
		at, handler = os.Args[1], http.FileServer(http.Dir("."))
	}
	if err := run(ctx, net.JoinHostPort(listenHost(os.Getenv), at), handler); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

// listenHost is the address to listen on.
func listenHost(getenv func(string) string) string {
	if addr := getenv("SANDLANE_ADDRESS"); addr != "" {
		return addr
	}
	return "0.0.0.0"
}

func run(ctx context.Context, address string, handler http.Handler) error {
	server := &http.Server{
		Addr: address, Handler: handler,
		ReadHeaderTimeout: time.Minute,
		Protocols:         new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	fmt.Println("listening on", address)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
