package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/envoy"
)

func newEnvoyConfig() *cobra.Command {
	var o envoy.Options
	var listen, output, file string
	cmd := &cobra.Command{
		Use: "envoy-config",
		Example: `  sandlane envoy-config --run-dir /run/sandlane --file /run/sandlane/envoy.yaml
  sandlane envoy-config --tls-cert /etc/sandlane/tls/tls.crt --tls-key /etc/sandlane/tls/tls.key -o json`,
		Short: "Print the Envoy configuration of a gateway",
		Long: `Print the Envoy configuration of a gateway, or write it to a file: as an init
container in Envoy's pod, say. With --tls-cert a file that Envoy needs besides is
written into --run-dir. The defaults of --retransmit-max, --listen and --health-listen are those of the
kernel which this runs on, so run it where Envoy will run, or set them.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.RunDir, "run-dir", "/run/sandlane", "folder of the gateway's and Envoy's sockets")
	flags.StringVar(&listen, "listen", net.JoinHostPort(envoy.AnyAddress(), strconv.Itoa(envoy.DefaultPort)), "address and port that clients connect to")
	flags.StringVar(&o.CertFile, "tls-cert", "", "certificate chain (PEM), an absolute path; turns TLS on. Envoy reads what is moved into its folder")
	flags.StringVar(&o.KeyFile, "tls-key", "", "private key (PEM), in the same folder")
	flags.StringVar(&o.HealthAddress, "health-listen", net.JoinHostPort(envoy.AnyAddress(), strconv.Itoa(envoy.DefaultHealthPort)),
		"address and port of a listener for /health alone, which clients cannot fill; empty is none")
	flags.DurationVar(&o.HeadersTimeout, "headers-timeout", envoy.DefaultHeadersTimeout,
		"how long a client may take until its first byte, for the TLS handshake, and for a request's headers, each")
	flags.DurationVar(&o.ConnectionIdleTimeout, "connection-idle-timeout", envoy.DefaultConnectionIdleTimeout,
		"how long a client's connection without an open request is kept; longer than a balancer before it keeps unused connections")
	flags.IntVar(&o.ClientRate, "client-rate", 0, "requests a second of one client address (IPv6: one /64) beyond which it gets 429; 0 is no limit, for clients behind one balancer share its address")
	flags.IntVar(&o.TrustedHops, "trusted-hops", 0, "proxies in front, through which all connections come: their X-Forwarded-Proto is kept, and --client-rate counts the addresses that they saw")
	flags.IntVar(&o.MaxStreams, "max-streams", envoy.DefaultMaxStreams, "client connections, and separately open requests, at once")
	flags.Int64Var(&o.MaxHeapBytes, "max-heap", 0, "bytes of memory from which Envoy refuses requests; 0 is what --max-streams requests need while their other ends read nothing")
	flags.DurationVar(&o.RetransmitMax, "retransmit-max", envoy.KernelRetransmitMax(),
		"longest pause between two tries to send what a pod has not acknowledged; 0 where Envoy's kernel is older than Linux 6.15")
	flags.StringVar(&o.FastPath.Module, "fast-path-module", "", "file of the module by which Envoy answers requests with known routes by itself (experimental); needs --fast-path-folder")
	flags.StringVar(&o.FastPath.Folder, "fast-path-folder", "", "the gateway's --fast-path-folder")
	flags.StringVarP(&output, "output", "o", "yaml", "yaml or json")
	flags.StringVar(&file, "file", "", "file to write instead, at once and readable for all; its folder must be there")
	cmdflags.Files(cmd, "tls-cert", "tls-key", "fast-path-module", "file")
	cmdflags.Folders(cmd, "run-dir", "fast-path-folder")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		host, port, err := net.SplitHostPort(listen)
		if err != nil {
			return fmt.Errorf("--listen %s: must be an IP address and a port: %w", listen, err)
		}
		if o.Port, err = strconv.Atoi(port); err != nil || o.Port == 0 {
			return fmt.Errorf("--listen %s: the port must be a number from 1 to 65535", listen)
		}
		o.ListenAddress = host
		render, ok := map[string]func(*bootstrapv3.Bootstrap) ([]byte, error){"yaml": envoy.YAML, "json": envoy.JSON}[output]
		if !ok {
			return fmt.Errorf("--output %q: must be yaml or json", output)
		}
		if err := envoy.FastPathProven(runtime.GOARCH); err != nil && o.FastPath.Module != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "%v: the gateway answers every request\n", err)
			o.FastPath = envoy.FastPath{}
		}
		config, err := envoy.Bootstrap(o)
		if err != nil {
			return err
		}
		text, err := render(config)
		if err != nil {
			return err
		}
		secret, content, err := envoy.Certificate(o)
		if err == nil && secret != "" {
			err = replaceFile(secret, content)
		}
		if err != nil {
			return err
		}
		if file != "" {
			return replaceFile(file, text)
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return cmd
}

// replaceFile writes a file that anyone may read: a reader meanwhile sees the
// old or the new content.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Close()) // whatever the umask is
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
