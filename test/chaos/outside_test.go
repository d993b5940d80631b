package chaos

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// nodePID waits until up.json names a running node that is not the former one,
// and returns its process, checked to be this stack's.
func nodePID(ctx context.Context, on *stack.Stack, former int) (int, error) {
	return nextPID(ctx, on, "node", "node", former)
}

// nextPID waits until up.json names a running process that is not the former one,
// and returns it, checked to be this stack's and to run the command; empty is any.
func nextPID(ctx context.Context, on *stack.Stack, name, command string, former int) (int, error) {
	now := &stack.Stack{State: on.State}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := now.Reload()
		if pid := pidIn(now.Up, name); err == nil && pid > 1 && pid != former {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			args := strings.Split(string(line), "\x00")
			if err == nil && len(args) > 1 && (command == "" || args[1] == command) && strings.Contains(string(line), on.State) {
				return pid, nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("no %s in up.json other than %d: %w", name, former, ctx.Err())
		case <-tick.C:
		}
	}
}

// pidIn returns the process of a name, which may be the name of a gateway.
func pidIn(up stack.UpFile, name string) int {
	for _, g := range up.Gateways {
		if g.Name == name {
			return g.Pids["gateway"]
		}
	}
	return up.Pids[name]
}

// harm harms the pods of one test without a request to Sandlane.
type harm struct {
	on   *stack.Stack
	node atomic.Int64

	killed, forced, nodes, survived atomic.Int64
}

func (h *harm) done() int { return int(h.killed.Load() + h.forced.Load()) }

// kill kills the processes of a pod, or deletes its object with no grace.
func (h *harm) kill(ctx context.Context, namespace string, b *v1alpha1.Binding, processes bool) error {
	if processes {
		// There are no processes while the node itself is killed.
		h.killed.Add(int64(min(stack.KillPod(int(h.node.Load()), b.PodUID), 1)))
		return nil
	}
	uid := types.UID(b.PodUID)
	err := h.on.Client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: b.PodName}},
		client.GracePeriodSeconds(0), client.Preconditions{UID: &uid})
	if err == nil {
		h.forced.Add(1)
	}
	return client.IgnoreNotFound(err)
}

// killNode kills the node, and with it every process of every pod. It returns
// when `up` has started another.
func (h *harm) killNode(ctx context.Context) error {
	pid := int(h.node.Load())
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the node: %w", err)
	}
	h.nodes.Add(1)
	next, err := nodePID(ctx, h.on, pid)
	h.node.Store(int64(next))
	return err
}

// life harms the slot's pods one after the other: as soon as a sandbox answers
// its pod is harmed, and when it has ended the next one begins.
func (h *harm) life(ctx context.Context, s *slot, prefix string, answers int, more func() bool) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	n, harmed := 0, time.Time{}
	for more() {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var sb v1alpha1.Sandbox
		if err := h.on.Client.Get(ctx, client.ObjectKey{Name: s.current()}, &sb); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("read %s: %w", s.current(), err)
			}
			continue // its first request is under way
		}
		switch {
		case sb.Spec.End != nil:
			n, harmed = n+1, time.Time{}
			s.mu.Lock()
			if sb.Spec.Binding != nil {
				s.gone[sb.Spec.Binding.PodUID] = true
			}
			s.last, s.id, s.live = s.id, fmt.Sprintf("%s-%d", prefix, n), 0
			s.mu.Unlock()
		case harmed.IsZero() && sb.Spec.Binding != nil && s.answered() >= answers:
			if err := h.kill(ctx, sb.Spec.Namespace, sb.Spec.Binding, n%2 == 0); err != nil {
				return fmt.Errorf("harm the pod of %s: %w", s.current(), err)
			}
			harmed = time.Now()
		case !harmed.IsZero() && time.Since(harmed) > 5*time.Second:
			h.survived.Add(1) // the process was restarted in the second of its claim
			harmed = time.Time{}
		}
	}
	return nil
}

func (s *slot) answered() int { s.mu.Lock(); defer s.mu.Unlock(); return s.live }
