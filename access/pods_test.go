package access_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// poolPod is a pod as the pool reconciler makes it, in the given phase.
func poolPod(namespace string, phase v1alpha1.PodPhase) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: kubetest.Name("pod"), Finalizers: []string{v1alpha1.FinalizerPod},
			Labels:      map[string]string{v1alpha1.LabelPool: "pool", v1alpha1.LabelPhase: string(phase), "team": "a"},
			Annotations: map[string]string{v1alpha1.AnnotationTemplateHash: "h", v1alpha1.AnnotationAddress: "10.0.0.1"},
		},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: "local/init"}},
			Containers:     []corev1.Container{{Name: "main", Image: "local/echo"}},
		},
	}
	if phase != v1alpha1.PodIdle {
		p.Labels[v1alpha1.LabelSandboxID], p.Annotations[v1alpha1.AnnotationClaim] = "worker-1", "claim"
	}
	return p
}

const claimMetadata = `"labels":{"sandlane.dev/phase":"running","sandlane.dev/sandbox-id":"worker-2"},` +
	`"annotations":{"sandlane.dev/claim":"c2","sandlane.dev/claimed-at":"t","sandlane.dev/started-at":"t"}`

// keptTolerations are those that the API server gives each pod: they cannot be taken
// away.
const keptTolerations = `{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},` +
	`{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},`

// What a gateway may do to a pod, and what it may not.
func TestGatewayWritesPods(t *testing.T) {
	o := limited(t)
	ns := kubetest.Namespace(t)
	tests := map[string]struct {
		pod   *corev1.Pod
		patch string // a strategic merge patch
		ok    bool
	}{
		"claim":                     {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{` + claimMetadata + `}}`, ok: true},
		"claim with another image":  {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"starting","sandlane.dev/sandbox-id":"w"}},"spec":{"containers":[{"name":"main","image":"local/other"}]}}`, ok: true},
		"claim through an env":      {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"running","sandlane.dev/sandbox-id":"w","sandlane.dev/env":"e"}}}`, ok: true},
		"another env":               {pod: poolPod(ns, v1alpha1.PodRunning), patch: `{"metadata":{"labels":{"sandlane.dev/env":"e"}}}`},
		"stop an idle one":          {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"stopping"}}}`, ok: true},
		"stop a running one":        {pod: poolPod(ns, v1alpha1.PodRunning), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"stopping"}}}`, ok: true},
		"mark a running one":        {pod: poolPod(ns, v1alpha1.PodRunning), patch: `{"metadata":{"labels":{"sandlane.dev/rules":"own"}}}`, ok: true},
		"mark an idle one":          {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/rules":"own"}}}`},
		"mark as it claims":         {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"running","sandlane.dev/rules":"own"}}}`},
		"name as it claims":         {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"running","sandlane.dev/rules":"names"}}}`, ok: true},
		"name an idle one":          {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/rules":"names"}}}`},
		"claim a running one":       {pod: poolPod(ns, v1alpha1.PodRunning), patch: `{"metadata":{` + claimMetadata + `}}`},
		"idle again":                {pod: poolPod(ns, v1alpha1.PodRunning), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"idle"}}}`},
		"warming to running":        {pod: poolPod(ns, v1alpha1.PodWarming), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"running"}}}`},
		"another sandbox's":         {pod: poolPod(ns, v1alpha1.PodRunning), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"stopping","sandlane.dev/sandbox-id":"x"}}}`},
		"into another pool":         {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"stopping","sandlane.dev/pool":"x"}}}`},
		"out of the pool":           {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"stopping","sandlane.dev/pool":null}}}`},
		"another label":             {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"running","team":"b"}}}`},
		"one label less":            {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"running","team":null}}}`},
		"another address":           {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"running"},"annotations":{"sandlane.dev/address":"10.0.0.2"}}}`},
		"an annotation of others":   {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"running"},"annotations":{"example.com/inject":"yes"}}}`},
		"without finalizer":         {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"finalizers":null,"labels":{"sandlane.dev/phase":"stopping"}}}`},
		"with an owner":             {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"x"}],"labels":{"sandlane.dev/phase":"stopping"}}}`},
		"another image, running":    {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"running"}},"spec":{"containers":[{"name":"main","image":"local/other"}]}}`},
		"another image as it stops": {pod: poolPod(ns, v1alpha1.PodRunning), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"stopping"}},"spec":{"containers":[{"name":"main","image":"local/other"}]}}`},
		"another init image":        {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"starting"}},"spec":{"initContainers":[{"name":"init","image":"local/other"}]}}`},
		"a deadline":                {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"starting"}},"spec":{"activeDeadlineSeconds":5}}`},
		"a toleration":              {pod: poolPod(ns, v1alpha1.PodIdle), patch: `{"metadata":{"labels":{"sandlane.dev/phase":"starting"}},"spec":{"tolerations":[` + keptTolerations + `{"key":"a","operator":"Exists"}]}}`},
		"somebody else's pod": {pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: kubetest.Name("other")}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}},
		}, patch: `{"metadata":{"labels":{"sandlane.dev/phase":"stopping"}}}`},
		"somebody else's pod, labelled as ours": {pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: kubetest.Name("other")}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}},
		}, patch: `{"metadata":{"labels":{"sandlane.dev/phase":"stopping","sandlane.dev/pool":"pool"}},"spec":{"containers":[{"name":"main","image":"evil"}]}}`},
		"in a namespace without pools": {pod: poolPod("kube-system", v1alpha1.PodIdle), patch: `{"metadata":{` + claimMetadata + `}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			admin, gateway := kubetest.Client(t), as(t, o, access.Gateway)
			create(t, admin, test.pod)
			write := func(c client.Client) error {
				return c.Patch(t.Context(), test.pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(test.patch)))
			}
			check(t, write(gateway), test.ok)
			if !test.ok { // it is refused for whose it is
				if err := write(admin); err != nil {
					t.Errorf("the administrator: %v", err)
				}
			}
		})
	}
}

// check wants a write to be allowed, or denied with 403.
func check(t *testing.T, err error, ok bool) {
	t.Helper()
	switch {
	case ok && err != nil:
		t.Errorf("refused: %v", err)
	case !ok && err == nil:
		t.Error("allowed")
	case !ok && !apierrors.IsForbidden(err):
		t.Errorf("refused with %v, want 403", err)
	default:
		t.Log(err)
	}
}

func TestGatewayMakesAndDeletesNoPods(t *testing.T) {
	o := limited(t)
	gateway, pod := as(t, o, access.Gateway), poolPod(kubetest.Namespace(t), v1alpha1.PodIdle)
	check(t, gateway.Create(t.Context(), pod.DeepCopy()), false)
	create(t, kubetest.Client(t), pod)
	check(t, gateway.Delete(t.Context(), pod), false)
}
