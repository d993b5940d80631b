package sandboxdclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/sandboxd/processpb"
)

// Command is a program to run in a sandbox.
type Command struct {
	// Program and Args are run without a shell, in the folder Dir, or in that of the image if
	// it is empty.
	Program string
	Args    []string
	Dir     string
	// Env is added to the variables of the image.
	Env map[string]string
	// User is a name; empty is sandboxd's default user.
	User string
}

// maxMessage bounds one message of a command's output, in bytes: who is root in a sandbox may
// answer in sandboxd's place. Those of sandboxd have 32 KiB.
const maxMessage = 1 << 20

// errCutOff: the output of a command ended before the command did.
var errCutOff = errors.New("the sandbox does not answer any more")

// Run runs a command in the pod's sandbox and returns its exit code. output is called with what
// it writes, by one goroutine; what it is given is not to be kept.
//
// Run may take longer than the two seconds of other calls: sandboxd of another sandbox refuses
// the token, and all bytes on the connection come from the process that accepted it. If ctx
// ends, the command may go on until the sandbox ends.
func (a *Agent) Run(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, c Command, output func([]byte)) (int, error) {
	to, err := a.reach(pod)
	if err != nil {
		return 0, fmt.Errorf("run a command in pod %s: %w", pod.Name, err)
	}
	defer to.close()
	if !a.holdsLease() {
		return 0, errNoLease
	}
	config := &processpb.ProcessConfig{Cmd: c.Program, Args: c.Args, Envs: c.Env}
	if c.Dir != "" {
		config.Cwd = &c.Dir
	}
	request := connect.NewRequest(&processpb.StartRequest{Process: config, Stdin: new(false)})
	a.asClient(request.Header(), s, c.User)
	stream, err := processpb.NewProcessClient(to.client, to.origin, connect.WithReadMaxBytes(maxMessage)).Start(ctx, request)
	if err != nil {
		return 0, fmt.Errorf("run a command in pod %s: %w", pod.Name, err)
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		switch event := stream.Msg().GetEvent(); {
		case event.GetData() != nil:
			output(event.GetData().GetStdout())
			output(event.GetData().GetStderr())
		case event.GetEnd() != nil:
			end := event.GetEnd()
			if !end.GetExited() {
				return int(end.GetExitCode()), fmt.Errorf("the command did not exit: %s", end.GetStatus())
			}
			return int(end.GetExitCode()), nil
		}
	}
	if err := stream.Err(); err != nil {
		var answer *connect.Error
		if errors.As(err, &answer) && answer.Code() != connect.CodeUnavailable {
			return 0, fmt.Errorf("sandboxd refuses the command: %s", answer.Message())
		}
		return 0, fmt.Errorf("run a command in pod %s: %w", pod.Name, err)
	}
	return 0, errCutOff
}

// Put writes a file in the pod's sandbox, as a user, and makes the folders around it.
func (a *Agent) Put(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, path, user string, content io.Reader) error {
	to, err := a.reach(pod)
	if err != nil {
		return fmt.Errorf("write a file in pod %s: %w", pod.Name, err)
	}
	defer to.close()
	if !a.holdsLease() {
		return errNoLease
	}
	query := url.Values{"path": {path}, "username": {user}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.origin+"/files?"+query.Encode(), content)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/octet-stream")
	a.asClient(request.Header, s, user)
	answer, err := to.client.Do(request)
	if err != nil {
		return fmt.Errorf("write a file in pod %s: %w: %w", pod.Name, ErrNoAnswer, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAgentAnswer))
		return fmt.Errorf("write a file in pod %s: status %d: %s", pod.Name, answer.StatusCode, quoted(text))
	}
	return nil
}

// asClient adds what sandboxd asks of a client of the sandbox.
func (a *Agent) asClient(header http.Header, s *v1alpha1.Sandbox, user string) {
	if token := a.token(s.Name, s.UID, s.Spec.Network.Unsecured); token != "" {
		header.Set(envdTokenHeader, token)
	}
	if user == "" {
		return
	}
	request := http.Request{Header: header}
	request.SetBasicAuth(user, "")
}
