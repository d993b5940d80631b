package poststarthooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Cluster runs hooks for real: commands by the API server's exec, requests from
// this process to the pod's address.
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
	executor, err := remotecommand.NewSPDYExecutor(c.Config, http.MethodPost, request.URL())
	if err != nil {
		return fmt.Errorf("preparing exec: %w", err)
	}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		return fmt.Errorf("exec in container %s: %w", container, err)
	}
	return nil
}

// Post sends the request to the address that is the pod's alone; a pod that shows
// another is not asked.
func (c *Cluster) Post(ctx context.Context, pod *corev1.Pod, hook *v1alpha1.HTTPPostHook) error {
	addr := v1alpha1.FencedAddress(pod)
	if addr == "" {
		return errors.New("the pod has no address of its own")
	}
	url := "http://" + net.JoinHostPort(addr, strconv.Itoa(int(hook.Port))) + hook.Path
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(hook.Body))
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	client := c.HTTP
	if client == nil {
		client = direct
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("POST %s:%d answered %d", hook.Path, hook.Port, answer.StatusCode)
	}
	return nil
}

// direct keeps no connection (the address will be another sandbox's), and goes
// where it was told: no proxy, no redirect.
var direct = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}
