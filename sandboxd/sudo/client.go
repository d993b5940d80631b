package sudo

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

// Name is the name under which the program of sandboxd is this command.
const Name = "sudo"

// failure is the exit code of a sudo that could not run the command.
const failure = 1

// forwarded are the signals that a client forwards to its command. A terminal sends its
// signals only to the client, since the command is in another session.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// Main is the command: it takes the arguments without the name, and returns the exit
// code, which is the command's, or 128 and the number of the signal that ended it.
func Main(args []string) int {
	return run(Socket, args, [streams]*os.File{os.Stdin, os.Stdout, os.Stderr})
}

func run(socket string, args []string, files [streams]*os.File) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, _ = fmt.Fprint(files[1], usage)
		return 0
	case errors.Is(err, errNothing):
		return 0
	case err != nil:
		_, _ = fmt.Fprintf(files[2], "sudo: %v; sudo --help says what it takes\n", err)
		return failure
	}
	code, err := ask(socket, o, files)
	if err != nil {
		_, _ = fmt.Fprintln(files[2], "sudo:", err)
		return failure
	}
	return code
}

// ask makes the server run a command and returns its exit code.
func ask(socket string, o options, files [streams]*os.File) (int, error) {
	dir, err := os.Getwd()
	if err != nil {
		return 0, fmt.Errorf("finding the working directory: %w", err)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return 0, fmt.Errorf("sandboxd runs no commands for sudo in this sandbox: %w", err)
	}
	defer func() { _ = conn.Close() }()
	// Before the command can run: a signal from then on is meant for the command.
	signals := make(chan os.Signal, 16)
	for _, sig := range forwarded {
		if !signal.Ignored(sig) { // as by nohup
			signal.Notify(signals, sig)
		}
	}
	defer signal.Stop(signals)
	sent := send(conn, request{options: o, Env: os.Environ(), Dir: dir}, files)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case sig := <-signals:
				_, _ = conn.Write([]byte{byte(sig.(syscall.Signal))})
			}
		}
	}()
	var a answer
	// A server that refuses the client answers without reading the request.
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return 0, fmt.Errorf("sandboxd did not answer: %w", errors.Join(sent, err))
	}
	if a.Error != "" {
		return 0, errors.New(a.Error)
	}
	return a.Code, nil
}
