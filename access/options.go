package access

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Defaults of Options.
const (
	DefaultSystemNamespace = "sandlane-system"
	DefaultKeyNamespace    = "sandlane-keys"
)

// Options say for which cluster the objects are made.
type Options struct {
	// SystemNamespace has the accounts, the leases and the gateways' own Secrets;
	// default DefaultSystemNamespace.
	SystemNamespace string
	// KeyNamespace has the Secrets of API keys; default DefaultKeyNamespace. It must
	// not be the system namespace: gateways may read all Secrets of KeyNamespace, but
	// of the system namespace only their own two.
	KeyNamespace string
}

// Complete sets the defaults.
func (o *Options) Complete() {
	if o.SystemNamespace == "" {
		o.SystemNamespace = DefaultSystemNamespace
	}
	if o.KeyNamespace == "" {
		o.KeyNamespace = DefaultKeyNamespace
	}
}

// Validate returns what is wrong with completed options.
func (o *Options) Validate() error {
	var errs []error
	for _, ns := range []string{o.SystemNamespace, o.KeyNamespace} {
		if problems := validation.IsDNS1123Label(ns); len(problems) > 0 { // it stands in expressions
			errs = append(errs, fmt.Errorf("namespace %q: %s", ns, problems[0]))
		}
	}
	if o.SystemNamespace == o.KeyNamespace {
		errs = append(errs, fmt.Errorf("API keys need a namespace of their own, not %q", o.SystemNamespace))
	}
	return errors.Join(errs...)
}

// closed are the namespaces that never have pools.
func (o *Options) closed() []string {
	return []string{"kube-system", "kube-public", "kube-node-lease", o.SystemNamespace, o.KeyNamespace}
}

// AccountName is the name of a process's service account, in the system namespace.
func AccountName(p Process) string { return "sandlane-" + string(p) }

// Username is how the API server calls a process: the user name of its service
// account, and of the certificates that `sandlane up` makes.
func (o *Options) Username(p Process) string {
	return "system:serviceaccount:" + o.SystemNamespace + ":" + AccountName(p)
}

// Groups are those of a process's service account. No right is granted to them.
func (o *Options) Groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + o.SystemNamespace}
}
