package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/local/node"
	"github.com/sandlane/sandlane/local/node/images"
	"github.com/sandlane/sandlane/local/supervise"
)

// nodeName is the one node's.
const nodeName = "sandlane"

// dataPlane is what the processes of our own have in common.
type dataPlane struct {
	state
	self, envoyBin string
	streams        int
	isolation      node.Isolation
	subnet         string
	controllerPort int
	egressPort     int // of its metrics
	workers        int // of each Envoy
	egress         EgressOptions
	test           TestOptions
	module         string // of the fast path; empty without it
	registry       string // of templates; empty without one
	bases          []string
}

func (d *dataPlane) node(api client.Client) supervise.Spec {
	spec := d.ours("node", "--state", d.dir, "--subnet", d.subnet, "--isolation", string(d.isolation),
		"--images", d.imageTable(), "--helpers", d.helperDir(), "--name", nodeName)
	if d.egress.Run {
		spec.Args = append(spec.Args, "--egress")
	}
	if d.registry != "" {
		spec.Args = append(spec.Args, "--registry-logins", d.registryLogins())
	}
	if d.test.ReuseAddresses {
		spec.Args = append(spec.Args, "--reuse-addresses")
	}
	spec.Ready = func(ctx context.Context) error {
		var n corev1.Node
		if err := api.Get(ctx, client.ObjectKey{Name: nodeName}, &n); err != nil {
			return fmt.Errorf("look for the node: %w", err)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("the node is not Ready")
	}
	return spec
}

func (d *dataPlane) controller() supervise.Spec {
	spec := d.ours("controller", "--metrics-address", loopback(d.controllerPort), "--system-namespace", SystemNamespace,
		"--cluster-id", "local", "--checkpoint-dir", d.checkpoints(), "--sandboxd-image", baseImage,
		"--recycle-after", "0s", // the local node restarts changed containers at once
		"--leader-elect=false") // there is one, and after a crash the next need not wait for its lease
	spec.Args = append(spec.Args, d.controlArgs("controller")...)
	if d.egress.Run {
		spec.Args = append(spec.Args, "--egress-address", d.bridgeAddress())
	}
	if d.registry != "" {
		spec.Args = append(spec.Args, "--template-registry", d.registry)
	}
	if d.test.AddressCooldown > 0 {
		spec.Args = append(spec.Args, "--address-cooldown", d.test.AddressCooldown.String(), "--short-address-cooldown=true")
	}
	if d.test.LeaseDuration > 0 {
		spec.Args = append(spec.Args, "--lease-grace", (d.test.LeaseDuration / 2).String())
	}
	spec.Ready = func(ctx context.Context) error { return get(ctx, "http://"+loopback(d.controllerPort)+"/metrics", nil) }
	return spec
}

func (d *dataPlane) gateway(g gatewayPair) supervise.Spec {
	spec := d.ours("gateway", "--name", g.name, "--run-dir", d.gatewayRun(g.name), "--metrics-address", loopback(g.metricsPort),
		"--system-namespace", SystemNamespace, "--key-namespace", KeyNamespace, "--first-request-pool", poolNamespace+"/"+echoName,
		"--checkpoint-dir", d.checkpoints(),
		"--max-streams", strconv.Itoa(d.streams),
		"--drain-delay", "0s") // no load balancer stands before it
	if d.registry != "" {
		spec.Args = append(spec.Args, "--template-registry", d.registry, "--template-credentials", d.registryLogins(), "--template-bases", strings.Join(d.bases, ","))
	}
	if d.test.DrainGrace > 0 {
		spec.Args = append(spec.Args, "--drain-grace", d.test.DrainGrace.String())
	}
	if d.test.LeaseDuration > 0 {
		spec.Args = append(spec.Args, "--lease-duration", d.test.LeaseDuration.String(), "--lease-renew-every", d.test.LeaseRenewEvery.String())
	}
	spec.Args = append(append(spec.Args, "--domain", g.sdkDomain()), d.controlArgs("gateway")...)
	spec.Args = append(spec.Args, d.fastPathArgs(g.name)...)
	spec.Name, spec.LogFile = g.name, d.log(g.name)
	spec.Ready = g.ready
	return spec
}

// ready returns nil once the gateway serves.
func (g gatewayPair) ready(ctx context.Context) error {
	return get(ctx, "http://"+loopback(g.metricsPort)+"/readyz", nil)
}

// ours is a subcommand of this binary. Gateways and controller have accounts of
// their own; the node acts as the administrator.
func (d *dataPlane) ours(command string, args ...string) supervise.Spec {
	kubeconfig := d.kubeconfig()
	if slices.Contains(access.Processes(), access.Process(command)) {
		kubeconfig = d.accountKubeconfig(access.Process(command))
	}
	return supervise.Spec{
		Name: command, Path: d.self, Args: append([]string{command, "--kubeconfig", kubeconfig}, args...), LogFile: d.log(command),
	}
}

// envoy writes the configuration and describes the process that runs it. It is
// started only while its gateway serves: what it took before would be answered
// with 503. A gateway that was drained ends its Envoy, so both start again.
func (d *dataPlane) envoy(g gatewayPair) (supervise.Spec, error) {
	o := envoy.Options{RunDir: d.gatewayRun(g.name), NodeID: g.name, Port: g.port, MaxStreams: d.streams, RetransmitMax: envoy.KernelRetransmitMax(), FastPath: d.fastPath(g.name)}
	if g.domain != "" {
		o.CertFile, o.KeyFile = d.pki(gatewayCert), d.pki(gatewayKey)
	}
	bootstrap, err := envoy.Bootstrap(o)
	if err != nil {
		return supervise.Spec{}, err
	}
	config, err := envoy.JSON(bootstrap)
	if err != nil {
		return supervise.Spec{}, err
	}
	file := filepath.Join(d.gatewayRun(g.name), "envoy.json")
	if err := writeFile(file, config, 0o600); err != nil {
		return supervise.Spec{}, err
	}
	secret, content, err := envoy.Certificate(o)
	if err == nil && secret != "" {
		err = writeFile(secret, content, 0o600)
	}
	if err != nil {
		return supervise.Spec{}, err
	}
	admin := envoy.Admin{Socket: filepath.Join(d.gatewayRun(g.name), envoy.AdminSocketName)}
	return supervise.Spec{
		Name: g.envoyName, Path: d.envoyBin, Args: envoy.Args(file, d.workers), LogFile: d.log(g.envoyName),
		After: g.ready, Ready: admin.Ready,
	}, nil
}

func (d *dataPlane) imageTable() string { return d.path("cluster", "images.json") }
func (d *dataPlane) helperDir() string  { return d.path("cluster", "helpers") }

// writeImages makes the node's image table; with the code interpreter if the folder of its
// packages is given.
func (d *dataPlane) writeImages(interpreterPackages string) error {
	table := map[string]images.Entry{
		echoImage: {Command: []string{filepath.Join(d.helperDir(), "echo")}},
		baseImage: {Command: []string{filepath.Join(d.helperDir(), "sandboxd")}, Env: baseImageEnv, Aliases: []string{"sudo"}},
	}
	if interpreterPackages != "" {
		table[interpreterImage] = d.interpreterOf(interpreterPackages)
	}
	for name, image := range table {
		var err error
		if image.Digest, err = digestOf(image.Command[0]); err != nil {
			return fmt.Errorf("the image %s: %w", name, err)
		}
		table[name] = image
	}
	b, err := json.MarshalIndent(table, "", "  ")
	if err != nil {
		return fmt.Errorf("write the image table: %w", err)
	}
	return writeFile(d.imageTable(), b, 0o600)
}

func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
