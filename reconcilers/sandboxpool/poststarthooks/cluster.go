package poststarthooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Cluster runs hooks for real: commands by the API server's exec, requests from
// this process to the pod's address. Its errors are for the pod's annotations and
// events, so they show neither a command nor a URL.
type Cluster struct {
	Config    *rest.Config
	Clientset kubernetes.Interface
	// HTTP sends the requests; nil is a client without proxy or redirects.
	HTTP *http.Client
}

// Exec runs the command and waits for its end. What it prints goes nowhere: it
// may be secret.
func (c *Cluster) Exec(ctx context.Context, pod *corev1.Pod, container string, command []string) error {
	request := c.Clientset.CoreV1().RESTClient().Post().
		Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return fmt.Errorf("preparing exec: %w", err)
	}
	answer := &answered{RoundTripper: transport}
	executor, err := remotecommand.NewSPDYExecutorForTransports(answer, upgrader, http.MethodPost, request.URL())
	if err != nil {
		return fmt.Errorf("preparing exec: %w", err)
	}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		return fmt.Errorf("exec in container %s: %w", container, execError(ctx, err, answer.status))
	}
	return nil
}

// answered remembers the status of an answer, of which the errors of exec keep only
// words of the server's.
type answered struct {
	http.RoundTripper
	status int // 0: there was none
}

func (a *answered) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := a.RoundTripper.RoundTrip(r)
	if err == nil {
		a.status = answer.StatusCode
	}
	return answer, err
}

// execError is what may be said of an exec that failed with err after the API server
// answered with a status. Errors of connections quote the URL, which has the command
// in it, and those of nodes quote parts of it.
func execError(ctx context.Context, err error, status int) error {
	var exit exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit // its words are client-go's own
	case ctx.Err() != nil:
		return ctx.Err()
	case status == 0:
		return errors.New("the API server did not answer")
	case status != http.StatusSwitchingProtocols:
		return fmt.Errorf("the API server answered %d %s", status, http.StatusText(status))
	}
	return errors.New("the node did not run the command to its end: does the container have the program?")
}

// Post sends the request to the address that is the pod's alone; a pod that shows
// another is not asked.
func (c *Cluster) Post(ctx context.Context, pod *corev1.Pod, hook *v1alpha1.HTTPPostHook) error {
	addr := v1alpha1.RoutableAddress(pod)
	if addr == "" {
		return errors.New("the pod has no address of its own")
	}
	target := "http://" + net.JoinHostPort(addr, strconv.Itoa(int(hook.Port))) + hook.Path
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(hook.Body))
	if err != nil {
		return fmt.Errorf("making the request: %w", withoutURL(err))
	}
	request.Header.Set("Content-Type", "application/json")
	client := c.HTTP
	if client == nil {
		client = direct
	}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("POST to port %d: %w", hook.Port, withoutURL(err))
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("POST to port %d answered %d", hook.Port, answer.StatusCode)
	}
	return nil
}

// withoutURL is err without the URL that a client's errors begin with: its query may
// be secret.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// direct keeps no connection (the address will be another sandbox's), and goes
// where it was told: no proxy, no redirect.
var direct = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}
