package access_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// intruder is a pod that owns its node.
func intruder(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kubetest.Name("intruder"), Labels: map[string]string{v1alpha1.LabelPool: "pool"}},
		Spec: corev1.PodSpec{
			HostPID:    true,
			Volumes:    []corev1.Volume{{Name: "node", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
			Containers: []corev1.Container{{Name: "main", Image: "x", VolumeMounts: []corev1.VolumeMount{{Name: "node", MountPath: "/node"}}}},
		},
	}
}

// stranger is a pod that has nothing to do with Sandlane.
func stranger(t *testing.T, namespace string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kubetest.Name("stranger")},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}},
	}
	create(t, kubetest.Client(t), p)
	return p
}

func checkpoint(namespace string, finalizers ...string) *v1alpha1.Checkpoint {
	return &v1alpha1.Checkpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kubetest.Name("c"), Finalizers: finalizers},
		Spec: v1alpha1.CheckpointSpec{
			SandboxID: "s", SandboxUID: "u", ClaimID: "c", Cause: v1alpha1.CheckpointSnapshot,
			Contents: []v1alpha1.CheckpointContent{v1alpha1.CheckpointFilesystem},
		},
	}
}

// patched sends a merge patch.
func patched(t *testing.T, c client.Client, obj client.Object, patch string) error {
	t.Helper()
	return c.Patch(t.Context(), obj.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// deed is something that a process tries in a namespace.
type deed struct {
	what string
	try  func(t *testing.T, namespace string) error
}

// deeds are what the processes may do where pools are allowed and nowhere else, and
// reads, what they may read where it is bound and nowhere else.
func deeds(t *testing.T, o access.Options) (writes, reads []deed) {
	controller, gateway := as(t, o, access.Controller), as(t, o, access.Gateway)
	clients := map[access.Process]*kubernetes.Clientset{}
	for _, p := range access.Processes() {
		c, err := kubernetes.NewForConfig(asConfig(t, o, p))
		if err != nil {
			t.Fatal(err)
		}
		clients[p] = c
	}
	writes = []deed{
		{"controller: make a pod", func(t *testing.T, ns string) error { return controller.Create(t.Context(), intruder(ns)) }},
		{"controller: change a stranger's pod", func(t *testing.T, ns string) error {
			return patched(t, controller, stranger(t, ns), `{"metadata":{"labels":{"sandlane.dev/pool":"pool"}}}`)
		}},
		{"controller: delete a stranger's pod", func(t *testing.T, ns string) error { return controller.Delete(t.Context(), stranger(t, ns)) }},
		{"controller: run a program in a pod", func(t *testing.T, ns string) error {
			return clients[access.Controller].CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name(stranger(t, ns).Name).SubResource("exec").
				VersionedParams(&corev1.PodExecOptions{Command: []string{"true"}, Stdout: true}, scheme.ParameterCodec).Do(t.Context()).Error()
		}},
		{"controller: make a pool", func(t *testing.T, ns string) error { return controller.Create(t.Context(), pool(ns)) }},
		{"controller: make an env", func(t *testing.T, ns string) error {
			return controller.Create(t.Context(), &v1alpha1.SandboxEnv{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: kubetest.Name("env")},
				Spec:       v1alpha1.SandboxEnvSpec{TemplateRef: v1alpha1.TemplateRef{Name: "t"}},
			})
		}},
		{"gateway: claim a pod", func(t *testing.T, ns string) error {
			p := poolPod(ns, v1alpha1.PodIdle)
			create(t, kubetest.Client(t), p)
			return patched(t, gateway, p, `{"metadata":{`+claimMetadata+`}}`)
		}},
		{"gateway: note on a pool", func(t *testing.T, ns string) error {
			return merge(t, gateway, pool(ns), `{"metadata":{"annotations":{"sandlane.dev/last-create":"x"}}}`)
		}},
		{"gateway: make a network policy", func(t *testing.T, ns string) error { return gateway.Create(t.Context(), sandboxPolicy(ns)) }},
		{"gateway: make a checkpoint", func(t *testing.T, ns string) error {
			return gateway.Create(t.Context(), checkpoint(ns, v1alpha1.FinalizerCheckpoint))
		}},
	}
	reads = []deed{
		{"gateway: read a log", func(t *testing.T, ns string) error {
			return clients[access.Gateway].CoreV1().Pods(ns).GetLogs(stranger(t, ns).Name, &corev1.PodLogOptions{}).Do(t.Context()).Error()
		}},
		{"gateway: list network policies", func(t *testing.T, ns string) error {
			return gateway.List(t.Context(), &networkingv1.NetworkPolicyList{}, client.InNamespace(ns))
		}},
		{"controller: list Events", func(t *testing.T, ns string) error {
			_, err := clients[access.Controller].CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{})
			return err
		}},
	}
	return writes, reads
}

// wantForbidden checks whether an error is a 403, whatever else may be wrong: the pods have
// no node that could run a program or show a log.
func wantForbidden(t *testing.T, what, where string, err error, want bool) {
	t.Helper()
	if apierrors.IsForbidden(err) != want || err != nil && !want && (apierrors.IsInvalid(err) || apierrors.IsNotFound(err)) {
		t.Errorf("%s in %s: %v, want it forbidden: %v", what, where, err, want)
	}
}

// bare makes a namespace without the label.
func bare(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("bare")}}
	create(t, kubetest.Client(t), ns)
	return ns.Name
}

// untilPolicies waits until the API server has compiled the policies of what is refused in
// a namespace without the label.
func untilPolicies(t *testing.T, writes []deed) {
	t.Helper()
	for _, d := range writes {
		kubetest.Eventually(t, "the policy against: "+d.what, func() error {
			if err := d.try(t, "kube-public"); !apierrors.IsForbidden(err) {
				return fmt.Errorf("it is not forbidden: %w", err)
			}
			return nil
		})
	}
}

// Pods, pools, Checkpoints and programs in pods are made where the administrator's label
// is and nowhere else; logs, policies and Events are read where it is bound. Secrets are
// read nowhere.
func TestPoolNamespacesGoByTheirLabel(t *testing.T) {
	o := install(t)
	writes, reads := deeds(t, o)
	untilPolicies(t, writes)
	bound := kubetest.Namespace(t)
	for _, obj := range access.Bindings(o, bound) {
		create(t, kubetest.Client(t), obj)
	}
	kubetest.Eventually(t, "the bindings", func() error {
		for _, d := range reads {
			if err := d.try(t, bound); apierrors.IsForbidden(err) {
				return err
			}
		}
		return nil
	})
	for where, may := range map[string]struct {
		namespace   string
		write, read bool
	}{
		"kube-system":                {"kube-system", false, false},
		"the system namespace":       {o.SystemNamespace, false, false},
		"a namespace without label":  {bare(t), false, false},
		"a labelled namespace":       {kubetest.Namespace(t), true, false},
		"a labelled one that binds":  {bound, true, true},
		"one labelled in other ways": {labelled(t, "yes"), false, false},
	} {
		for _, d := range writes {
			wantForbidden(t, d.what, where, d.try(t, may.namespace), !may.write)
		}
		for _, d := range reads {
			wantForbidden(t, d.what, where, d.try(t, may.namespace), !may.read)
		}
		foreign := checkpoint(may.namespace, v1alpha1.FinalizerCheckpoint, "a.b/c")
		wantForbidden(t, "gateway: make a checkpoint with a foreign finalizer", where, as(t, o, access.Gateway).Create(t.Context(), foreign), true)
		for _, p := range access.Processes() {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: may.namespace, Name: "x"}}
			wantForbidden(t, string(p)+": read a Secret", where, as(t, o, p).Get(t.Context(), client.ObjectKeyFromObject(secret), secret), true)
		}
	}
}

// labelled makes a namespace whose label has a value.
func labelled(t *testing.T, value string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("labelled"), Labels: map[string]string{v1alpha1.LabelPools: value}}}
	create(t, kubetest.Client(t), ns)
	return ns.Name
}

// Where the label was taken off nothing begins, but what is there ends: pods of pools are
// stopped, let go and deleted, Checkpoints and pools deleted.
func TestWhatIsThereEndsWithoutTheLabel(t *testing.T) {
	o := install(t)
	writes, _ := deeds(t, o)
	untilPolicies(t, writes)
	admin, controller, gateway, ns := kubetest.Client(t), as(t, o, access.Controller), as(t, o, access.Gateway), kubetest.Namespace(t)
	pods := map[v1alpha1.PodPhase]*corev1.Pod{}
	for _, phase := range []v1alpha1.PodPhase{v1alpha1.PodWarming, v1alpha1.PodIdle, v1alpha1.PodStarting, v1alpha1.PodRunning} {
		pods[phase] = poolPod(ns, phase)
		create(t, admin, pods[phase])
	}
	cp, p := checkpoint(ns, v1alpha1.FinalizerCheckpoint), pool(ns)
	create(t, admin, cp)
	create(t, admin, p)

	off := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	if err := patched(t, admin, off, `{"metadata":{"labels":{"sandlane.dev/pools":null}}}`); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the API server to see the label gone", func() error {
		if err := controller.Create(t.Context(), intruder(ns), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("making a pod: %w", err)
		}
		return nil
	})
	for _, d := range writes {
		wantForbidden(t, d.what, "a namespace whose label was taken off", d.try(t, ns), true)
	}
	check(t, patched(t, gateway, pods[v1alpha1.PodRunning], `{"metadata":{"labels":{"sandlane.dev/phase":"stopping"}}}`), true)
	for _, pod := range pods {
		check(t, patched(t, controller, pod, `{"metadata":{"labels":{"sandlane.dev/phase":"stopping"}}}`), true)
		check(t, patched(t, controller, pod, `{"metadata":{"finalizers":null}}`), true)
		check(t, controller.Delete(t.Context(), pod, client.GracePeriodSeconds(0)), true)
	}
	for phase, pod := range pods {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}); !apierrors.IsNotFound(err) {
			t.Errorf("the %s pod is left: %v", phase, err)
		}
	}
	check(t, patched(t, controller, p, `{"metadata":{"annotations":{"sandlane.dev/scale-up-pending":null}}}`), true)
	check(t, controller.Delete(t.Context(), p), true)
	check(t, gateway.Delete(t.Context(), cp), true)
	check(t, patched(t, controller, cp, `{"metadata":{"finalizers":null}}`), true)
}
