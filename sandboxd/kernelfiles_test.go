package sandboxd

import (
	"os"
	"strings"
	"testing"
)

// Files of /proc and /sys are this process's view of the machine, its environment
// among them. None is handed out or written, by whichever handler and through links
// either, and what was asked for with gzip neither.
func TestKernelFilesAreRefused(t *testing.T) {
	t.Setenv("HIDDEN", "hunter2")
	t.Run("in sandboxd", func(t *testing.T) { kernelFilesAreRefused(t, newAgent(t, Options{})) })
	t.Run("as root", func(t *testing.T) { kernelFilesAreRefused(t, newRootWorker(t).agent) })
}

func kernelFilesAreRefused(t *testing.T, a *agent) {
	dir := t.TempDir()
	for name, target := range map[string]string{"link": "/proc/self/environ", "folder": "/proc/self", "sys": "/sys/kernel"} {
		if err := os.Symlink(target, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/proc/self/environ", "/proc/self/status", "/proc/thread-self/environ", "/proc/version", dir + "/link", dir + "/folder/environ", dir + "/sys/mm/transparent_hugepage/enabled",
		"/sys/kernel/mm/transparent_hugepage/enabled",
	} {
		if _, err := os.Stat(path); err != nil && strings.Contains(path, "sys") {
			continue // this kernel has no such file
		}
		for _, encoding := range []string{"gzip", "identity"} {
			res, body := a.do("GET", filesURL(path), "", "Accept-Encoding", encoding)
			if res.StatusCode != 403 || !strings.Contains(body, "kernel") {
				t.Errorf("%s, %s: %d %q", path, encoding, res.StatusCode, body)
			}
		}
		a.want(403, "kernel", "POST", "/files/compose", `{"source_paths":["`+path+`"],"destination":"`+dir+`/all"}`)
		if _, err := os.Stat(dir + "/all"); err == nil {
			t.Fatalf("%s was copied", path)
		}
	}
	for _, path := range []string{"/proc/self/comm", dir + "/folder/comm"} {
		if res, body := a.do("POST", filesURL(path), "taken", "Content-Type", octets); res.StatusCode/100 != 4 {
			t.Errorf("a write to %s: %d %s", path, res.StatusCode, body)
		}
	}
	if now, _ := os.ReadFile("/proc/self/comm"); string(now) != string(comm) {
		t.Errorf("this process is called %q now", now)
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("left: %v", left)
	}
}
