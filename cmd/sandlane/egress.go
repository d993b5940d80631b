package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/credentials/certificate"
	"github.com/sandlane/sandlane/egress"
	"github.com/sandlane/sandlane/egress/proxy"
	"github.com/sandlane/sandlane/egress/upstream"
	"github.com/sandlane/sandlane/egress/watch"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/gateway"
	"github.com/sandlane/sandlane/kubeclient"
)

// egressLeave bounds how long an egress process that is told to stop tries to say so.
const egressLeave = 5 * time.Second

// egressOptions are the flags of `sandlane egress`.
type egressOptions struct {
	config          *rest.Config
	name, runDir    string
	address, answer netip.Addr
	systemNamespace string
	closed          egress.Closed
	open            map[string][]netip.Prefix
	metricsAddress  string
	log             *slog.Logger
}

func newEgress() *cobra.Command {
	var o egressOptions
	var kubeconfig, address, answer string
	var closed, open []string
	var logs logOptions
	cmd := &cobra.Command{
		Use:     "egress",
		Example: `  sandlane egress --name egress-0 --run-dir /run/sandlane-egress --address 10.0.0.7`,
		Short:   "Run an egress process: the name server of ByName pools, and their way to hosts",
		Long: `Run an egress process: the only name server of the pods of pools with egress ByName,
and where their connections to the names that a sandbox is allowed go. It serves
names on port 53, and HTTP and HTTPS on 80 and 443 of its address; the controller's
--egress-address names it. It reaches the controller by a unix socket in --run-dir.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	kubeconfigFlag(cmd, &kubeconfig)
	flags.StringVar(&o.name, "name", "", "name of this process's lease")
	flags.StringVar(&o.runDir, "run-dir", "", "folder of the unix socket that the controller connects to")
	flags.StringVar(&address, "address", "", "IPv4 address to serve at, on ports 53, 80 and 443")
	flags.StringVar(&answer, "answer-address", "", "IPv4 address that names are answered with which are reached through here; --address if empty")
	flags.StringVar(&o.systemNamespace, "system-namespace", gateway.DefaultSystemNamespace, "namespace of leases")
	flags.StringSliceVar(&closed, "closed-ranges", nil, closedRangesUsage)
	flags.StringSliceVar(&open, "open", nil, "hosts that sandboxes may reach although their addresses are closed, each with its block: git.example.com=10.0.0.0/24")
	flags.StringVar(&o.metricsAddress, "metrics-address", "", "where to serve /metrics and /readyz; empty or 0 is nowhere")
	logs.flags(flags)
	required(cmd, "name", "run-dir", "address")
	takeFolders(cmd, "run-dir")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		for _, a := range []struct {
			flag, text string
			to         *netip.Addr
		}{{"address", address, &o.address}, {"answer-address", cmp.Or(answer, address), &o.answer}} {
			if *a.to, err = netip.ParseAddr(a.text); err != nil || !a.to.Is4() || a.to.IsUnspecified() {
				return fmt.Errorf("--%s %q: must be one IPv4 address", a.flag, a.text)
			}
		}
		if o.closed, err = egress.ClosedRanges(closed); err != nil {
			return fmt.Errorf("--closed-ranges: %w", err)
		}
		o.closed = append(o.closed, netip.PrefixFrom(o.address, 32), netip.PrefixFrom(o.answer, 32))
		if o.open, err = openHosts(open); err != nil {
			return err
		}
		if o.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
			return fmt.Errorf("reach the API server: %w", err)
		}
		kubeclient.RetryUntilAPIServerReady(o.config)
		o.config.Wrap(failpoint.Watches("egress/watch"))
		o.metricsAddress = metricsAddress(o.metricsAddress, "")
		if o.log, err = logs.open(cmd.ErrOrStderr()); err != nil {
			return err
		}
		return runEgress(cmd.Context(), o)
	}
	return cmd
}

// openHosts reads hosts with their blocks.
func openHosts(list []string) (map[string][]netip.Prefix, error) {
	hosts := map[string][]netip.Prefix{}
	for _, text := range list {
		host, block, _ := strings.Cut(text, "=")
		p, err := netip.ParsePrefix(block)
		if err != nil || host == "" {
			return nil, fmt.Errorf("--open %q: must be a host and its block, such as git.example.com=10.0.0.0/24", text)
		}
		host = strings.ToLower(host)
		hosts[host] = append(hosts[host], p)
	}
	return hosts, nil
}

// runEgress serves until the context ends, then says that nothing is left and returns.
func runEgress(ctx context.Context, o egressOptions) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	cfg := kubeclient.Patient(o.config)
	cfg.UserAgent, cfg.QPS = "sandlane-egress", -1 // the API server has limits of its own
	api, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, Mapper: kubeclient.RESTMapper(scheme)})
	if err != nil {
		return fmt.Errorf("make an API client: %w", err)
	}
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make an API client: %w", err)
	}
	in, err := listenEgress(o.address)
	if err != nil {
		return err
	}
	authority, err := ownAuthority()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(buildInfo(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var member *controlplane.Membership
	server, err := proxy.New(proxy.Options{
		Listeners: in, Address: o.answer, Held: func() bool { return member.Held() },
		Upstream: &upstream.Dialer{Closed: o.closed, Own: o.open, Resolve: resolve}, Authority: authority,
		Reveal:  func(context.Context, string, string) (string, error) { return "", proxy.ErrSecret },
		Metrics: proxy.NewMetrics(registry), Log: o.log,
	})
	if err != nil {
		return err
	}
	pods := watch.New(watch.Options{Client: api, Table: server.Claims(), Log: o.log})
	socket := filepath.Join(o.runDir, gateway.ControlSocket)
	member, err = controlplane.NewMembership(controlplane.MembershipOptions{
		Kind: controlplane.Egress, Leases: clientset.CoordinationV1().Leases(o.systemNamespace), Name: o.name, Address: "unix://" + socket,
		LeaseDuration: egressLease, RenewEvery: egressRenew, OnJoin: pods.Join, OnLost: server.Claims().Drop, Log: o.log,
	})
	if err != nil {
		return err
	}
	l, err := controlplane.ListenUnix(socket)
	if err != nil {
		return err
	}
	control, err := controlplane.NewServer(controlplane.ServerOptions{Listener: l, Member: member, Fencer: server.Claims(), Log: o.log})
	if err != nil {
		return err
	}
	running, runCtx := errgroup.WithContext(ctx)
	running.Go(func() error { return server.Start(runCtx) })
	running.Go(func() error { return control.Start(runCtx) })
	running.Go(func() error { return member.Start(runCtx) })
	running.Go(func() error { return serveEgressMetrics(runCtx, o.metricsAddress, registry, member) })
	err = running.Wait()
	pods.Stop()
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), egressLeave)
	defer cancel()
	return errors.Join(err, member.Leave(leaving, true)) // it knows nothing that a controller could miss
}

// listenEgress listens on the ports that sandboxes connect to.
func listenEgress(address netip.Addr) (in proxy.Listeners, err error) {
	for port, l := range map[uint16]*net.Listener{80: &in.HTTP, 443: &in.HTTPS, 53: &in.NameStreams} {
		if *l, err = net.Listen("tcp4", netip.AddrPortFrom(address, port).String()); err != nil {
			return in, fmt.Errorf("listen for sandboxes: %w", err)
		}
	}
	if in.Names, err = net.ListenPacket("udp4", netip.AddrPortFrom(address, 53).String()); err != nil {
		return in, fmt.Errorf("listen for sandboxes: %w", err)
	}
	return in, nil
}

// ownAuthority makes an authority that nothing trusts: no sandbox has rules yet that end its
// connections here.
func ownAuthority() (*proxy.Authority, error) {
	from, until := certificate.Validity(time.Now(), 365*24*time.Hour)
	pair, err := certificate.New(&x509.Certificate{
		Subject: pkix.Name{CommonName: "sandlane egress"}, NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	if err != nil {
		return nil, err
	}
	return proxy.NewAuthority(pair)
}

// resolve finds a host's addresses as this machine does.
func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip4", host+".") // the dot: no search domain is tried
}

// serveEgressMetrics serves metrics, and whether sandboxes are served, until the context ends.
func serveEgressMetrics(ctx context.Context, address string, registry *prometheus.Registry, member *controlplane.Membership) error {
	if address == "" {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !member.Held() {
			http.Error(w, "the lease is not held", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
