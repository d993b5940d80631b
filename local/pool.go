package local

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// The pool of the demo.
const (
	echoNamespace = metav1.NamespaceDefault
	echoName      = "echo"
	echoImage     = "local/echo"
	echoPort      = 8000
)

// echoPool is the pool that a first request without a pool claims from.
func echoPool(replicas int, idle time.Duration) *v1alpha1.SandboxPool {
	field := func(env, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: env, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	return &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: echoNamespace, Name: echoName},
		Spec: v1alpha1.SandboxPoolSpec{
			Replicas:     int32(replicas), //nolint:gosec // Validate bounds it
			IdleTimeout:  &metav1.Duration{Duration: idle},
			FirstRequest: &v1alpha1.FirstRequest{Access: v1alpha1.AccessPublic},
			Template: &v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				AutomountServiceAccountToken:  new(false),
				EnableServiceLinks:            new(false),
				TerminationGracePeriodSeconds: new(int64(1)),
				Containers: []corev1.Container{{
					Name:  "main",
					Image: echoImage,
					Ports: []corev1.ContainerPort{{ContainerPort: echoPort}},
					Env: []corev1.EnvVar{
						field("POD_NAME", "metadata.name"), field("POD_UID", "metadata.uid"),
						field("POD_NAMESPACE", "metadata.namespace"), field("POD_IP", "status.podIP"),
					},
					ReadinessProbe: &corev1.Probe{
						ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(echoPort)}},
						PeriodSeconds: 1,
					},
				}},
			}}},
		},
	}
}

// warmTimeout is how long `up` waits for warm pods.
const warmTimeout = time.Minute

// waitWarm waits until the pool has as many idle pods as it wants. Some that
// do not come up are a warning; none at all is an error.
func waitWarm(ctx context.Context, api client.Client, wanted int, progress func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	told := -1
	for idle := 0; idle < wanted; {
		select {
		case <-ctx.Done():
			if idle > 0 {
				progress(fmt.Sprintf("warning: only %d of %d pods of the pool %s are warm after %s: see `sandlane kubectl get pods`", idle, wanted, echoName, warmTimeout))
				return nil
			}
			return fmt.Errorf("no pod of the pool %s became warm (%w)%s", echoName, ctx.Err(), whyNotWarm(api))
		case <-tick.C:
		}
		var pods corev1.PodList
		if err := api.List(ctx, &pods, client.InNamespace(echoNamespace), client.MatchingLabels{v1alpha1.LabelPool: echoName}); err != nil {
			continue // a restarting API server; the time is bounded
		}
		idle = 0
		for i := range pods.Items {
			if v1alpha1.PhaseOf(&pods.Items[i]) == v1alpha1.PodIdle {
				idle++
			}
		}
		if idle != told {
			progress(fmt.Sprintf("%d of %d pods are warm", idle, wanted))
			told = idle
		}
	}
	return nil
}

// whyNotWarm says what the pods' containers wait for, if they say so.
func whyNotWarm(api client.Client) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(echoNamespace), client.MatchingLabels{v1alpha1.LabelPool: echoName}); err != nil {
		return ": the API server does not answer"
	}
	if len(pods.Items) == 0 {
		return ": there are none; see `sandlane logs controller`"
	}
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason != "" {
				return fmt.Sprintf(": %s waits: %s %s", pod.Name, w.Reason, w.Message)
			}
		}
	}
	return fmt.Sprintf(": %s is %s; see `sandlane logs node`", pods.Items[0].Name, v1alpha1.PhaseOf(&pods.Items[0]))
}
