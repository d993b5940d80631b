package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
	vknode "github.com/virtual-kubelet/virtual-kubelet/node"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/sandlane/sandlane/kubeclient"
	"github.com/sandlane/sandlane/local/node/network"
)

const (
	// podWorkers is how many pods the library looks at at once; the work
	// itself happens in the pods' own goroutines.
	podWorkers = 16
	// retryBase and retryMax shape the library's retries.
	retryBase = time.Millisecond // also the pause before the first try
	retryMax  = 5 * time.Second
)

// Run is the node: it registers itself, binds pods without a node to itself,
// and runs them until ctx is done. Then it kills every pod process, removes
// what it made on the machine, and returns nil; pods stay in the API and are
// started again by the next Run. It is called once per state folder at a time.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.complete(); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(o.RestConfig)
	if err != nil {
		return fmt.Errorf("node: make a client: %w", err)
	}
	if o.Isolation == IsolationFull {
		if err := network.Guard(nodeDir(o.StateDir), o.Subnet); err != nil {
			return fmt.Errorf("node: %w", err)
		}
	}
	if err := clean(o.StateDir); err != nil {
		return fmt.Errorf("node: clean up after an earlier run: %w", err)
	}
	rt, err := newRuntime(o)
	if err != nil {
		return fmt.Errorf("node: %w", errors.Join(err, clean(o.StateDir)))
	}
	ctx = vklog.WithLogger(ctx, libraryLog{log: o.Log})
	ctx, cancel := context.WithCancel(ctx)
	broadcaster := record.NewBroadcaster()
	defer func() {
		broadcaster.Shutdown()
		if closeErr := rt.close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("node: %w", closeErr))
		}
		if err == nil { // after an error another node follows
			err = network.Unguard(nodeDir(o.StateDir))
		}
	}()
	defer cancel()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	v := newProvider(ctx, rt, client, broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "sandlane-node", Host: o.Name}), o.Log)
	if o.inspect != nil {
		o.inspect(v)
	}
	// Processes die before their thread and links go.
	defer v.wait()
	defer cancel()
	if err := rt.keepAddresses(ctx, client, o.Name); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	return serve(ctx, o, client, v)
}

// keepAddresses reserves what pods of an earlier run show in their status.
func (rt *podRuntime) keepAddresses(ctx context.Context, client kubernetes.Interface, node string) error {
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return fmt.Errorf("list the node's pods: %w", err)
	}
	for _, pod := range pods.Items {
		if addr, err := netip.ParseAddr(pod.Status.PodIP); err == nil && pod.DeletionTimestamp == nil &&
			pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			rt.addrs.Keep(pod.UID, addr)
		}
	}
	return nil
}

// serve runs the node's loops until ctx is done or one of them fails.
func serve(ctx context.Context, o Options, client kubernetes.Interface, v *provider) error {
	kubelet, err := listenKubelet(o.StateDir)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	watcher, err := kubernetes.NewForConfig(kubeclient.Patient(o.RestConfig))
	if err != nil {
		return fmt.Errorf("node: make a client: %w", err)
	}
	mine := informersFor(watcher, fields.OneTermEqualSelector("spec.nodeName", o.Name))
	unbound := informersFor(watcher, fields.OneTermEqualSelector("spec.nodeName", ""))
	pods := mine.Core().V1().Pods()
	if _, err := pods.Informer().AddEventHandler(v.handler()); err != nil {
		return fmt.Errorf("node: watch pods: %w", err)
	}
	bind, err := newBinder(client, o.Name, o.Log, unbound.Core().V1().Pods().Informer())
	if err != nil {
		return fmt.Errorf("node: watch pods: %w", err)
	}
	// Never started: the library looks at them only to resolve variables,
	// which the node does itself, and they would hold every Secret in memory.
	idle := informers.NewSharedInformerFactory(client, 0).Core().V1()
	limiter := func() workqueue.TypedRateLimiter[any] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[any](retryBase, retryMax)
	}
	controller, err := vknode.NewPodController(vknode.PodControllerConfig{
		PodClient: guardedPods{client.CoreV1(), v}, PodInformer: pods, Provider: v,
		EventRecorder:     &record.FakeRecorder{}, // the node's own events say more
		ConfigMapInformer: idle.ConfigMaps(), SecretInformer: idle.Secrets(), ServiceInformer: idle.Services(),
		SyncPodsFromKubernetesRateLimiter:    limiter(),
		DeletePodsFromKubernetesRateLimiter:  limiter(),
		SyncPodStatusFromProviderRateLimiter: limiter(),
		SkipDownwardAPIResolution:            true,
	})
	if err != nil {
		return fmt.Errorf("node: make the pod controller: %w", err)
	}
	registration, err := vknode.NewNodeController(vknode.NaiveNodeProvider{}, nodeObject(o, kubelet.port()), client.CoreV1().Nodes(),
		vknode.WithNodeEnableLeaseV1(client.CoordinationV1().Leases(corev1.NamespaceNodeLease), leaseSeconds))
	if err != nil {
		return fmt.Errorf("node: make the node controller: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return kubelet.serve(ctx, v) })
	group.Go(func() error { return registration.Run(ctx) })
	group.Go(func() error { return controller.Run(ctx, podWorkers) })
	group.Go(func() error { bind.run(ctx); return nil })
	mine.Start(ctx.Done())
	unbound.Start(ctx.Done())
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-registration.Ready():
		}
		select {
		case <-ctx.Done():
		case <-controller.Ready():
			if o.Ready != nil {
				o.Ready()
			}
		}
		return nil
	})
	err = group.Wait()
	mine.Shutdown()
	unbound.Shutdown()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

func informersFor(client kubernetes.Interface, sel fields.Selector) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(l *metav1.ListOptions) {
		l.FieldSelector = sel.String()
	}))
}

// handler passes watch events on at once; the library's queues follow.
func (v *provider) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { v.observe(obj.(*corev1.Pod)) },
		UpdateFunc: func(old, obj any) {
			before, now := old.(*corev1.Pod), obj.(*corev1.Pod)
			if before.UID != now.UID {
				v.gone(before)
			}
			v.observe(now)
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				v.gone(pod)
			}
		},
	}
}
