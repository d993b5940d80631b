package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/sandlane/sandlane/local/node/cgroups"
	"github.com/sandlane/sandlane/local/node/containerlog"
	"github.com/sandlane/sandlane/local/node/network"
	"github.com/sandlane/sandlane/local/node/removal"
)

const (
	// nodeEnv marks the processes of a node without isolation, so that Cleanup
	// finds those that outlived it.
	nodeEnv = "SANDLANE_NODE"
	// addressEnv and podIPEnv are where a pod of such a node is to listen.
	addressEnv, podIPEnv = "SANDLANE_ADDRESS", "POD_IP"
)

// PlainEnv returns the names of the variables that a container of a node without
// isolation is to hand on to the programs that it starts: without them Cleanup does
// not find these, nor they the address that is theirs.
func PlainEnv() []string { return []string{nodeEnv, addressEnv, podIPEnv} }

// Cleanup removes what a node with this state folder left on the machine:
// processes, links, routes, cgroups, and the folders of its containers. It
// touches nothing that does not carry the folder's hash. The node must not be
// running. Nothing to remove is no error.
func Cleanup(stateDir string) error {
	err := clean(stateDir)
	if os.Geteuid() == 0 {
		err = errors.Join(err, network.Unguard(nodeDir(stateDir)))
	}
	return err
}

// clean is Cleanup but for the guard of the subnet.
func clean(stateDir string) error {
	hash := stateHash(stateDir)
	var errs []error
	killMarked(hash)
	cgroups.RemoveAll(hash)
	if os.Geteuid() == 0 {
		errs = append(errs, network.RemoveLinks(hash))
	}
	if err := removal.Tree(filepath.Join(nodeDir(stateDir), "pods")); err != nil {
		errs = append(errs, fmt.Errorf("remove the containers' folders: %w", err))
	}
	return errors.Join(errs...)
}

// RemoveLogs removes the logs of containers of earlier nodes, which no API server knows any
// more. The node must not be running.
func RemoveLogs(stateDir string) error {
	if err := os.RemoveAll(containerlog.Root(nodeDir(stateDir))); err != nil {
		return fmt.Errorf("remove the logs of containers: %w", err)
	}
	return nil
}

// killMarked kills every process that carries this node's mark.
func killMarked(hash string) {
	mark := []byte(nodeEnv + "=" + hash)
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, kv := range bytes.Split(raw, []byte{0}) {
			if bytes.Equal(kv, mark) {
				if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && pid != os.Getpid() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				break
			}
		}
	}
}
