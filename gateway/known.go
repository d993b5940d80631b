package gateway

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/routing"
)

// known returns what the index knows of a running sandbox, for package activation.
func (g *gateway) known(id string) *activation.Known {
	a := g.own.Correct(g.index.Resolve(id))
	if a.State != routing.Running {
		return nil
	}
	s, pod := sketch(id, a)
	return &activation.Known{
		Namespace: a.Namespace, Env: a.Env, Pool: a.Pool, Team: a.Team, Route: a.Route,
		Ready: func(ctx context.Context) error { return g.readiness.InitOnce(ctx, s, pod) },
	}
}

// sketch makes a Sandbox and a pod that have the fields which agent.Readiness.InitOnce reads.
func sketch(id string, a routing.Answer) (*v1alpha1.Sandbox, *corev1.Pod) {
	s := &v1alpha1.Sandbox{}
	s.Name, s.UID = id, a.UID
	s.Spec.Namespace, s.Spec.Env, s.Spec.Pool, s.Spec.Team = a.Namespace, a.Env, a.Pool, a.Team
	s.Spec.Network = v1alpha1.SandboxNetwork{Private: a.Private, Unsecured: a.Unsecured}
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: a.ClaimID, PodName: a.PodName, PodUID: a.PodUID}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = a.Namespace, a.PodName, types.UID(a.PodUID)
	pod.ResourceVersion = strconv.FormatUint(a.Route.PodRV, 10)
	pod.Labels = map[string]string{v1alpha1.LabelPhase: string(v1alpha1.PodRunning), v1alpha1.LabelSandboxID: id, v1alpha1.LabelInitKey: a.InitKey}
	pod.Annotations = map[string]string{v1alpha1.AnnotationClaim: a.ClaimID, v1alpha1.AnnotationAddress: a.Route.Addr.String()}
	pod.Status.PodIP = a.Route.Addr.String()
	if a.Sandboxd {
		pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}}}
	}
	return s, pod
}
