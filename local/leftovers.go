package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sandlane/sandlane/local/node"
	"github.com/sandlane/sandlane/local/node/network"
	"github.com/sandlane/sandlane/local/supervise"
)

// recorded is a process of an `up`, as kept for the cleaning up after a kill.
type recorded struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Start is the process's start time in clock ticks: with the PID it names
	// one process for ever.
	Start string `json:"start"`
}

// recordProcesses keeps the list of what runs.
func (s state) recordProcesses(all []supervise.Status) error {
	var list []recorded
	for _, p := range all {
		if start := startTime(p.PID); p.PID != 0 && start != "" {
			list = append(list, recorded{Name: p.Name, PID: p.PID, Start: start})
		}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("record the processes: %w", err)
	}
	return writeFile(s.processFile(), b, 0o600)
}

// startTime reads field 22 of /proc/PID/stat; empty for no process or one that
// is dead already.
func startTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, ok := strings.Cut(string(b), ") ") // the name before may hold anything
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}

// clean removes what an `up` left: the processes that still run, sockets, and
// what the node keeps outside the state folder. It returns the names of the
// processes that it ended. The caller holds the lock.
func (s state) clean() ([]string, error) {
	// Another user's list could name any process.
	if err := network.OwnFolder(s.run); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("end what the last run left: %w", err)
	}
	var ended []string
	var list []recorded
	if b, err := os.ReadFile(s.processFile()); err == nil {
		_ = json.Unmarshal(b, &list) // a torn file names no process
	}
	for _, p := range list {
		if startTime(p.PID) != p.Start {
			continue
		}
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
			continue
		}
		ended = append(ended, p.Name)
	}
	errs := []error{waitGone(list, 5*time.Second)}
	if err := retryDump(func() error { return node.Cleanup(s.dir) }); err != nil {
		errs = append(errs, fmt.Errorf("clean up after the node: %w", err))
	}
	for _, path := range []string{s.run, s.upFile(), s.path("cluster"), s.fastFolder()} {
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, fmt.Errorf("remove what the last run left: %w", err))
		}
	}
	return ended, errors.Join(errs...)
}

// retryDump repeats what lists links or routes while the list changes under it,
// as when another `up` starts at the same time.
func retryDump(f func() error) error {
	var err error
	for range 50 {
		if err = f(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return err
}

// waitGone waits until none of the processes runs any more.
func waitGone(list []recorded, atMost time.Duration) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(atMost); ; <-tick.C {
		alive := ""
		for _, p := range list {
			if startTime(p.PID) == p.Start {
				alive = p.Name
			}
		}
		if alive == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s of an earlier run does not end", alive)
		}
	}
}
