package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

const (
	envdPort = "49983"
	// lifetime is the timeout of the sandbox, in seconds: longer than a check.
	lifetime = 300
)

// made is what the REST API answers to a creation.
type made struct {
	SandboxID       string `json:"sandboxID"`
	EnvdAccessToken string `json:"envdAccessToken"`
}

// sandbox makes a sandbox, runs a command and writes a file through each gateway,
// reads it through the next, and ends the sandbox.
func (c *checker) sandbox(ctx context.Context) (err error) {
	body, err := json.Marshal(map[string]any{"templateID": c.Template, "timeout": lifetime})
	if err != nil {
		return err
	}
	status, text, err := c.service.ask(ctx, http.MethodPost, "/sandboxes",
		http.Header{"X-Api-Key": {c.Key}, "Content-Type": {"application/json"}}, strings.NewReader(string(body)))
	if err != nil {
		return fmt.Errorf("make it: %w", err)
	}
	var s made
	if status != http.StatusCreated {
		return fmt.Errorf("make it of template %s: answered with %d: %s", c.Template, status, start(text))
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("make it: read the answer: %w", err)
	}
	if s.SandboxID == "" {
		return errors.New("make it: the answer has no sandboxID")
	}
	defer func() {
		if err != nil {
			c.clean(ctx, s.SandboxID)
		}
	}()
	request := route(s.SandboxID, envdPort)
	if s.EnvdAccessToken != "" {
		request.Set("X-Access-Token", s.EnvdAccessToken)
	}
	for i, d := range c.gateways {
		if err := command(ctx, d, request); err != nil {
			return fmt.Errorf("a command through %s: %w", d.address, err)
		}
		if err := file(ctx, d, c.gateways[(i+1)%len(c.gateways)], request, fmt.Sprintf("check-%d.txt", i)); err != nil {
			return fmt.Errorf("a file through %s: %w", d.address, err)
		}
	}
	if err := c.end(ctx, s.SandboxID, request); err != nil {
		return err
	}
	c.Progress(fmt.Sprintf("a sandbox of template %s was made, ran commands and kept files through each gateway, and ended for all", c.Template))
	return nil
}

// command runs a command as SDKs do. Its output is not a part of its text, so that an answer
// that only repeats the request does not pass.
func command(ctx context.Context, d *door, request http.Header) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := connect.NewRequest(&processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", "echo $((6 * 7))"}}})
	for name, values := range request {
		req.Header()[name] = values
	}
	stream, err := processpb.NewProcessClient(d.client, d.url("")).Start(ctx, req)
	if err != nil {
		return err
	}
	var out strings.Builder
	var end *processpb.ProcessEvent_EndEvent
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().GetEvent().(type) {
		case *processpb.ProcessEvent_Data:
			out.Write(e.Data.GetStdout())
		case *processpb.ProcessEvent_End:
			end = e.End
		}
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		return err
	}
	if end == nil || end.GetExitCode() != 0 || out.String() != "42\n" {
		return fmt.Errorf("it printed %q and ended with %q, want 42 and success", out.String(), end.GetStatus())
	}
	return nil
}

// file writes through one door and reads through the other.
func file(ctx context.Context, in, out *door, request http.Header, name string) error {
	text := newID()
	write := request.Clone()
	write.Set("Content-Type", "application/octet-stream")
	if err := in.want(ctx, http.StatusOK, http.MethodPost, "/files?path="+name, write, strings.NewReader(text)); err != nil {
		return err
	}
	status, read, err := out.ask(ctx, http.MethodGet, "/files?path="+name, request, nil)
	if err != nil {
		return err
	}
	if status != http.StatusOK || string(read) != text {
		return fmt.Errorf("through %s it is read with %d and %q, want what was written", out.address, status, start(read))
	}
	return nil
}
