package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	programs    = "usr/local/bin"
	searchPath  = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	serviceUser = "65532:65532" // of the gateway and the controller
	sandboxPort = "49983/tcp"   // sandboxd's
)

// allNames are the images that are built unless others are asked for, in the order
// in which they are built. envoyName is if Envoy's image is named. interpreterName is built
// only if it is named, since it needs a base with Python. testNames are for tests alone.
var (
	allNames        = []string{"sandlane-gateway", "sandlane-controller", "sandlane-base"}
	envoyName       = "sandlane-envoy"
	interpreterName = "sandlane-code-interpreter"
	testNames       = []string{"sandlane-test-envoy", "sandlane-test-base", "sandlane-test-echo", "sandlane-test-idle", "sandlane-test-pause"}
)

// recipes make the images.
var recipes = map[string]func(context.Context, *builder, v1.Platform) (v1.Image, error){
	"sandlane-gateway": func(ctx context.Context, b *builder, p v1.Platform) (v1.Image, error) {
		return b.service(ctx, p, "gateway", "Answers Envoy where sandboxes live; runs beside one")
	},
	"sandlane-controller": func(ctx context.Context, b *builder, p v1.Platform) (v1.Image, error) {
		return b.service(ctx, p, "controller", "Keeps pools of pods and ends sandboxes")
	},
	"sandlane-base": func(ctx context.Context, b *builder, p v1.Platform) (v1.Image, error) {
		if b.base == "" {
			return b.sandbox(ctx, p)
		}
		return b.sandboxOn(ctx, p)
	},
	interpreterName: func(ctx context.Context, b *builder, p v1.Platform) (v1.Image, error) {
		return b.codeInterpreter(ctx, p)
	},
	envoyName: func(ctx context.Context, b *builder, p v1.Platform) (v1.Image, error) {
		return b.envoyWithModule(ctx, p)
	},
	"sandlane-test-envoy": func(_ context.Context, b *builder, p v1.Platform) (v1.Image, error) { return b.testEnvoy(p) },
	"sandlane-test-base":  func(ctx context.Context, b *builder, p v1.Platform) (v1.Image, error) { return b.testBase(ctx, p) },
	"sandlane-test-echo": func(ctx context.Context, b *builder, p v1.Platform) (v1.Image, error) {
		return b.testProgram(ctx, p, "test/echo", "sandlane-test-echo")
	},
	// What a pool's pods run until a claim changes their image.
	"sandlane-test-idle": func(ctx context.Context, b *builder, p v1.Platform) (v1.Image, error) {
		return b.testProgram(ctx, p, "test/echo", "sandlane-test-idle")
	},
	"sandlane-test-pause": func(ctx context.Context, b *builder, p v1.Platform) (v1.Image, error) {
		return b.testProgram(ctx, p, "test/node/pause", "sandlane-test-pause")
	},
}

// builder builds images and remembers what they share.
type builder struct {
	options
	work     string // holds the programs
	stdout   io.Writer
	programs map[string]string // by command and platform
	layers   map[string]v1.Layer
	grounds  map[string]*ground // by architecture
}

// service makes an image of the binary sandlane that runs one of its commands.
// Those of one platform share their layer: which to run is all they differ in.
func (b *builder) service(ctx context.Context, p v1.Platform, command, about string) (v1.Image, error) {
	layer := b.layers[p.Architecture]
	if layer == nil {
		binary, err := b.program(ctx, "cmd/sandlane", p)
		if err != nil {
			return nil, err
		}
		layer, err = layerOf(append(rootFS(),
			entry{path: programs + "/sandlane", mode: 0o755, file: binary},
			entry{path: "etc/passwd", mode: 0o644, text: "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532::/nonexistent:/sbin/nologin\n"},
			entry{path: "etc/group", mode: 0o644, text: "root:x:0:\nnonroot:x:65532:\n"},
		), b.created, types.OCILayer)
		if err != nil {
			return nil, err
		}
		b.layers[p.Architecture] = layer
	}
	return b.finish(scratch(), p, layer, func(c *v1.Config) {
		c.Entrypoint = []string{"/" + programs + "/sandlane", command}
		c.User = serviceUser
		c.Env = []string{searchPath}
		c.WorkingDir = "/"
	}, "sandlane-"+command, about)
}

const sandboxAbout = "sandboxd, the agent that E2B's SDKs talk to in a sandbox"

// sandbox makes the base sandbox on an empty file system.
func (b *builder) sandbox(ctx context.Context, p v1.Platform) (v1.Image, error) {
	agent, err := b.program(ctx, "cmd/sandboxd", p)
	if err != nil {
		return nil, err
	}
	passwd, group, user, err := addUser(
		"root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"root:x:0:\nnogroup:x:65534:\n", "/bin/bash")
	if err != nil {
		return nil, err
	}
	layer, err := layerOf(append(rootFS(),
		entry{path: programs + "/sandboxd", mode: 0o755, file: agent},
		entry{path: "etc/passwd", mode: 0o644, text: passwd},
		entry{path: "etc/group", mode: 0o644, text: group},
		entry{path: "etc/nsswitch.conf", mode: 0o644, text: "hosts: files dns\n"},
		folder("home", 0o755),
		entry{path: user.home, mode: 0o755, folder: true, uid: user.uid, gid: user.gid},
		folder("run", 0o755), folder("var", 0o755), folder("var/tmp", 0o1777),
	), b.created, types.OCILayer)
	if err != nil {
		return nil, err
	}
	return b.finish(scratch(), p, layer, func(c *v1.Config) {
		asSandbox(c)
		c.Env = []string{searchPath}
		c.WorkingDir = "/"
	}, "sandlane-base", sandboxAbout)
}

// home is the home of the user that a base may lack.
const home = "home/" + sandboxUser

// wanted are the folders that the base sandbox needs.
var wanted = []string{"etc", "home", home, "tmp", "usr", "usr/local", programs}

// ground returns the base for a platform, which is pulled once.
func (b *builder) ground(ctx context.Context, p v1.Platform) (*ground, error) {
	if g := b.grounds[p.Architecture]; g != nil {
		return g, nil
	}
	g, err := pull(ctx, b.base, p, wanted)
	if err == nil {
		b.grounds[p.Architecture] = g
	}
	return g, err
}

// sandboxOn makes the base sandbox on another image: sandboxd and, if there is
// none, the user, in one layer on top. Everything else stays as it is.
func (b *builder) sandboxOn(ctx context.Context, p v1.Platform) (v1.Image, error) {
	agent, err := b.program(ctx, "cmd/sandboxd", p)
	if err != nil {
		return nil, err
	}
	g, err := b.ground(ctx, p)
	if err != nil {
		return nil, err
	}
	shell := "/bin/bash"
	if !g.bash {
		shell = "/bin/sh"
		fmt.Fprintf(b.stdout, "note: %s has no /bin/bash, which SDKs run commands with\n", b.base)
	}
	if g.passwd == "" {
		g.passwd, g.group = "root:x:0:0:root:/root:"+shell+"\n", "root:x:0:\n"
	}
	passwd, group, user, err := addUser(g.passwd, g.group, shell)
	if err != nil {
		return nil, fmt.Errorf("add the user to %s: %w", b.base, err)
	}
	entries := []entry{
		{path: programs + "/sandboxd", mode: 0o755, file: agent},
		{path: "etc/passwd", mode: 0o644, text: passwd},
		{path: "etc/group", mode: 0o644, text: group},
	}
	for _, f := range wanted {
		switch {
		case f == home:
			if user.home == home {
				// Also where it is there: it must be the user's.
				entries = append(entries, entry{path: f, mode: 0o755, folder: true, uid: user.uid, gid: user.gid})
			}
		case g.folders[f]: // as it is
		case f == "tmp":
			entries = append(entries, folder(f, 0o1777))
		default:
			entries = append(entries, folder(f, 0o755))
		}
	}
	media, err := layerMedia(g.image)
	if err != nil {
		return nil, err
	}
	layer, err := layerOf(entries, b.created, media)
	if err != nil {
		return nil, err
	}
	return b.finish(g.image, p, layer, func(c *v1.Config) {
		keepForCommands(c)
		asSandbox(c)
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels["org.opencontainers.image.base.name"] = g.name
		c.Labels["org.opencontainers.image.base.digest"] = g.digest
	}, "sandlane-base", sandboxAbout)
}

// commandEnv names the variables that sandboxd hands on to commands: it cannot tell
// the image's from those that a pod adds.
const commandEnv = "SANDBOXD_ENV"

// userEnv tells sandboxd, which runs as root itself, the user of the image.
const userEnv = "SANDBOXD_USER"

// keepForCommands has commands run as the image's user, and with the variables that
// the image had: PATH they get anyway, and HOME and USER are those of their user. The
// working directory they get because sandboxd starts in it.
func keepForCommands(c *v1.Config) {
	if c.User != "" && !slices.ContainsFunc(c.Env, func(pair string) bool { return strings.HasPrefix(pair, userEnv+"=") }) {
		c.Env = append(c.Env, userEnv+"="+c.User)
	}
	var names []string
	for _, pair := range c.Env {
		name, _, _ := strings.Cut(pair, "=")
		switch {
		case strings.HasPrefix(name, "SANDBOXD_"):
			if name == commandEnv {
				return // its author knows better
			}
		case name != "PATH":
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		c.Env = append(c.Env, commandEnv+"="+strings.Join(names, ","))
	}
}

// asSandbox runs sandboxd, as root so that it can act for every user.
func asSandbox(c *v1.Config) {
	c.Entrypoint, c.Cmd = []string{"/" + programs + "/sandboxd"}, nil
	c.User = "0:0"
	c.ExposedPorts = map[string]struct{}{sandboxPort: {}}
	c.Healthcheck = nil // was for what ran before
}

// rootFS is what every image has that is made on nothing.
func rootFS() []entry {
	return []entry{
		folder("etc", 0o755), folder("etc/ssl", 0o755), folder("etc/ssl/certs", 0o755),
		{path: trustFile, mode: 0o644, text: authorities()},
		folder("root", 0o700), folder("tmp", 0o1777),
		folder("usr", 0o755), folder("usr/local", 0o755), folder(programs, 0o755),
	}
}

// scratch is an image of OCI's types with nothing in it.
func scratch() v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// layerMedia is the type of a layer that goes with those of an image: registries
// refuse a mixture of Docker's and OCI's.
func layerMedia(image v1.Image) (types.MediaType, error) {
	media, err := image.MediaType()
	if err != nil {
		return "", fmt.Errorf("the type of an image: %w", err)
	}
	if media == types.OCIManifestSchema1 {
		return types.OCILayer, nil
	}
	return types.DockerLayer, nil
}

// finish puts the layer on an image and sets what it says of itself.
func (b *builder) finish(on v1.Image, p v1.Platform, layer v1.Layer, set func(*v1.Config), title, about string) (v1.Image, error) {
	at := v1.Time{Time: b.created}
	image, err := mutate.Append(on, mutate.Addendum{
		Layer: layer, History: v1.History{Created: at, CreatedBy: "make image", Comment: title},
	})
	if err != nil {
		return nil, fmt.Errorf("add the layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	config = config.DeepCopy()
	config.Created, config.OS, config.Architecture, config.Author = at, p.OS, p.Architecture, "Sandlane"
	set(&config.Config)
	labels := map[string]string{
		"org.opencontainers.image.title":       title,
		"org.opencontainers.image.description": about,
		"org.opencontainers.image.version":     b.version,
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
	if config.Config.Labels == nil {
		config.Config.Labels = map[string]string{}
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		config.Config.Labels[k] = labels[k]
	}
	return mutate.ConfigFile(image, config)
}
