package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// runInit is PID 1 of the node. It returns only if the node cannot be booted.
func runInit(state string) error {
	text, err := os.ReadFile(filepath.Join(state, bootFile))
	if err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	var b boot
	if err := json.Unmarshal(text, &b); err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	n := &Node{Name: b.Name, state: state, o: Options{Bin: b.Bin, Assets: b.Assets, PauseImage: b.PauseImage}}
	if err := errors.Join(os.Setenv("PATH", n.path()), os.Unsetenv(roleEnv)); err != nil {
		return err
	}
	if err := n.mounts(); err != nil {
		return fmt.Errorf("make the node's mounts: %w", err)
	}
	if err := n.network(); err != nil {
		return fmt.Errorf("make the node's network: %w", err)
	}
	if err := n.makeGroups(); err != nil {
		return fmt.Errorf("make the node's control groups: %w", err)
	}
	return n.runPrograms()
}

// kernelSettings are the settings in /proc/sys that a kubelet writes. They belong to the
// whole machine, so the node gets ordinary files in their place.
var kernelSettings = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

func (n *Node) mounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make all mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for name, value := range kernelSettings {
		file := n.file("proc", filepath.Base(name))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			return err
		}
		if err := unix.Mount(file, "/proc/sys/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide %s: %w", name, err)
		}
	}
	// containerd and the kubelet write files there.
	for _, dir := range []string{"/run", "/var/lib", "/var/log"} {
		if err := unix.Mount("node", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("hide %s: %w", dir, err)
		}
	}
	// /sys must be that of the new network, with the machine's control groups.
	const kept = "/run/cgroup"
	return errors.Join(
		os.Mkdir(kept, 0o755),
		unix.Mount(groupRoot, kept, "", unix.MS_BIND|unix.MS_REC, ""),
		unix.Mount("sysfs", "/sys", "sysfs", 0, ""),
		unix.Mount(kept, groupRoot, "", unix.MS_BIND|unix.MS_REC, ""),
		unix.Unmount(kept, unix.MNT_DETACH),
	)
}

func (n *Node) network() error {
	for _, line := range []string{
		"ip link set lo up",
		"ip link add node0 type bridge",
		"ip addr add " + Address + "/24 dev node0",
		"ip link set node0 up",
		"ip route add default dev node0", // addresses of services have no route otherwise
	} {
		args := strings.Fields(line)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)
}

// makeGroups makes the node's folder in each hierarchy of control groups.
func (n *Node) makeGroups() error {
	if _, err := os.Stat(filepath.Join(groupRoot, "cgroup.controllers")); err == nil {
		return os.Mkdir(filepath.Join(groupRoot, n.Name), 0o755)
	}
	entries, err := os.ReadDir(groupRoot)
	if err != nil {
		return err
	}
	for _, e := range entries {
		root := filepath.Join(groupRoot, e.Name())
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			continue
		}
		if err := os.Mkdir(filepath.Join(root, n.Name), 0o755); err != nil && !os.IsExist(err) { // two names of one hierarchy
			return err
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} { // while they are empty, the group can have no process
			value, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(root, n.Name, name), value, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
