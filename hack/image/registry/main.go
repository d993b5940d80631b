// Command registry serves images of tarballs, as `make image` writes, from memory and without
// TLS, so that tests on a real node pull. With -login it takes no other push. It says "serving"
// once all are there, and ends with its standard input.
package main

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
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
	address := flag.String("address", "127.0.0.1:5000", "address to serve on")
	login := flag.String("login", "", "user:password without which nothing can be pushed; empty: anybody can")
	flag.Parse()
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return fmt.Errorf("-address: %w", err)
	}
	server := &http.Server{
		Handler:           guarded(registry.New(registry.Logger(log.New(io.Discard, "", 0))), *login),
		ReadHeaderTimeout: 10 * time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	for _, file := range flag.Args() {
		if err := push(file, *address, *login); err != nil {
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

// guarded asks all that would change the registry for the login, and its greeting, by which a
// client learns that there are logins.
func guarded(registry http.Handler, login string) http.Handler {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(login))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if login != "" && (!reads || r.URL.Path == "/v2/") && r.Header.Get("Authorization") != want {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		registry.ServeHTTP(w, r)
	})
}

// push gives the registry a tarball's image, under its own name and tag.
func push(file, address, login string) error {
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
	user, password, _ := strings.Cut(login, ":")
	if err := remote.Write(tag, image, remote.WithAuth(&authn.Basic{Username: user, Password: password})); err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	return nil
}
