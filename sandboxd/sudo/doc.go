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
// server.go has the states of a request and what happens when a step fails.
package sudo
