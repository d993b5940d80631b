package check

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Addresses returns where a Service is and where each of its ready pods is, as
// host:port, by the Service's port of that name.
func Addresses(ctx context.Context, api client.Reader, namespace, name, port string) (service string, pods []string, err error) {
	var s corev1.Service
	if err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s); err != nil {
		return "", nil, fmt.Errorf("read the Service %s/%s: %w", namespace, name, err)
	}
	for _, p := range s.Spec.Ports {
		if p.Name == port {
			service = net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(p.Port)))
		}
	}
	if net.ParseIP(s.Spec.ClusterIP) == nil || service == "" {
		return "", nil, fmt.Errorf("the Service %s/%s has no address, or no port %s", namespace, name, port)
	}
	var found discoveryv1.EndpointSliceList
	if err := api.List(ctx, &found, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: name}); err != nil {
		return "", nil, fmt.Errorf("list the pods of the Service %s/%s: %w", namespace, name, err)
	}
	for _, slice := range found.Items {
		pods = append(pods, ready(&slice, port)...)
	}
	slices.Sort(pods)
	return service, slices.Compact(pods), nil
}

// ready are a slice's addresses that get requests; those that end get none.
func ready(slice *discoveryv1.EndpointSlice, port string) []string {
	var out []string
	for _, p := range slice.Ports {
		if p.Name == nil || *p.Name != port || p.Port == nil {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, address := range e.Addresses {
				out = append(out, net.JoinHostPort(address, strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return out
}
