package sandboxd

import (
	"context"
	"fmt"
	"os"

	"github.com/sandlane/sandlane/sandboxd/sudo"
)

// startSudo serves the command sudo, if the options say so and this process is root. stop ends that.
func (s *Server) startSudo() (stop func(context.Context), err error) {
	if s.options.SudoSocket == "" {
		return func(context.Context) {}, nil
	}
	if os.Geteuid() != 0 {
		_, _ = fmt.Fprintln(s.options.Log, "sandboxd: there is no sudo, since sandboxd does not run as root here")
		return func(context.Context) {}, nil
	}
	server, err := sudo.Listen(s.options.SudoSocket, sudo.Options{
		Users: s.caller, Processes: s.processes, Path: s.caller.imageEnv["PATH"], Log: s.options.Log,
	})
	if err != nil {
		return nil, err
	}
	return server.Close, nil
}
