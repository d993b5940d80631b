package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/local/node/containerlog"
	"github.com/sandlane/sandlane/local/node/environment"
	"github.com/sandlane/sandlane/local/node/images"
	"github.com/sandlane/sandlane/local/node/process"
	"github.com/sandlane/sandlane/local/node/rootfs"
	"github.com/sandlane/sandlane/local/node/status"
	"github.com/sandlane/sandlane/local/node/volumes"
)

// startError is the exit code a kubelet shows for a program that did not start.
const startError = 128

// container is one container of a pod. Its goroutine (run) alone starts and
// stops processes; the status fields are guarded by the pod's mutex.
type container struct {
	pod   *pod
	index int
	init  bool          // it runs to its end before the others start
	image chan struct{} // capacity 1: the image may have changed
	retry restarts

	status corev1.ContainerStatus
	pulled *images.Image    // which is held while the container may run; nil for none of a registry
	proc   *process.Process // of the current run; nil when none is running
	log    string           // file of the current or last run
	oldLog string           // file of the run before
}

// desired is the container as the API has it now.
func (c *container) desired() (*corev1.Pod, *corev1.Container) {
	spec := c.pod.current()
	if c.init {
		return spec, &spec.Spec.InitContainers[c.index]
	}
	return spec, &spec.Spec.Containers[c.index]
}

// mayRestart says whether the container is started again after an end with this code.
func (c *container) mayRestart(code int32) bool {
	policy := c.pod.current().Spec.RestartPolicy
	if c.init {
		policy = status.InitPolicy(policy)
	}
	return status.MayRestart(policy, code)
}

// run keeps the container running until the pod stops or the restart policy
// says that it is over. No process of it lives when run returns.
func (c *container) run() {
	defer func() { c.pulled.Release() }()
	for c.pod.stop.Err() == nil {
		proc, err := c.start()
		var pause time.Duration
		if err != nil {
			if c.pod.stop.Err() != nil {
				return
			}
			pause = c.failed(err)
		} else {
			var again bool
			if pause, again = c.attend(proc); !again {
				return
			}
		}
		if pause < 0 {
			return
		}
		if pause > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-c.image:
			case <-c.pod.stop.Done():
			}
			timer.Stop()
		}
	}
}

// waitingError is a failure before anything ran; reason is shown in the status.
type waitingError struct {
	reason string
	err    error
}

func (e *waitingError) Error() string { return e.err.Error() }

// failed records why start did not start; it returns the pause before the next
// try, negative when there is none.
func (c *container) failed(err error) time.Duration {
	pause := c.retry.after(0)
	if pause == 0 {
		pause = restartPause / 4
	}
	waiting := &waitingError{reason: "RunContainerError", err: err}
	if !errors.As(err, &waiting) {
		c.pod.rt.metrics.failures.Inc()
		now := metav1.Now()
		ended := &corev1.ContainerStateTerminated{
			ExitCode: startError, Reason: "StartError", Message: err.Error(), StartedAt: now, FinishedAt: now,
		}
		if !c.mayRestart(startError) {
			c.set(func(s *corev1.ContainerStatus) { s.State = corev1.ContainerState{Terminated: ended} })
			return -1
		}
		c.set(func(s *corev1.ContainerStatus) { s.LastTerminationState = corev1.ContainerState{Terminated: ended} })
	}
	reason := waiting.reason
	c.set(func(s *corev1.ContainerStatus) {
		if w := s.State.Waiting; w != nil && w.Reason == "ErrImagePull" && reason == "ErrImagePull" {
			reason = "ImagePullBackOff"
		}
		s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: err.Error()}}
	})
	c.pod.event(corev1.EventTypeWarning, "Failed", "container %s: %v", c.name(), err)
	return pause
}

func (c *container) name() string { return c.status.Name }

// start resolves the container's spec and starts its process.
func (c *container) start() (*process.Process, error) {
	p := c.pod
	spec, want := c.desired()
	c.set(func(s *corev1.ContainerStatus) {
		s.Image, s.Ready, s.Started = want.Image, false, new(bool)
		if s.State.Waiting == nil {
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
		}
	})
	image, err := c.findImage(want)
	if err != nil {
		return nil, err
	}
	full := p.rt.bridge != nil
	ps := process.Spec{PodName: spec.Name, PodUID: spec.UID, Container: want.Name, Image: image, Resources: want.Resources, Dir: want.WorkingDir, Resolv: resolvOf(spec)}
	if s := want.SecurityContext; s != nil && s.ReadOnlyRootFilesystem != nil {
		ps.ReadOnly = *s.ReadOnlyRootFilesystem
	}
	if full && ps.Dir == "" { // without a root of its own the folder would be one of this machine
		ps.Dir = image.WorkingDir
	}
	references := environment.References{Client: p.client, Pod: spec, PodIP: p.net.Addr().String()}
	if ps.Mounts, err = volumes.Mounts(p.stop, filepath.Join(p.rt.dir, "pods", string(spec.UID)), references, want, full); err != nil {
		return nil, &waitingError{"CreateContainerConfigError", err}
	}
	path := environment.DefaultPath
	if full && image.Root == "" {
		path = rootfs.CommandsDir + ":" + path
	}
	env, err := environment.Resolve(p.stop, references, want, image.Env, path)
	if err != nil {
		return nil, &waitingError{"CreateContainerConfigError", err}
	}
	if ps.UID, ps.GID, err = userOf(spec, want, image); err != nil {
		return nil, &waitingError{"CreateContainerConfigError", err}
	}
	finishSpec(&ps, env, want, p, full)

	p.mu.Lock()
	if c.status.ContainerID != "" {
		c.status.RestartCount++
	}
	ps.Attempt = c.status.RestartCount
	c.status.ContainerID = "local://" + uuid.NewString()
	c.status.ImageID = images.ID(want.Image, image)
	c.oldLog, c.log = c.log, containerlog.File(p.rt.dir, spec, want.Name, ps.Attempt)
	stale, file := c.oldLog, c.log
	p.mu.Unlock()
	removeOlder(stale, ps.Attempt)

	w, _, err := containerlog.Start(file)
	if err != nil {
		return nil, err
	}
	ps.Log = w
	defer func() { _ = w.Close() }()
	proc, err := p.rt.runner.Start(p.stop, p.net, ps)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	c.proc = proc
	p.mu.Unlock()
	c.set(func(s *corev1.ContainerStatus) {
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(proc.Started)}}
	})
	p.rt.metrics.starts.Inc()
	if !c.init { // of an init container the status tells as much, and a write for each pod is saved
		p.event(corev1.EventTypeNormal, "Started", "container %s runs image %s", want.Name, want.Image)
	}
	return proc, nil
}

// finishSpec adds what depends on image, environment and isolation.
func finishSpec(ps *process.Spec, env *environment.Variables, want *corev1.Container, p *pod, full bool) {
	args, _ := rootfs.Program(ps.Image, full)
	if len(want.Command) > 0 {
		args = nil
		for _, a := range want.Command {
			args = append(args, environment.Expand(a, env.Values))
		}
	}
	if len(want.Command) == 0 && len(want.Args) == 0 {
		args = append(args, ps.Image.Args...)
	}
	for _, a := range want.Args {
		args = append(args, environment.Expand(a, env.Values))
	}
	ps.Args = args
	if full {
		if _, ok := env.Values["HOME"]; !ok {
			env.Set("HOME", cmp.Or(ps.Image.Home, map[bool]string{true: "/root", false: "/home/user"}[ps.UID == 0]))
		}
		if ps.Dir == "" {
			ps.Dir = "/"
		}
	} else {
		env.Set(addressEnv, p.net.Addr().String())
		env.Set(podIPEnv, p.net.Addr().String())
		env.Set(nodeEnv, p.rt.hash)
		if ps.Dir == "" {
			ps.Dir = filepath.Join(p.rt.dir, "pods", string(ps.PodUID), ps.Container)
		}
	}
	ps.Env = env.List()
}

// userOf is the user that the container runs as: the image's user unless the spec says otherwise.
func userOf(pod *corev1.Pod, c *corev1.Container, image images.Entry) (uid, gid int, err error) {
	if uid, gid, err = image.IDs(); err != nil {
		return 0, 0, err
	}
	if s := pod.Spec.SecurityContext; s != nil {
		uid, gid = orElse(s.RunAsUser, uid), orElse(s.RunAsGroup, gid)
	}
	if s := c.SecurityContext; s != nil {
		uid, gid = orElse(s.RunAsUser, uid), orElse(s.RunAsGroup, gid)
	}
	return uid, gid, nil
}

func orElse(v *int64, otherwise int) int {
	if v == nil {
		return otherwise
	}
	return int(*v)
}

// removeOlder keeps the log of one earlier run.
func removeOlder(previous string, attempt int32) {
	if attempt >= 2 {
		dir, base := filepath.Split(previous)
		stem := base[:max(0, len(base)-len(fmt.Sprintf("_%d.log", attempt-1)))]
		for _, suffix := range []string{"", ".old"} {
			_ = os.Remove(filepath.Join(dir, fmt.Sprintf("%s_%d.log%s", stem, attempt-2, suffix)))
		}
	}
}

// attend looks after a running process: hooks, probes, changed image, stop.
// The process is dead when it returns. again is false when the container will
// not be started any more.
func (c *container) attend(proc *process.Process) (pause time.Duration, again bool) {
	spec, want := c.desired()
	t := process.Target{Net: c.pod.net, Proc: proc, Spec: want}
	ctx, cancel := context.WithCancelCause(c.pod.stop)
	var helpers sync.WaitGroup
	unhealthy := make(chan error, 1)
	helpers.Go(func() { c.watchHealth(ctx, t, unhealthy) })

	// Probes and hooks end first: one inside the container could hold up its end.
	terminate := func(grace time.Duration) {
		cancel(errors.New("the container is stopped"))
		c.terminate(t, grace)
	}
	grace := graceOf(spec)
	changed := false
	for running := true; running; {
		select {
		case <-proc.Exited:
			running = false
		case <-c.pod.stop.Done():
			terminate(c.pod.graceLeft())
			running = false
		case err := <-unhealthy:
			c.pod.event(corev1.EventTypeWarning, "Unhealthy", "container %s is killed: %v", c.name(), err)
			terminate(grace)
			running = false
		case <-c.image:
			if _, now := c.desired(); now.Image != want.Image {
				changed = true
				c.pod.event(corev1.EventTypeNormal, "Killing", "container %s changes its image to %s", c.name(), now.Image)
				terminate(grace)
				running = false
			}
		}
	}
	cancel(errors.New("the container ended"))
	helpers.Wait()
	return c.ended(proc, changed)
}

// terminate runs the pre-stop hook and stops the process, both within grace.
func (c *container) terminate(t process.Target, grace time.Duration) {
	c.set(func(s *corev1.ContainerStatus) { s.Ready = false })
	begun := time.Now()
	if l := t.Spec.Lifecycle; l != nil && l.PreStop != nil && grace > 0 {
		ctx, cancel := context.WithTimeout(c.pod.kill, grace)
		if err := t.RunHook(ctx, l.PreStop); err != nil {
			c.pod.event(corev1.EventTypeWarning, "FailedPreStopHook", "container %s: %v", c.name(), err)
		}
		cancel()
	}
	t.Proc.Stop(c.pod.kill, grace-time.Since(begun))
}

// ended records the end of proc and decides what comes next.
func (c *container) ended(proc *process.Process, changed bool) (pause time.Duration, again bool) {
	terminated := &corev1.ContainerStateTerminated{
		ExitCode: int32(proc.Code), Reason: "Completed",
		StartedAt: metav1.NewTime(proc.Started), FinishedAt: metav1.NewTime(proc.Finished),
	}
	switch {
	case proc.OOMKilled:
		terminated.Reason = "OOMKilled"
	case proc.Code != 0:
		terminated.Reason = "Error"
	}
	if proc.Code > 128 {
		terminated.Signal = int32(proc.Code - 128)
	}
	again = c.pod.stop.Err() == nil && (changed || c.mayRestart(terminated.ExitCode))
	if again && !changed {
		pause = c.retry.after(proc.Finished.Sub(proc.Started))
	}
	c.pod.mu.Lock()
	c.proc = nil
	terminated.ContainerID = c.status.ContainerID
	c.pod.mu.Unlock()
	c.set(func(s *corev1.ContainerStatus) {
		s.Ready, s.Started = c.init && terminated.ExitCode == 0, new(bool)
		s.State = corev1.ContainerState{Terminated: terminated}
		if again {
			s.LastTerminationState = s.State
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
			if pause > 0 {
				s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: fmt.Sprintf("back-off %s restarting failed container", pause)}
			}
		}
	})
	return pause, again
}

// set changes the status under the pod's mutex and has it written.
func (c *container) set(change func(*corev1.ContainerStatus)) {
	c.pod.mu.Lock()
	change(&c.status)
	c.pod.mu.Unlock()
	c.pod.changed()
}
