package sandboxd

import (
	"context"
	"io/fs"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/files"
	"github.com/sandlane/sandlane/sandboxd/process"
	"github.com/sandlane/sandlane/sandboxd/rootfiles"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// sudoTimeout bounds how long the image's own sudo may take to run nothing.
const sudoTimeout = 3 * time.Second

// rootFiles decides whether file calls act as root: as at E2B, where the sandbox's default user
// may become root by sudo without a password. Otherwise, and where sandboxd itself has no
// right to the files of others, they have the rights of their user.
type rootFiles struct {
	caller    *caller
	processes *process.Service
	client    *rootfiles.Client // nil: no call acts as root
	ownSudo   bool              // sandboxd's sudo lets every default user become root
	// allowed is the user that may become root by the image's own sudo; nil if none may.
	allowed *uint32
}

func newRootFiles(options Options, caller *caller, processes *process.Service) rootFiles {
	r := rootFiles{caller: caller, processes: processes, ownSudo: options.SudoSocket != ""}
	if options.FileServer != "" && os.Geteuid() == 0 && usesAnyFile() {
		r.client = rootfiles.New(rootfiles.Options{
			Program: options.FileServer, Path: caller.imageEnv["PATH"], UserFiles: options.UserFiles, Processes: processes,
		})
	}
	return r
}

// usesAnyFile reports whether this process may use, and give away, files that are not root's.
func usesAnyFile() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	const wants = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER
	return data[0].Effective&wants == wants
}

// allow finds out whether the default user may become root. Call it before any program of the
// sandbox runs, which could put another sudo in the place of the image's.
func (r *rootFiles) allow() {
	if r.client == nil || r.ownSudo {
		return
	}
	if u, err := r.caller.Named(""); err == nil && (u.UID == 0 || r.sudoWorks(u)) {
		r.allowed = &u.UID
	}
}

// sudoWorks reports whether a user runs a command by the image's sudo without a password.
func (r *rootFiles) sudoWorks(u users.User) bool {
	sudo, err := process.LookPath("sudo", "/", r.caller.imageEnv["PATH"])
	if err != nil {
		return false
	}
	info, err := os.Stat(sudo)
	if err != nil || info.Mode()&fs.ModeSetuid == 0 || info.Sys().(*syscall.Stat_t).Uid != 0 {
		return false
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	defer func() { _ = null.Close() }()
	running, err := r.processes.LaunchAs(u, []string{sudo, "-n", "true"}, null)
	if err != nil {
		return false
	}
	defer time.AfterFunc(sudoTimeout, func() { running.Signal(syscall.SIGKILL) }).Stop()
	return running.Wait().Success()
}

// act reports whether file calls act as root.
func (r *rootFiles) act() bool {
	if r.client == nil || r.ownSudo || r.allowed == nil {
		return r.client != nil && r.ownSudo
	}
	u, err := r.caller.Named("") // /init may have named another one
	return err == nil && u.UID == *r.allowed
}

// opener returns with whose rights the contents of files are used.
func (r *rootFiles) opener(ctx context.Context, u users.User) files.Opener {
	if r.act() {
		return r.client.Open(ctx, u)
	}
	return files.Local(u)
}

// entries serves requests to the filesystem service, by local if they do not act as root.
func (r *rootFiles) entries(local http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.act() {
			if u, err := r.caller.User(req.Header); err == nil { // else local answers with the error
				r.client.ServeFilesystem(w, req, u, r.caller.Workdir())
				return
			}
		}
		local.ServeHTTP(w, req)
	})
}

func (r *rootFiles) close() {
	if r.client != nil {
		r.client.Close()
	}
}
