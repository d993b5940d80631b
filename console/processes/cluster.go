package processes

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// What the chart calls its pods, their containers and the port of metrics.
const (
	selector    = "app in (sandlane-gateway,sandlane-controller,sandlane-egress)"
	gatewayApp  = "sandlane-gateway"
	metricsPort = "metrics"
)

// mostLog bounds what is read of one container's log. It has room for the lines that are
// asked for, since the kubelet cuts off the newest.
const mostLog = 16 << 20

// InCluster finds the pods of gateways, controllers and egress processes in the system namespace, by the
// chart's labels. A gateway is named as its Lease is: by its pod's name and UID.
func InCluster(api kubernetes.Interface, systemNamespace string) Finder {
	return func(ctx context.Context) ([]Process, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		pods, err := api.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, fmt.Errorf("list the pods of gateways and controllers: %w", err)
		}
		var all []Process
		for i := range pods.Items {
			all = append(all, ofPod(api, &pods.Items[i])...)
		}
		return all, nil
	}
}

// ofPod is a process for each container. The one that has a port for metrics has the name
// of the pod or gateway alone.
func ofPod(api kubernetes.Interface, pod *corev1.Pod) []Process {
	var all []Process
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		p := Process{Name: pod.Name + "/" + c.Name, ReadLog: func(ctx context.Context, lines int) ([]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			text, err := api.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
				Container: c.Name, TailLines: new(int64(lines)), LimitBytes: new(int64(mostLog)),
			}).DoRaw(ctx)
			if err != nil {
				return nil, fmt.Errorf("read the log of pod %s, container %s: %w", pod.Name, c.Name, err)
			}
			return text, nil
		}}
		for _, port := range c.Ports {
			if port.Name != metricsPort {
				continue
			}
			p.Name, p.Gateway = pod.Name, pod.Labels["app"] == gatewayApp
			if p.Gateway {
				p.Name += "-" + string(pod.UID)
			}
			number := strconv.Itoa(int(port.ContainerPort)) // a pod's proxy knows no names of ports
			p.ReadMetrics = func(ctx context.Context, path string) ([]byte, error) {
				text, err := api.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, number, path, nil).DoRaw(ctx)
				if err != nil {
					return nil, fmt.Errorf("read the metrics of pod %s: %w", pod.Name, err)
				}
				return text, nil
			}
		}
		all = append(all, p)
	}
	return all
}
