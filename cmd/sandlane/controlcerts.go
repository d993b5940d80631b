package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/credentials/issuer"
	"github.com/sandlane/sandlane/gateway"
	"github.com/sandlane/sandlane/kubeclient"
)

func newControlCerts() *cobra.Command {
	var kubeconfig, namespace string
	var egress bool
	cmd := &cobra.Command{
		Use:     "control-certs",
		Example: `  sandlane control-certs --system-namespace sandlane-system`,
		Short:   "Make and renew the certificates of the control plane, as Secrets",
		Long: `Make the certificates by which gateways and controllers know each other, and renew
those that run out: the Secrets ` + issuer.AuthoritySecret + `, ` + issuer.GatewaySecret + ` and
` + issuer.ControllerSecret + `, with --egress ` + issuer.EgressSecret + `. What is good is left alone, the authority always. The Helm
chart runs this before an installation and every day.`,
		Args: cobra.NoArgs,
	}
	cmdflags.Kubeconfig(cmd, &kubeconfig)
	cmd.Flags().StringVar(&namespace, "system-namespace", gateway.DefaultSystemNamespace, "namespace of the Secrets")
	cmd.Flags().BoolVar(&egress, "egress", false, "make the certificate of egress processes too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		api, err := inCluster(kubeconfig)
		if err != nil {
			return err
		}
		i := issuer.Issuer{
			Client: api, Namespace: namespace, Gateway: controlplane.GatewayIdentity, Controller: controlplane.ControllerIdentity,
			Labels: map[string]string{"app.kubernetes.io/part-of": "sandlane"},
		}
		if egress {
			i.Egress = controlplane.EgressIdentity
		}
		wrote, err := i.Ensure(cmd.Context())
		for _, name := range wrote {
			fmt.Fprintln(cmd.OutOrStdout(), "wrote the Secret", name)
		}
		if err == nil && len(wrote) == 0 {
			fmt.Fprintln(cmd.OutOrStdout(), "all certificates are good")
		}
		return err
	}
	return cmd
}

// inCluster returns a client that reads live, of a kubeconfig or of the pod that
// this runs in.
func inCluster(kubeconfig string) (client.Client, error) {
	config := rest.InClusterConfig
	if kubeconfig != "" {
		config = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	cfg, err := config()
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(cfg, client.Options{Scheme: scheme, Mapper: kubeclient.RESTMapper(scheme)})
}
