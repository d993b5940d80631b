// Package rootfiles does clients' file calls as root, and gives what they make to the call's
// user, as E2B's envd does. It does so in a process of its own, which has what `sudo` has in
// the sandbox and no more: Client starts that process and passes it calls; Main is the
// process.
//
// It decides neither which calls are allowed (package access) nor which act as root (package
// sandboxd), and does nothing to files itself: the process runs packages files and filesystem
// with users.User.AsRoot. cmd/sandboxd calls Main, package sandboxd the Client.
//
// # Rights
//
//	sandboxd                 serves HTTP, knows the token, and streams contents. It touches a
//	                         file only by descriptors that the child has opened
//	the child                user 0 with the groups and capabilities of each command that
//	                         sandboxd starts as root, as for `sudo`. Its environment is PATH;
//	                         it has no token, no socket but those to sandboxd, and a /proc/self
//	                         of its own. Programs that are not root cannot reach it
//	the call's user          owns the files and folders that a call makes or writes; its home
//	                         and the working directory are where relative paths begin
//
// # States
//
//	none ─first call─▶ running ─its end─▶ none
//	                   running ─Close─▶ closed
//
// The first call starts the child. Each call has a connection of its own, one end of which
// sandboxd passes to the child over the socket that both were born with. When a step fails:
//
//	the child cannot be started    the call is 503 (unavailable)
//	the child dies                 the calls that it has are cut or 503; its watchers are gone
//	                               (not_found); an upload whose file was open goes on. The next
//	                               call starts a new one
//	a client leaves                its connection ends; the child ends the watch or move, and
//	                               removes the file that an unfinished upload has made
//	sandboxd freezes the sandbox   the child stops with all other processes, and does the last
//	                               step of a call when it goes on; so files that are kept of a
//	                               frozen sandbox may have a part of a call that was cut
//	sandboxd dies                  the socket ends, and so does the child
package rootfiles
