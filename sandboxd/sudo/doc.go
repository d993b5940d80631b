// Package sudo runs commands as another user of the sandbox, root unless another is
// named, for programs that call sudo. In pods with no_new_privs no program can gain
// rights by a bit of its file, so both sides are here: the command sudo (Main), which
// asks, and the Server in sandboxd, which is root, and starts the command.
//
// It asks for no password and reads no sudoers: root and the sandbox's default user may
// do everything, others nothing. It isolates nothing; the sandbox around it does.
//
// cmd/sandboxd calls Main where it is started by the name sudo; package sandboxd has
// the Server, and the commands are started by package process.
//
// # One request
//
// The client connects to a Unix socket and sends its request and its descriptors 0 to
// 2, which the command gets: no output passes through sandboxd. Then each byte from
// the client is the number of a signal for the command's process group; the answer, the
// one thing from the server, is the exit code or an error.
//
//	reading   the server has accepted, and looked at SO_PEERCRED before it read a byte
//	running   the command is a child of sandboxd, in a session of its own
//	over      the answer is sent, and the connection is closed
//
// Each connection has one goroutine that moves it on and, while its command runs, one
// that reads signals. What happens when a step fails:
//
//	another user asks                an error, and nothing is read
//	no whole request within 10 s     an error; the descriptors are closed
//	the command cannot be started    an error
//	the connection ends              the group is killed, unless the command has exited:
//	                                 a client that is killed takes its command with it
//	sandboxd is shut down            the groups get SIGTERM and, after the grace, SIGKILL
//	sandboxd dies                    the client says so and exits with 1
package sudo
