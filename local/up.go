package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/local/authority"
	"github.com/sandlane/sandlane/local/binaries"
	"github.com/sandlane/sandlane/local/node"
	"github.com/sandlane/sandlane/local/node/network"
	"github.com/sandlane/sandlane/local/supervise"
)

// When a step fails:
//
// `up` checks what it can before it starts anything; a step that fails
// afterwards stops what was started, in order, and leaves nothing but logs. A
// process that dies later is started again and up.json is rewritten.

// stopTimeout is how long everything may take to stop in order; what is left
// then is killed.
const stopTimeout = 45 * time.Second

// maxPause bounds the pause before a process that died again and again is
// started once more: a user waits.
const maxPause = 2 * time.Second

// Up runs Sandlane on this machine until ctx ends, then stops it and returns
// nil. An error means that it did not come up; nothing runs then. Only one Up
// at a time may use a state folder.
func Up(ctx context.Context, o Options) error {
	if err := o.Complete(); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	o.callOneAtATime()
	unix.Umask(0o022) // pods' users read what this process, the node and pip write
	u := &up{o: o, state: newState(o.StateDir)}
	if err := u.state.create(); err != nil {
		return err
	}
	unlock, err := u.state.lock(thisProcess())
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := u.clean(); err != nil {
		return err
	}
	// Not in clean: until the next `up` the logs say what the last one's containers printed.
	if err := node.RemoveLogs(u.dir); err != nil {
		return err
	}
	beside, stop := context.WithCancel(ctx)
	waitInstall := u.beginInterpreter(beside)
	defer func() { stop(); waitInstall() }()
	if err := u.prepare(ctx); err != nil {
		_, cleanErr := u.clean()
		return errors.Join(err, cleanErr)
	}
	err = u.serve(ctx)
	_, cleanErr := u.clean()
	return errors.Join(err, cleanErr)
}

// up is one run of Up. Its fields are set by prepare and constant afterwards.
type up struct {
	o Options
	state
	kubernetes kubernetes
	dataPlane  dataPlane
	gateways   []gatewayPair
	// interpreter is nil if no pool of the code interpreter is wanted.
	interpreter *interpreterInstall
	subnet      *network.Subnet
	templates   templates
	authority   *authority.Authority // nil without TLS
	startedAt   time.Time

	group              *supervise.Group
	config             *rest.Config
	api                client.Client
	apiKey, consoleURL string
}

// prepare does all that can fail before a process is started.
func (u *up) prepare(ctx context.Context) error {
	if err := u.room(); err != nil {
		return fmt.Errorf("%w: make room, or choose another folder with --state", err)
	}
	if u.o.Port != 0 {
		if err := checkPort(u.o.Port); err != nil {
			return err
		}
	}
	if u.o.TLS {
		if err := u.ensureAuthority(); err != nil {
			return err
		}
	}
	isolation, err := isolation(u.o.Isolation, node.CanIsolate, u.o.Progress)
	if err != nil {
		return err
	}
	streams, err := raiseFiles(u.o.Progress)
	if err != nil {
		return err
	}
	envoyBin, err := envoy.Find(ctx, envoy.FindOptions{Progress: u.o.Progress})
	if err != nil {
		return err
	}
	bin, err := u.findKubernetes(ctx)
	if err != nil {
		return err
	}
	ports, err := freePorts(7+2*u.o.Gateways-1, u.o.Port)
	if err != nil {
		return err
	}
	if u.o.Port == 0 {
		u.o.Port = ports[0]
	}
	if err := u.createRun(); err != nil {
		return err
	}
	kubelet, err := node.EnsureKubeletCredentials(u.dir)
	if err != nil {
		return err
	}
	if u.o.Egress.Run && isolation != node.IsolationFull {
		return errors.New("--egress: sandboxes cannot be kept apart on this machine, and by their addresses egress knows them")
	}
	u.kubernetes = kubernetes{state: u.state, bin: bin, kubelet: kubelet, audit: u.o.Test.Audit, etcdPort: ports[1], peerPort: ports[2], apiPort: ports[3]}
	u.gateways = gatewayPairs(u.o.Gateways, u.o.Port, ports[7:], u.o.Domain)
	err = retryDump(func() (err error) {
		u.subnet, err = network.PickSubnet(isolation == node.IsolationFull)
		return err
	})
	if err != nil {
		return fmt.Errorf("find a free network for pods: %w", err)
	}
	u.dataPlane = dataPlane{
		state: u.state, self: u.o.Self, envoyBin: envoyBin, streams: streams,
		isolation: isolation, subnet: u.subnet.String(), controllerPort: ports[4], egressPort: ports[5], egress: u.o.Egress,
		workers: envoyWorkers(u.o.Gateways), test: u.o.Test,
	}
	if err := u.writeFiles(); err != nil {
		return err
	}
	if err := u.prepareRegistry(isolation, ports[6]); err != nil {
		return err
	}
	u.dataPlane.registry, u.dataPlane.bases = u.templates.registryName(), append([]string{"*"}, u.o.TemplateBases...)
	return u.findModule(ctx)
}

func (u *up) writeFiles() error {
	if err := u.writePKI(); err != nil {
		return err
	}
	if err := u.writeControlPKI(); err != nil {
		return err
	}
	if u.o.TLS {
		if err := u.writeTLS(); err != nil {
			return err
		}
	}
	if err := u.kubernetes.writeAuditPolicy(); err != nil {
		return err
	}
	if err := u.writeKubeconfigs(u.kubernetes.apiPort); err != nil {
		return err
	}
	if err := u.o.Helpers(u.dataPlane.helperDir()); err != nil {
		return fmt.Errorf("unpack the helper programs: %w", err)
	}
	return u.dataPlane.writeImages("")
}

// serve starts everything, says that it is up, and stops it when ctx ends.
func (u *up) serve(ctx context.Context) error {
	defer u.subnet.Close()
	u.startedAt = time.Now()
	changed := make(chan struct{}, 1)
	note := func() {
		select {
		case changed <- struct{}{}:
		default: // one is noted already
		}
	}
	u.group = supervise.NewGroup(supervise.Options{Log: u.o.Log, MaxPause: maxPause, OnChange: note})
	defer u.group.Close()
	control, err := u.listen()
	if err != nil {
		return err
	}
	defer control.close()
	if err := u.startRegistry(ctx); err != nil {
		return err
	}
	defer u.stopRegistry()

	err = u.start(ctx)
	if err == nil {
		var beside sync.WaitGroup
		beside.Go(func() { u.addInterpreter(ctx) })
		beside.Go(func() { u.collectRegistry(ctx) })
		beside.Go(func() {
			u.addKubernetes(ctx)
			note()
		})
		u.follow(ctx, changed)
		beside.Wait()
		u.o.Progress("stopping")
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	u.group.StopAll(stopping)
	if err != nil && errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("stopped before Sandlane was up: %w", err)
	}
	return err
}

// start brings up one part after the other, each when those it needs serve.
func (u *up) start(ctx context.Context) error {
	steps := u.steps()
	for i, step := range steps {
		u.o.Progress(fmt.Sprintf("[%d/%d] %5.1fs  %s", i+1, len(steps), time.Since(u.startedAt).Seconds(), step.what))
		if err := step.do(ctx); err != nil {
			return err
		}
		if err := u.recordProcesses(u.group.Status()); err != nil {
			return err
		}
	}
	if u.o.Console != nil {
		var err error
		if u.consoleURL, err = u.o.Console(ctx, u.config); err != nil {
			return err
		}
	}
	file := u.upFileNow()
	if err := u.writeUpFile(file); err != nil {
		return err
	}
	u.o.Ready(file)
	return nil
}

type step struct {
	what string
	do   func(context.Context) error
}

func (u *up) steps() []step {
	run := func(spec supervise.Spec) func(context.Context) error {
		return func(ctx context.Context) error { return u.group.Start(ctx, spec) }
	}
	steps := []step{
		{"starting etcd", run(u.kubernetes.etcd())},
		{"starting kube-apiserver", func(ctx context.Context) (err error) {
			if err := u.group.Start(ctx, u.kubernetes.apiServer()); err != nil {
				return err
			}
			u.config, u.api, err = connect(u.kubeconfig())
			return err
		}},
	}
	if u.kubernetes.bin[binaries.ControllerManager] != "" {
		steps = append(steps, step{"starting kube-controller-manager", u.startControllerManager})
	}
	steps = append(steps, []step{
		{"installing Sandlane's definitions and accounts", func(ctx context.Context) (err error) {
			if err = install(ctx, u.api); err != nil {
				return err
			}
			u.apiKey, err = u.o.NewAPIKey(ctx, u.config)
			return err
		}},
		{"starting controller", run(u.dataPlane.controller())},
		{"starting node", func(ctx context.Context) error { return u.group.Start(ctx, u.dataPlane.node(u.api)) }},
	}...)
	if u.o.Egress.Run {
		steps = append(steps, step{"starting egress", u.startEgress})
	}
	steps = append(steps, step{fmt.Sprintf("creating the pools %s of %d pods and %s of %d", echoName, u.o.PoolSize, baseName, u.o.BasePoolSize), u.createPools})
	for _, g := range u.gateways {
		steps = append(steps,
			step{"starting " + g.name, func(ctx context.Context) error { return u.startGateway(ctx, g) }},
			step{"starting " + g.envoyName, func(ctx context.Context) error { return u.startEnvoy(ctx, g) }},
		)
	}
	return append(steps, step{"waiting for warm pods", u.waitWarm})
}

// follow keeps up.json and the list of processes true until ctx ends.
func (u *up) follow(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		if err := errors.Join(u.room(), u.recordProcesses(u.group.Status()), u.writeUpFile(u.upFileNow())); err != nil {
			u.o.Log.Error("a process has ended or started, and not all is well", "err", err)
		}
	}
}
