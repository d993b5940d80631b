package builds

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
)

const (
	// buildUser runs the steps until one says otherwise, and is added to an image that has no
	// such user. E2B's templates have it.
	buildUser = "user"
	buildHome = "/home/" + buildUser

	// helper is where the runtime sandboxd puts sandboxd; package sandboxd/buildstep says what
	// it does for a build.
	helper = "/sandlane/bin/sandboxd"
	// uploaded is where the archive of a COPY step is put. sandboxd's archive leaves the folder
	// out.
	uploaded = "/run/e2b/build.tar"

	// envUser tells sandboxd the user of commands that name none; see package sandboxd.
	envUser = "SANDBOXD_USER"
)

// state is what steps change besides files.
type state struct {
	user, dir string
	image     []string // the base's variables, "name=value"
	env       []string // those of ENV steps, in their order
}

// initial is the state before the first step on a base; on a template it is that after its last.
func initial(base v1.Config, template bool) *state {
	s := &state{user: buildUser, dir: buildHome, image: base.Env}
	if template {
		s.user = cmp.Or(valueOf(base.Env, envUser), s.user)
	}
	if dir := path.Clean("/" + base.WorkingDir); dir != "/" {
		s.dir = dir
	}
	return s
}

// variables are those of ENV steps.
func (s *state) variables() map[string]string {
	all := map[string]string{}
	for _, pair := range s.env {
		name, value, _ := strings.Cut(pair, "=")
		all[name] = value
	}
	return all
}

// expand replaces $name and ${name}.
func (s *state) expand(text string) string {
	return os.Expand(text, func(name string) string {
		return valueOf(slices.Concat(s.image, s.env), name)
	})
}

// valueOf returns the last value of a variable.
func valueOf(pairs []string, name string) string {
	for _, pair := range slices.Backward(pairs) {
		if known, value, _ := strings.Cut(pair, "="); known == name {
			return value
		}
	}
	return ""
}

// below is a path from the working directory.
func (s *state) below(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(s.dir, p)
}

// action is what one step does in the builder.
type action struct {
	// files is the upload that is put into the sandbox before the command: the client's name of it,
	// and in a plan that of the store; empty: none.
	files string
	// command runs after that; nil: none.
	command *sandboxdclient.Command
	// text is what the log says of the step.
	text string
}

// take returns what a step does, and changes the state as if it had been done.
func (s *state) take(step v1alpha1.TemplateStep) (action, error) {
	args := step.Args
	if len(args) == 0 {
		return action{}, fmt.Errorf("%s has no arguments", step.Type)
	}
	text := string(step.Type) + " " + strings.Join(args, " ")
	switch step.Type {
	case v1alpha1.StepRun:
		user := s.user
		if len(args) > 1 && args[1] != "" {
			user = args[1]
		}
		return action{text: "RUN " + args[0], command: &sandboxdclient.Command{
			Program: "/bin/bash", Args: []string{"-l", "-c", args[0]}, Dir: s.dir, Env: s.variables(), User: user,
		}}, nil
	case v1alpha1.StepEnv:
		names := make([]string, 0, len(args)/2)
		for pair := range slices.Chunk(args, 2) {
			if len(pair) != 2 || pair[0] == "" || strings.Contains(pair[0], "=") {
				return action{}, fmt.Errorf("ENV has a name without a value, or one that no variable can have")
			}
			s.env = append(s.env, pair[0]+"="+s.expand(pair[1]))
			names = append(names, pair[0])
		}
		return action{text: "ENV " + strings.Join(names, " ")}, nil // a value may be a secret
	case v1alpha1.StepWorkdir:
		s.dir = s.below(s.expand(args[0]))
		return action{text: text, command: s.help("--make-dir", s.dir, "--owner", s.user)}, nil
	case v1alpha1.StepUser:
		s.user = s.expand(args[0])
		return action{text: "USER " + s.user, command: s.help("--add-user", s.user)}, nil
	case v1alpha1.StepCopy:
		return s.copy(step)
	}
	return action{}, fmt.Errorf("there is no step %s", step.Type)
}

func (s *state) copy(step v1alpha1.TemplateStep) (action, error) {
	args := append(slices.Clone(step.Args), "", "", "")[:4]
	if step.Files == "" || args[1] == "" {
		return action{}, fmt.Errorf("COPY has no files, or no destination")
	}
	to := s.expand(args[1])
	folder := strings.HasSuffix(to, "/") || to == "." || strings.HasSuffix(to, "/.")
	if to = s.below(to); folder && to != "/" {
		to += "/"
	}
	owner, mode := args[2], args[3]
	if owner == "" {
		owner = s.user
	}
	help := []string{"--unpack", uploaded, "--from", args[0], "--to", to, "--owner", owner}
	if mode != "" {
		help = append(help, "--mode", mode)
	}
	return action{text: strings.TrimSpace("COPY " + args[0] + " " + args[1]), files: step.Files, command: s.help(help...)}, nil
}

// help is a command of sandboxd as root.
func (s *state) help(args ...string) *sandboxdclient.Command {
	return &sandboxdclient.Command{Program: helper, Args: args, Dir: "/", User: "root"}
}

// configure writes the state into the configuration of the image. Its user is root, since
// sandboxd acts for all users; what sandboxd runs has the state's.
func (s *state) configure(c *v1.Config) {
	for _, pair := range append(slices.Clone(s.env), envUser+"="+s.user) {
		name, _, _ := strings.Cut(pair, "=")
		c.Env = slices.DeleteFunc(c.Env, func(had string) bool { return strings.HasPrefix(had, name+"=") })
		c.Env = append(c.Env, pair)
	}
	c.User, c.WorkingDir = "", s.dir
}
