package cmdflags

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console/explain"
	"github.com/sandlane/sandlane/console/processes"
	"github.com/sandlane/sandlane/gateway"
	"github.com/sandlane/sandlane/local"
)

// Cluster is the one that a command works on: that of a kubeconfig, else that of the
// `up` that runs with a state folder. $KUBECONFIG alone is not heeded: a user who has
// tried `up` would change another cluster without having named it.
type Cluster struct {
	// SystemNamespace is where the cluster keeps the seed of tokens, KeyNamespace
	// where API keys.
	SystemNamespace, KeyNamespace string

	kubeconfig, state string
}

// ForCluster adds the flags that name a cluster to a command and those below it.
func ForCluster(cmd *cobra.Command) *Cluster {
	c, flags := &Cluster{}, cmd.PersistentFlags()
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster (default that of \"sandlane up\" with --state)")
	flags.StringVar(&c.state, "state", "", stateUsage)
	flags.StringVar(&c.SystemNamespace, "system-namespace", gateway.DefaultSystemNamespace, "namespace of leases and of the gateways' own Secrets")
	flags.StringVar(&c.KeyNamespace, "key-namespace", gateway.DefaultKeyNamespace, "namespace of API keys")
	Files(cmd, "kubeconfig")
	Folders(cmd, "state")
	return c
}

// Connect returns a client that reads live.
func (c *Cluster) Connect() (client.Client, error) {
	cfg, err := c.Config()
	if err != nil {
		return nil, err
	}
	return clientFor(cfg)
}

func clientFor(cfg *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(cfg, client.Options{Scheme: scheme})
}

// Config is the user's.
func (c *Cluster) Config() (*rest.Config, error) {
	kubeconfig, err := c.find()
	if err != nil {
		return nil, err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return cfg, nil
}

// Processes finds the cluster's gateways and controllers: those of `up` by its state
// folder, those of a kubeconfig by their pods.
func (c *Cluster) Processes(cfg *rest.Config) (processes.Finder, error) {
	if c.kubeconfig == "" {
		dir, err := StateDir(c.state)
		return local.Processes(dir), err
	}
	api, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("prepare a client: %w", err)
	}
	return processes.InCluster(api, c.SystemNamespace), nil
}

// Reader reads what `explain` and `support-bundle` show.
func (c *Cluster) Reader() (explain.Reader, error) {
	cfg, err := c.Config()
	if err != nil {
		return explain.Reader{}, err
	}
	api, err := clientFor(cfg)
	if err != nil {
		return explain.Reader{}, err
	}
	find, err := c.Processes(cfg)
	return explain.Reader{API: api, SystemNamespace: c.SystemNamespace, Processes: find}, err
}

// Domain adds --domain to a command of a cluster: see Sandboxes.
func Domain(cmd *cobra.Command) *string {
	return cmd.Flags().String("domain", "", "domain, with its port, below which the gateways have sandboxes with TLS, as <port>-<ID>.<domain> (default that of \"sandlane up\")")
}

// Sandboxes returns the URL below whose host sandboxes are, as <port>-<ID>.<host>: that of a
// domain, else that of `up`.
func (c *Cluster) Sandboxes(domain string) (url.URL, error) {
	switch {
	case domain != "":
		below := url.URL{Scheme: "https", Host: domain}
		if u, err := url.Parse(below.String()); err != nil || u.Host != domain || len(validation.IsDNS1123Subdomain(u.Hostname())) > 0 {
			return url.URL{}, fmt.Errorf("--domain %q: give a host name, with its port unless that is 443", domain)
		}
		return below, nil
	case c.kubeconfig != "":
		return url.URL{}, errors.New("--kubeconfig needs --domain: below which domain are the sandboxes?")
	}
	dir, err := StateDir(c.state)
	if err != nil {
		return url.URL{}, err
	}
	return SandboxesOfUp(dir)
}

// SandboxesOfUp is Sandboxes for the `up` with a state folder.
func SandboxesOfUp(stateDir string) (url.URL, error) {
	up, err := local.ReadUpFile(stateDir)
	if err != nil {
		return url.URL{}, err
	}
	scheme, _, _ := strings.Cut(up.GatewayURL, "://")
	return url.URL{Scheme: scheme, Host: up.Domain}, nil
}

// find returns the path of the kubeconfig.
func (c *Cluster) find() (string, error) {
	switch {
	case c.kubeconfig != "" && c.state != "":
		return "", errors.New("--kubeconfig and --state name two clusters: give one of them")
	case c.kubeconfig != "":
		return c.kubeconfig, nil
	}
	dir, err := StateDir(c.state)
	if err != nil {
		return "", err
	}
	up, err := local.ReadUpFile(dir)
	return up.Kubeconfig, err
}
