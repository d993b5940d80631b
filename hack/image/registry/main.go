// Command registry serves images that `make image` wrote as tarballs, from memory on a
// loopback address, so that tests on a real node pull. It says "serving" once all are
// there, and ends with its standard input.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func run() error {
	address := flag.String("address", "127.0.0.1:5000", "loopback address to serve on")
	flag.Parse()
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return fmt.Errorf("-address: %w", err)
	}
	server := &http.Server{
		Handler:           registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		ReadHeaderTimeout: 10 * time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	for _, file := range flag.Args() {
		if err := push(file, *address); err != nil {
			return errors.Join(err, server.Close())
		}
	}
	fmt.Println("serving")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// push gives the registry a tarball's image, under its own name and tag.
func push(file, address string) error {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil || len(manifest) != 1 || len(manifest[0].RepoTags) != 1 {
		return fmt.Errorf("%s is not one image with one tag: %w", file, errors.Join(err, os.ErrInvalid))
	}
	image, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	tag, err := name.NewTag(address + "/" + path.Base(manifest[0].RepoTags[0]))
	if err != nil {
		return fmt.Errorf("name the image of %s: %w", file, err)
	}
	if err := remote.Write(tag, image); err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	return nil
}
