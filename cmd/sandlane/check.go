package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/cmd/sandlane/check"
	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/gateway"
)

// The Service of gateways and its port, as the Helm chart names them.
const (
	gatewayService     = "sandlane"
	gatewayServicePort = "http"
)

func newCheck() *cobra.Command {
	var o check.Options
	var kubeconfig, namespace, keyFile, certFile string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:     "check",
		Example: `  sandlane check --api-key-file key --template base --first-request-pool default/echo`,
		Short:   "Ask an installation what its users will ask of it; `helm test` runs it",
		Long: `Ask each ready gateway, and the Service before them, whether it answers and refuses
requests without an API key. With a key and a template: make a sandbox, run a command
and write a file through each gateway, end it. With a key and a pool: make a sandbox by
a first request, reach it through each gateway, end it. This runs in the cluster.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	cmdflags.Kubeconfig(cmd, &kubeconfig)
	f.StringVar(&namespace, "system-namespace", gateway.DefaultSystemNamespace, "namespace of gateways and of their Service "+gatewayService)
	f.StringVar(&keyFile, "api-key-file", "", "`FILE` with an API key; without one nothing is checked that needs one")
	f.StringVar(&certFile, "tls-cert", "", "`FILE` with the certificate that gateways must show clients; without one they speak plain HTTP")
	f.StringVar(&o.Template, "template", "", "template (a pool whose pods run sandboxd) to make a sandbox of")
	f.StringVar(&o.First.Pool, "first-request-pool", "", "`[namespace/]name` of the pool for a first request")
	f.IntVar(&o.First.Port, "first-request-port", 8000, "port of a server in that pool's pods")
	f.StringVar(&o.First.Path, "first-request-path", "/", "path that this server answers")
	f.StringVar(&o.First.WebSocketPath, "web-socket-path", "", "path at which this server sends back each message of a WebSocket")
	f.DurationVar(&timeout, "timeout", 2*time.Minute, "how long all may take")
	cmdflags.Files(cmd, "api-key-file", "tls-cert")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.Key, err = keyFrom(keyFile); err != nil {
			return err
		}
		if o.Key == "" && (o.Template != "" || o.First.Pool != "") {
			return errors.New("--template and --first-request-pool need --api-key-file")
		}
		if certFile != "" {
			text, err := os.ReadFile(certFile)
			if err != nil {
				return fmt.Errorf("--tls-cert: %w", err)
			}
			if o.TLS, err = check.Pinned(text); err != nil {
				return fmt.Errorf("--tls-cert %s: %w", certFile, err)
			}
		}
		api, err := inCluster(kubeconfig)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		if o.Service, o.Gateways, err = check.Addresses(ctx, api, namespace, gatewayService, gatewayServicePort); err != nil {
			return err
		}
		o.Progress = func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) }
		return check.Run(ctx, o)
	}
	return cmd
}

// keyFrom reads an API key; no file is no key.
func keyFrom(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--api-key-file: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", fmt.Errorf("--api-key-file %s is empty", file)
	}
	return key, nil
}
