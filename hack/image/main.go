// Command image builds the container images of Sandlane, without Docker: the
// gateway, the controller and a base sandbox. `make image` runs it.
//
// It compiles the programs, puts them into layers, and writes each image as a
// tarball for each platform, or into a folder of OCI's layout, and, if asked, to a
// registry. It runs nothing of an image. The gateway's sidecar is Envoy's own image, or one that is made on it and
// holds the module of the fast path (sandlane-envoy); that needs a registry.
//
// Tests run where no registry can be reached. For them there are images of
// programs of this machine (sandlane-test-…), built only if named.
//
// The same sources, Go and flags give the same bytes: layers hold no time but
// the one given, and the programs carry no path and no stamp of this checkout.
//
// A build is: flags → programs (one compilation a program and platform) → images
// → tarballs → registry. The first failure ends it. A tarball is written beside
// its name and renamed, so a file that is there is whole; on a registry an image
// has its name only after all of it is there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		stop()
		os.Exit(1)
	}
}

// options are what the command line says.
type options struct {
	root      string // of the repository
	out       string // folder of the tarballs
	layout    string // folder of OCI's layout, in place of tarballs
	names     []string
	version   string // linked into the programs
	tag       string
	push      string // registry and prefix; empty pushes nothing
	envoy     string // Envoy's binary, for sandlane-test-envoy
	envoyBase string // Envoy's image, that sandlane-envoy is made on
	module    string // of the fast path; for linux/amd64
	base      string // image that sandboxes are made on; empty is none
	packages  string // lock file of what the code interpreter has
	platforms []v1.Platform
	created   time.Time
}

// run builds what the command line asks for and prints a line for each thing
// that it wrote.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "sandlane-image-")
	if err != nil {
		return fmt.Errorf("make a folder for the programs: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	b := &builder{options: o, work: work, stdout: stdout, programs: map[string]string{}, layers: map[string]v1.Layer{}, grounds: map[string]*ground{}}
	for _, name := range o.names {
		built := make([]platformImage, 0, len(o.platforms))
		for _, p := range o.platforms {
			image, err := recipes[name](ctx, b, p)
			if err != nil {
				return fmt.Errorf("build %s for %s: %w", name, p, err)
			}
			built = append(built, platformImage{p, image})
		}
		if err := b.save(name, built); err != nil {
			return fmt.Errorf("save %s: %w", name, err)
		}
		if o.push == "" {
			continue
		}
		if err := b.pushAll(ctx, name, built); err != nil {
			return fmt.Errorf("push %s: %w", name, err)
		}
	}
	return nil
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "root of the repository")
	flags.StringVar(&o.out, "out", "bin/images", "folder to write the tarballs to, below the root")
	flags.StringVar(&o.layout, "layout", "", "folder of OCI's image layout to add the images to, in place of tarballs; with -platforms for several, an index of them")
	flags.StringVar(&o.version, "version", "dev", "version of the programs")
	flags.StringVar(&o.tag, "tag", "", "tag of the images (default the version)")
	flags.StringVar(&o.push, "push", "", "registry and prefix to push to, such as localhost:5000/sandlane")
	flags.StringVar(&o.base, "base", "", "image to make sandboxes on (default none: an empty file system; sandlane-code-interpreter needs one with Python)")
	flags.StringVar(&o.packages, "packages", "interpreter/requirements.lock", "lock file of the code interpreter's packages, below the root")
	flags.StringVar(&o.envoy, "envoy", "", "Envoy's binary on this machine, for sandlane-test-envoy")
	flags.StringVar(&o.envoyBase, "envoy-base", "", "Envoy's image, such as envoyproxy/envoy:distroless-v1.40.0: build also sandlane-envoy on it, which has the module of the fast path")
	flags.StringVar(&o.module, "module", "local/helpers/bin/fastpath.so", "that module, below the root")
	names := flags.String("images", strings.Join(allNames, ","), "images to build, also "+interpreterName+", "+envoyName+", "+strings.Join(testNames, ", "))
	platforms := flags.String("platforms", "linux/"+runtime.GOARCH, "platforms to build for")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var err error
	if o.root, err = filepath.Abs(o.root); err != nil {
		return o, fmt.Errorf("-root %s: %w", o.root, err)
	}
	if !filepath.IsAbs(o.out) {
		o.out = filepath.Join(o.root, o.out)
	}
	if !filepath.IsAbs(o.packages) {
		o.packages = filepath.Join(o.root, o.packages)
	}
	if !filepath.IsAbs(o.module) {
		o.module = filepath.Join(o.root, o.module)
	}
	if o.envoyBase != "" && *names == strings.Join(allNames, ",") {
		*names += "," + envoyName
	}
	if o.tag == "" {
		o.tag = strings.ReplaceAll(o.version, "+", "-") // not allowed in tags
	}
	for name := range strings.SplitSeq(*names, ",") {
		if recipes[name] == nil {
			return o, fmt.Errorf("-images: there is no image %q, only %s", name, strings.Join(slices.Concat(allNames, []string{interpreterName, envoyName}, testNames), ", "))
		}
		if name == interpreterName && o.base == "" {
			return o, errors.New("-images: " + interpreterName + " needs -base, an image with Python such as python:3.13-slim")
		}
		o.names = append(o.names, name)
	}
	for text := range strings.SplitSeq(*platforms, ",") {
		p, err := v1.ParsePlatform(text)
		if err != nil || p.OS != "linux" || p.Architecture == "" || p.Variant != "" || p.OSVersion != "" {
			return o, fmt.Errorf("-platforms: %q is not of the form linux/ARCHITECTURE", text)
		}
		o.platforms = append(o.platforms, *p)
	}
	o.created, err = sourceDate(os.Getenv("SOURCE_DATE_EPOCH"))
	return o, err
}

// sourceDate is the one time in an image: 1970 unless the usual variable says
// otherwise.
func sourceDate(seconds string) (time.Time, error) {
	if seconds == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(n, 0).UTC(), nil
}
