// Package initspec is what the local node tells its helper program podinit:
// the description of one process to start.
//
// It is types only and starts nothing. The node writes a Spec as JSON to the
// helper's file descriptor SpecFD; the helper answers on StatusFD: closed without a
// byte means that the program was executed, anything else is the error in words.
//
// Packages local/node, which writes it, and local/node/podinit, which reads it, use
// it alone.
package initspec

// File descriptors that the node hands to podinit.
const (
	SpecFD   = 3
	StatusFD = 4
	// ResizeFD carries "rows columns\n" lines to a Spec with TTY.
	ResizeFD = 5
	// FirstFD is the first descriptor that a Spec may refer to by number.
	FirstFD = 6
)

// Spec describes one process.
type Spec struct {
	// Args is the command; Args[0] is looked up in Env's PATH when it has no slash.
	Args []string
	Env  []string
	// Dir is the working directory; it is created if absent.
	Dir      string
	UID, GID int
	// KeepCaps are the capabilities that may be had (numbers); nil keeps all.
	KeepCaps []int
	// NoNewPrivs sets no_new_privs.
	NoNewPrivs bool
	// NoUserNamespaces refuses to make user namespaces; it needs NoNewPrivs.
	NoUserNamespaces bool
	// Cgroups are cgroup.procs files that the process enters first.
	Cgroups []string

	// Root, if set, makes a new root. The caller must have cloned podinit into
	// mount, PID, IPC and UTS namespaces of its own.
	Root *Root
	// NetNS is the descriptor of the network namespace to enter; 0 stays.
	NetNS int
	// Join are namespaces to enter; the command then runs as a child (a PID
	// namespace is only entered by children) and its exit code is podinit's.
	Join []Namespace
	// Child runs the command as a child even without Join.
	Child bool
	// TTY gives the child a terminal; standard input and output are copied.
	TTY bool
}

// Namespace is an open namespace file.
type Namespace struct {
	FD   int
	Type int // CLONE_NEW…
}

// Root is a root file system put together from the host's parts.
type Root struct {
	// Dir is an empty folder that the root is mounted on, in the process's own mount namespace:
	// that of all containers.
	Dir      string
	Hostname string
	// Lower has the files of an image, which are not trusted: the root is then an overlay of
	// it, and what the container writes goes to Upper. Work is a folder of the kernel's on
	// Upper's file system, MountPoints has places of mounts that the image may lack. Empty: the
	// root is empty but for what follows.
	Lower, Upper, Work, MountPoints string
	// Dirs are made, in order, before anything is mounted.
	Dirs []string
	// Binds are mounted in order.
	Binds []Bind
	// Links are symbolic links, link → target.
	Links map[string]string
	// Masks are folders covered by an empty one, if they exist.
	Masks []string
	// ReadOnly: nothing can be written to the root itself, only to what Binds mount.
	ReadOnly bool
}

// Bind is one bind mount. Target is a path in the new root; it is created as
// what Source is. Mounts are nosuid, and nodev unless Device is set.
type Bind struct {
	Source, Target string
	// Content, without a Source, is what a file shows that is in memory alone.
	Content string
	// SubPath is a path below Source, which containers may have written to: none of its parts may
	// be a link when it is mounted. Empty: Source itself.
	SubPath  string
	ReadOnly bool
	Device   bool
}
