package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
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

// cluster is the one that a command works on: that of a kubeconfig, else that of the
// `up` that runs with a state folder. $KUBECONFIG alone is not heeded: a user who has
// tried `up` would change another cluster without having named it.
type cluster struct {
	kubeconfig, state string
	// systemNamespace is where the cluster keeps the seed of tokens, keyNamespace
	// where API keys.
	systemNamespace, keyNamespace string
}

// clusterFlags adds the flags that name a cluster to a command and those below it.
func clusterFlags(cmd *cobra.Command) *cluster {
	c, flags := &cluster{}, cmd.PersistentFlags()
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster (default that of \"sandlane up\" with --state)")
	flags.StringVar(&c.state, "state", "", stateUsage)
	flags.StringVar(&c.systemNamespace, "system-namespace", gateway.DefaultSystemNamespace, "namespace of leases and of the gateways' own Secrets")
	flags.StringVar(&c.keyNamespace, "key-namespace", gateway.DefaultKeyNamespace, "namespace of API keys")
	takeFiles(cmd, "kubeconfig")
	takeFolders(cmd, "state")
	return c
}

// connect returns a client that reads live.
func (c *cluster) connect() (client.Client, error) {
	cfg, err := c.config()
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

// config is the user's.
func (c *cluster) config() (*rest.Config, error) {
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

// processes finds the cluster's gateways and controllers: those of `up` by its state
// folder, those of a kubeconfig by their pods.
func (c *cluster) processes(cfg *rest.Config) (processes.Finder, error) {
	if c.kubeconfig == "" {
		dir, err := stateDir(c.state)
		return local.Processes(dir), err
	}
	api, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("prepare a client: %w", err)
	}
	return processes.InCluster(api, c.systemNamespace), nil
}

// reader reads what `explain` and `support-bundle` show.
func (c *cluster) reader() (explain.Reader, error) {
	cfg, err := c.config()
	if err != nil {
		return explain.Reader{}, err
	}
	api, err := clientFor(cfg)
	if err != nil {
		return explain.Reader{}, err
	}
	find, err := c.processes(cfg)
	return explain.Reader{API: api, SystemNamespace: c.systemNamespace, Processes: find}, err
}

// find returns the path of the kubeconfig.
func (c *cluster) find() (string, error) {
	switch {
	case c.kubeconfig != "" && c.state != "":
		return "", errors.New("--kubeconfig and --state name two clusters: give one of them")
	case c.kubeconfig != "":
		return c.kubeconfig, nil
	}
	dir, err := stateDir(c.state)
	if err != nil {
		return "", err
	}
	up, err := local.ReadUpFile(dir)
	return up.Kubeconfig, err
}
