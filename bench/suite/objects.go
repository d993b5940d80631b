package suite

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// began is when all objects of fleets were made.
var began = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// RunningPod is the i-th pod of a fleet, claimed by sandbox id and running, as large
// as one that the API server, the scheduler and a kubelet have written to.
func RunningPod(id string, i int) *corev1.Pod {
	addr, since := Address(uint32(i)).String(), began.Format(time.RFC3339Nano)
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: podName(i), UID: podUID(i), CreationTimestamp: began,
			Labels: map[string]string{
				v1alpha1.LabelPool: Pool, v1alpha1.LabelPhase: string(v1alpha1.PodRunning), v1alpha1.LabelSandboxID: id,
			},
			Annotations: map[string]string{
				v1alpha1.AnnotationAddress: addr, v1alpha1.AnnotationClaim: claimID(i), v1alpha1.AnnotationTemplateHash: "5c1d7cc9f8",
				v1alpha1.AnnotationClaimedAt: since, v1alpha1.AnnotationStartedAt: since,
			},
			Finalizers: []string{v1alpha1.FinalizerPod},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "main", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
				VolumeMounts: []corev1.VolumeMount{{Name: tokenVolume, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			}},
			Volumes:       []corev1.Volume{token()},
			RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst,
			ServiceAccountName: "default", DeprecatedServiceAccount: "default", SchedulerName: "default-scheduler",
			NodeName: fmt.Sprintf("node-%05d", i%1000), SecurityContext: &corev1.PodSecurityContext{},
			TerminationGracePeriodSeconds: new(int64(30)), PreemptionPolicy: new(corev1.PreemptLowerPriority), Priority: new(int32(0)), EnableServiceLinks: new(true),
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: addr, PodIPs: []corev1.PodIP{{IP: addr}}, HostIP: "198.18.0.1", HostIPs: []corev1.HostIP{{IP: "198.18.0.1"}},
			StartTime: &began, QOSClass: corev1.PodQOSBestEffort,
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", Ready: true, Started: new(true), Image: image,
				ImageID:     "registry.example/python@sha256:" + hex(i, 64),
				ContainerID: "containerd://" + hex(i, 64),
				State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}},
			}},
		},
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: began})
	}
	// managedFields are half of a real pod.
	for manager, fields := range map[string]string{"sandlane": managedBySandlane, "kubelet": managedByKubelet} {
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &began,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
	return pod
}

// RunningSandbox is the sandbox of the i-th pod of a fleet.
func RunningSandbox(id string, i int) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Sandbox"},
		ObjectMeta: metav1.ObjectMeta{
			Name: id, UID: types.UID(fmt.Sprintf("%08x-0000-4000-a000-%012x", i, i+3)), CreationTimestamp: began, Generation: 1,
			Finalizers: []string{v1alpha1.FinalizerSandbox},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "sandlane", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: v1alpha1.GroupVersion.String(), Time: &began,
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(managedSandbox),
			}},
		},
	}
	s.Spec.Namespace, s.Spec.Pool, s.Spec.Team = Namespace, Pool, "team"
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: claimID(i), PodName: podName(i), PodUID: string(podUID(i))}
	s.Status.Phase, s.Status.StartedAt = v1alpha1.SandboxRunning, &began
	s.Status.Address, s.Status.AddressClaim = Address(uint32(i)).String(), claimID(i)
	return s
}

const (
	image       = "registry.example/python:3.13"
	tokenVolume = "kube-api-access-x7k2p"
)

func token() corev1.Volume {
	return corev1.Volume{Name: tokenVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(420)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
			}}},
		},
	}}}
}

func claimID(i int) string   { return fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i+1) }
func podName(i int) string   { return fmt.Sprintf("python-pool-%010d", i) }
func podUID(i int) types.UID { return types.UID(fmt.Sprintf("%08x-0000-4000-9000-%012x", i, i+2)) }

// hex is a text of so many hexadecimal digits.
func hex(i, digits int) string { return fmt.Sprintf("%0"+strconv.Itoa(digits)+"x", i+1) }

const (
	managedBySandlane = `{"f:metadata":{"f:annotations":{".":{},"f:sandlane.dev/address":{},"f:sandlane.dev/claim":{},"f:sandlane.dev/claimed-at":{},` +
		`"f:sandlane.dev/started-at":{},"f:sandlane.dev/template-hash":{}},"f:finalizers":{".":{},"v:\"sandlane.dev/pod\"":{}},"f:labels":{".":{},` +
		`"f:sandlane.dev/phase":{},"f:sandlane.dev/pool":{},"f:sandlane.dev/sandbox-id":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},` +
		`"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},` +
		`"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`
	managedByKubelet = `{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},` +
		`"f:type":{}},"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},` +
		`"k:{\"type\":\"PodReadyToStartContainers\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},` +
		`"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},` +
		`"f:hostIP":{},"f:hostIPs":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"198.18.0.7\"}":{".":{},"f:ip":{}}},"f:startTime":{}}}`
	managedSandbox = `{"f:metadata":{"f:finalizers":{".":{},"v:\"sandlane.dev/sandbox\"":{}}},"f:spec":{".":{},"f:binding":{".":{},"f:claimID":{},` +
		`"f:podName":{},"f:podUID":{}},"f:namespace":{},"f:pool":{},"f:team":{}}}`
)
