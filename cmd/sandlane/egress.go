package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
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
	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/cmd/sandlane/daemon"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/egress"
	"github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/egress/proxy"
	"github.com/sandlane/sandlane/egress/record"
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
	resolver        string
	upstreamProxy   netip.AddrPort
	roots           *x509.CertPool
	recordShare     float64
	records         io.Writer
	metricsAddress  string
	controlAddress  string // TCP; empty is the socket in runDir
	podUID          string
	controlTLS      controlplane.TLSFiles
	log             *slog.Logger
}

func newEgress() *cobra.Command {
	var o egressOptions
	var kubeconfig, address, answer, roots, by string
	var closed, open []string
	var logs daemon.LogOptions
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
	cmdflags.Kubeconfig(cmd, &kubeconfig)
	flags.StringVar(&o.name, "name", "", "name of this process's lease")
	flags.StringVar(&o.runDir, "run-dir", "", "folder of the unix socket that the controller connects to")
	flags.StringVar(&address, "address", "", "IPv4 address to serve at, on ports 53, 80 and 443")
	flags.StringVar(&answer, "answer-address", "", "IPv4 address that names are answered with which are reached through here; --address if empty")
	flags.StringVar(&o.systemNamespace, "system-namespace", gateway.DefaultSystemNamespace, "namespace of leases")
	flags.StringSliceVar(&closed, "closed-ranges", nil, closedRangesUsage)
	flags.StringSliceVar(&open, "open", nil, "hosts that sandboxes may reach although their addresses are closed, each with its block: git.example.com=10.0.0.0/24")
	flags.StringVar(&o.resolver, "resolver", "", "name server that hosts' addresses are asked of, as address and port; this machine's if empty")
	flags.StringVar(&by, "upstream-proxy", "", "IPv4 address and port of an HTTP proxy that connects to hosts but those of --open, by CONNECT with the host's address; none if empty")
	flags.StringVar(&roots, "upstream-ca", "", "file with the authorities that hosts with rules are verified against; this machine's if empty")
	flags.Float64Var(&o.recordShare, "record-share", 1, "share of connections whose records are written to standard output, from 0 to 1; \"sandlane egress log\" reads them")
	flags.StringVar(&o.metricsAddress, "metrics-address", "", "where to serve /metrics and /readyz; empty or 0 is nowhere")
	flags.StringVar(&o.controlAddress, "control-address", "", "address and port that the controller connects to, with TLS; empty is the unix socket in --run-dir")
	flags.StringVar(&o.podUID, "pod-uid", "", "UID of this process's pod, by whose end its lease ends")
	cmdflags.ControlTLS(cmd, &o.controlTLS, controlplane.ControllerIdentity)
	logs.Flags(flags)
	cmdflags.Required(cmd, "name", "run-dir", "address")
	cmdflags.Folders(cmd, "run-dir")
	cmdflags.Files(cmd, "upstream-ca")
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
		if o.roots, err = rootsOf(roots); err != nil {
			return err
		}
		if by != "" {
			if o.upstreamProxy, err = netip.ParseAddrPort(by); err != nil || !o.upstreamProxy.Addr().Is4() {
				return fmt.Errorf("--upstream-proxy %q: must be an IPv4 address and a port", by)
			}
		}
		if o.recordShare < 0 || o.recordShare > 1 {
			return fmt.Errorf("--record-share %v: must be from 0 to 1", o.recordShare)
		}
		o.records = cmd.OutOrStdout()
		if o.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
			return fmt.Errorf("reach the API server: %w", err)
		}
		kubeclient.RetryUntilAPIServerReady(o.config)
		o.config.Wrap(failpoint.Watches("egress/watch"))
		o.metricsAddress = daemon.MetricsAddress(o.metricsAddress, "")
		if o.log, err = logs.Open(cmd.ErrOrStderr()); err != nil {
			return err
		}
		return runEgress(cmd.Context(), o)
	}
	cmd.AddCommand(newEgressLog(), newEgressRotate())
	return cmd
}

// openHosts reads hosts with their blocks.
func openHosts(list []string) (map[string][]netip.Prefix, error) {
	hosts := map[string][]netip.Prefix{}
	for _, text := range list {
		host, block, _ := strings.Cut(text, "=")
		p, err := netip.ParsePrefix(block)
		name, wrong := names.Host(host)
		if err != nil || wrong != nil {
			return nil, fmt.Errorf("--open %q: must be a host and its block, such as git.example.com=10.0.0.0/24", text)
		}
		hosts[name] = append(hosts[name], p)
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
	own, err := keys.Follow(ctx, api, o.systemNamespace, o.log)
	if err != nil {
		return err
	}
	authority, err := proxy.NewAuthority(own.Authority)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(daemon.BuildInfo(ownVersion()), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var joined *egressMember
	var pods *watch.Watch
	held := func() bool { return joined.lease.Held() }
	metrics := proxy.NewMetrics(registry, held)
	records := record.NewWriter(o.records, o.recordShare, metrics.RecordLost)
	server, err := proxy.New(proxy.Options{
		Listeners: in, Address: o.answer, Held: held,
		Upstream: &upstream.Dialer{Closed: o.closed, Own: o.open, Resolve: resolver(o.resolver), Proxy: o.upstreamProxy}, Authority: authority, Roots: o.roots,
		Reveal:  func(namespace, name string) (string, error) { return pods.Reveal(namespace, name) },
		Metrics: metrics, Record: records.Add, Log: o.log,
	})
	if err != nil {
		return err
	}
	pods = watch.New(watch.Options{Client: api, Table: server.Claims(), Open: own.Open, Log: o.log})
	if joined, err = newEgressMember(o, clientset.CoordinationV1().Leases(o.systemNamespace), pods, server.Claims()); err != nil {
		return err
	}
	recording, recorded := context.WithCancel(context.WithoutCancel(ctx))
	defer recorded()
	running, runCtx := errgroup.WithContext(ctx)
	running.Go(func() error { return records.Start(recording) })
	running.Go(func() error {
		defer recorded() // every connection has ended
		return server.Start(runCtx)
	})
	running.Go(func() error { return own.Start(runCtx) })
	running.Go(func() error { return joined.start(runCtx) })
	running.Go(func() error { return serveEgressMetrics(runCtx, o.metricsAddress, registry, joined.lease) })
	err = running.Wait()
	pods.Stop()
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), egressLeave)
	defer cancel()
	return errors.Join(err, joined.lease.Leave(leaving, true)) // it knows nothing that a controller could miss
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

// resolver finds hosts' addresses as this machine does, or by the name server at the address.
func resolver(address string) func(context.Context, string) ([]netip.Addr, error) {
	r := net.DefaultResolver
	if address != "" {
		r = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}
	}
	return func(ctx context.Context, host string) ([]netip.Addr, error) {
		return r.LookupNetIP(ctx, "ip4", host+".") // the dot: no search domain is tried
	}
}

// rootsOf reads the authorities that upstreams are verified against; nil is the machine's.
func rootsOf(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the authorities of upstreams: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return roots, nil
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
