// Command release completes the folder of a release: it adds the charts, as files and as OCI
// artefacts beside the images in the folder's layout, and an SBOM of all programs, in SPDX.
// With -push it copies what the layout has to a registry instead. hack/release.sh runs it,
// and has the sums made and signed between the two.
//
// The same sources, version and time give the same bytes.
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
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

// layoutFolder has images and charts, below the release's folder.
const layoutFolder = "oci"

// options are what the command line says.
type options struct {
	dir     string // of the release
	charts  string // folder of the charts' sources
	version string // of everything
	push    string // registry and prefix
	created time.Time
}

// aVersion is what images, charts and tags of git can have in common: SemVer with a v.
var aVersion = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$`)

func run(ctx context.Context, args []string, stdout io.Writer) error {
	var o options
	var seconds int64
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&o.dir, "dir", "", "folder of the release")
	flags.StringVar(&o.charts, "charts", "charts", "folder of the charts' sources")
	flags.StringVar(&o.version, "version", "", "version of everything, as v1.2.3")
	flags.Int64Var(&seconds, "created", 0, "time of the commit, in seconds since 1970")
	flags.StringVar(&o.push, "push", "", "registry and prefix to push images and charts to, in place of making anything")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || o.dir == "" {
		return errors.New("-dir must name the release's folder, and there are no arguments besides flags")
	}
	if o.push != "" {
		return push(ctx, filepath.Join(o.dir, layoutFolder), o.push, stdout)
	}
	if !aVersion.MatchString(o.version) {
		return fmt.Errorf("-version %q is not of the form v1.2.3 or v1.2.3-text", o.version)
	}
	o.created = time.Unix(seconds, 0).UTC()
	if err := addCharts(o, stdout); err != nil {
		return err
	}
	return writeSBOM(o, stdout)
}
