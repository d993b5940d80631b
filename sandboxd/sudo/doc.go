// Package sudo is the command sudo of sandboxes, which runs a command as root or as another
// user of the sandbox. In pods with no_new_privs no program can gain rights by its set-user-ID
// bit, so the package has two sides: Main is the command, which sends a request, and Listen
// makes the Server in sandboxd, which runs as root and starts the command.
//
// sudo asks for no password and reads no sudoers: root and the sandbox's default user may
// run everything, other users nothing. It isolates nothing; the sandbox around it does.
//
// cmd/sandboxd calls Main if it is started by the name sudo. Package sandboxd has the Server,
// which starts commands with package process.
//
// server.go has the states of a request and what happens when a step fails.
package sudo
