package sandboxd

import (
	"context"

	"github.com/sandlane/sandlane/sandboxd/sudo"
)

// startSudo serves the command sudo, if the options say so. stop ends that.
func (s *Server) startSudo() (stop func(context.Context), err error) {
	if s.options.SudoSocket == "" {
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
