package template

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
)

const (
	// statusEvery is the time between two looks at a build.
	statusEvery = 500 * time.Millisecond
	// logsAtOnce is how many lines one answer has at most.
	logsAtOnce = 100
)

// options of a build.
type options struct {
	file, name, start, ready string
	cpus, memory             int
	force                    bool
}

func newBuild(at *flags) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "build [CONTEXT]",
		Example: `  sandlane template build --name mine .
  sandlane template build --name mine:v2 -f docker/Dockerfile --start "python3 app.py" .`,
		Short: "Build a template of a Dockerfile, and show what the build prints",
		Long: `Build a template of a Dockerfile whose COPY copies from the folder CONTEXT (default the
present one; its .dockerignore counts), and show what the build prints. FROM (once), RUN,
COPY, ADD of files, ENV, WORKDIR, USER, and CMD or ENTRYPOINT, which becomes the start
command, mean what they mean to E2B's SDK: without USER and WORKDIR sandboxes have the
user "user" and /home/user. Ctrl-C leaves the build running.`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "file", "f", "", "Dockerfile `FILE` (default CONTEXT/Dockerfile)")
	f.StringVar(&o.name, "name", "", "`NAME` of the template, and a tag of the build behind a colon")
	f.StringVar(&o.start, "start", "", "start `COMMAND` of each sandbox (default CMD or ENTRYPOINT)")
	f.StringVar(&o.ready, "ready", "", "`COMMAND` that succeeds when a sandbox is ready")
	f.IntVar(&o.cpus, "cpus", 2, "CPUs of a sandbox")
	f.IntVar(&o.memory, "memory", 512, "memory of a sandbox, in MB")
	f.BoolVar(&o.force, "no-cache", false, "do all steps, also those that an earlier build has done")
	cmdflags.Files(cmd, "file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := "."
		if len(args) > 0 {
			dir = args[0]
		}
		if o.name == "" {
			return errors.New("--name says what the template is called")
		}
		if o.file == "" {
			o.file = filepath.Join(dir, "Dockerfile")
		}
		text, err := os.ReadFile(o.file)
		if err != nil {
			return fmt.Errorf("read the Dockerfile: %w", err)
		}
		r, err := parse(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", o.file, err)
		}
		r.start = cmp.Or(o.start, r.start)
		from, err := openContext(dir)
		if err != nil {
			return err
		}
		a, err := at.connect()
		if err != nil {
			return err
		}
		return build(cmd.Context(), a, o, r, from, cmd.OutOrStdout())
	}
	return cmd
}

// requested is a build at the REST API.
type requested struct {
	api                 *api
	TemplateID, BuildID string
}

func build(ctx context.Context, a *api, o options, r *recipe, from *buildContext, out io.Writer) error {
	began := time.Now()
	b := &requested{api: a}
	if err := a.call(ctx, "POST", "/v3/templates", map[string]any{"name": o.name, "cpuCount": o.cpus, "memoryMB": o.memory}, b); err != nil {
		return fmt.Errorf("build %s: %w", o.name, err)
	}
	for i := range r.steps {
		if s := &r.steps[i]; s.Type == "COPY" {
			if err := b.upload(ctx, s, from, out); err != nil {
				return fmt.Errorf("COPY %s: %w", s.Args[0], err)
			}
		}
	}
	body := map[string]any{"fromImage": r.image, "steps": r.steps, "force": o.force, "startCmd": r.start, "readyCmd": o.ready}
	if err := a.call(ctx, "POST", "/v2/templates/"+escape(b.TemplateID)+"/builds/"+escape(b.BuildID), body, nil); err != nil {
		return fmt.Errorf("build %s: %w", o.name, err)
	}
	if err := b.follow(ctx, out); err != nil {
		return fmt.Errorf("build %s: %w", o.name, err)
	}
	_, err := fmt.Fprintf(out, "template %s is ready after %s: its ID is %s, the build's %s\n", o.name, time.Since(began).Round(100*time.Millisecond), b.TemplateID, b.BuildID)
	return err
}

// upload uploads the files of a COPY step, unless they are there.
func (b *requested) upload(ctx context.Context, s *step, from *buildContext, out io.Writer) error {
	file, size, hash, err := from.archive(s.Args[0])
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it is removed already
	s.FilesHash = hash
	var files struct {
		Present bool
		URL     string
	}
	if err := b.api.call(ctx, "GET", "/templates/"+escape(b.TemplateID)+"/files/"+hash, nil, &files); err != nil {
		return err
	}
	if files.Present {
		return nil
	}
	fmt.Fprintf(out, "uploading %s: %d bytes\n", s.Args[0], size)
	return b.api.put(ctx, files.URL, file, size)
}

// follow prints what the build prints until it is over.
func (b *requested) follow(ctx context.Context, out io.Writer) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for offset := 0; ; {
		var is struct {
			Status     string
			LogEntries []struct{ Message, Step string }
			Reason     struct{ Message, Step string }
		}
		path := fmt.Sprintf("/templates/%s/builds/%s/status?logsOffset=%d&limit=%d", escape(b.TemplateID), escape(b.BuildID), offset, logsAtOnce)
		if err := b.api.call(ctx, "GET", path, nil, &is); err != nil {
			if ctx.Err() != nil {
				return errors.New("stopped looking; the build goes on: see sandlane template list")
			}
			return err
		}
		for _, e := range is.LogEntries {
			fmt.Fprintf(out, "[%s] %s\n", e.Step, e.Message)
		}
		if offset += len(is.LogEntries); len(is.LogEntries) == logsAtOnce {
			continue
		}
		switch is.Status {
		case "ready":
			return nil
		case "error":
			return fmt.Errorf("failed at the step %s: %s", is.Reason.Step, is.Reason.Message)
		}
		select {
		case <-ctx.Done():
			return errors.New("stopped looking; the build goes on: see sandlane template list")
		case <-tick.C:
		}
	}
}
