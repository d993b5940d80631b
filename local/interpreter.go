package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/interpreter"
	"github.com/sandlane/sandlane/local/node"
	"github.com/sandlane/sandlane/local/node/images"
	"github.com/sandlane/sandlane/local/node/rootfs"
)

// The pool of the code interpreter comes beside everything else: its packages are fetched
// while the rest builds and starts, and neither `up` nor the first request waits for them.
// If they cannot be had, the pool is left out with a line that says why.

const (
	// interpreterName is the template that E2B's code interpreter SDKs ask for.
	interpreterName  = "code-interpreter-v1"
	interpreterImage = "local/code-interpreter"
	// wheelsDir and serverDir are where pods see the packages and the server.
	wheelsDir = "/opt/code-interpreter/packages"
	serverDir = "/opt/code-interpreter/server"
)

// interpreterInstall is the installation of the packages, which goes on beside.
type interpreterInstall struct {
	done chan struct{} // closed when dir and err are set
	dir  string
	err  error
}

// beginInterpreter starts the installation, if the pool is wanted and can be. The returned
// function waits until it has ended, which it does soon after ctx.
func (u *up) beginInterpreter(ctx context.Context) (wait func()) {
	if u.o.InterpreterPoolSize == 0 {
		return func() {}
	}
	install := &interpreterInstall{done: make(chan struct{})}
	u.interpreter = install
	go func() {
		defer close(install.done)
		if u.o.Isolation == IsolationNone || node.CanIsolate() != nil {
			install.err = errors.New("it needs pods with file systems of their own (root)")
			return
		}
		install.dir, install.err = interpreter.Install(ctx, interpreter.Options{Python: rootfs.SeenOnPath("python3"), Progress: u.o.Progress})
	}()
	return func() { <-install.done }
}

// addInterpreter makes the image and the pool once the packages are there, and says when the
// pool is warm. It returns when ctx ends at the latest.
func (u *up) addInterpreter(ctx context.Context) {
	if u.interpreter == nil {
		return
	}
	err := u.makeInterpreter(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		u.o.Progress(fmt.Sprintf("warning: the code interpreter is left out: %v", err))
	default:
		u.o.Progress("the pool " + interpreterName + " is warm: programs that use e2b-code-interpreter find a sandbox")
	}
}

func (u *up) makeInterpreter(ctx context.Context) error {
	select {
	case <-u.interpreter.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if u.interpreter.err != nil {
		return u.interpreter.err
	}
	if err := interpreter.Unpack(u.dataPlane.interpreterDir()); err != nil {
		return err
	}
	if err := u.dataPlane.writeImages(u.interpreter.dir); err != nil {
		return err
	}
	if err := u.api.Create(ctx, u.byName(interpreterPool(u.o.InterpreterPoolSize))); err != nil {
		return fmt.Errorf("create the pool %s: %w", interpreterName, err)
	}
	return waitPool(ctx, u.api, interpreterName, u.o.InterpreterPoolSize, func(string) {})
}

func (d *dataPlane) interpreterDir() string { return filepath.Join(d.helperDir(), "interpreter") }

// interpreterOf is the image of the code interpreter: sandboxd, which starts it, over this
// machine's Python with the packages in a folder.
func (d *dataPlane) interpreterOf(packages string) images.Entry {
	return images.Entry{
		Command: []string{filepath.Join(d.helperDir(), "sandboxd")}, Aliases: []string{"sudo"},
		Env: map[string]string{
			"LANG": "C.UTF-8", "PYTHONPATH": serverDir + ":" + wheelsDir, commandEnv: "LANG,PYTHONPATH",
		},
		Folders: map[string]string{wheelsDir: packages, serverDir: d.interpreterDir()},
	}
}

// interpreterPool is as basePool, and its pods are ready when their first kernel is.
func interpreterPool(replicas int) *v1alpha1.SandboxPool {
	pool := basePool(replicas, node.IsolationFull)
	pool.Name = interpreterName
	main := &pool.Spec.Template.Template.Spec.Containers[0]
	main.Image = interpreterImage
	main.Args = append(main.Args, "--", "python3", "-m", interpreter.Module)
	main.Ports = append(main.Ports, corev1.ContainerPort{Name: "interpreter", ContainerPort: interpreter.Port})
	main.ReadinessProbe = httpProbe("/health", interpreter.Port)
	return pool
}
