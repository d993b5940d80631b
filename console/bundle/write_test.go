package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console/bundle"
	"github.com/sandlane/sandlane/console/explain"
	"github.com/sandlane/sandlane/console/processes"
)

// fixed answers lists from memory; of all other kinds there is nothing, and templates may
// not be listed.
type fixed struct {
	client.Reader
	pools     []v1alpha1.SandboxPool
	sandboxes []v1alpha1.Sandbox
	builds    []v1alpha1.TemplateBuild
	pods      []corev1.Pod
	events    []corev1.Event
}

func (f fixed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.SandboxPoolList:
		list.Items = f.pools
	case *v1alpha1.SandboxList:
		list.Items = f.sandboxes
	case *v1alpha1.TemplateBuildList:
		list.Items = f.builds
	case *corev1.PodList:
		list.Items = f.pods
	case *corev1.EventList:
		list.Items = f.events
	case *v1alpha1.SandboxTemplateList:
		return errors.New("templates: forbidden")
	}
	return nil
}

// secret is what must not be in a bundle, wherever a user puts it.
const secret = "hunter2hunter2"

func TestNoSecretsInABundle(t *testing.T) {
	hook := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", secret}}}
	spec := corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d", VolumeAttributes: map[string]string{"k": secret}}}}},
		Containers: []corev1.Container{{
			Name: "main", Image: "registry/image:1", Command: []string{secret}, Args: []string{"--password", secret}, Lifecycle: &corev1.Lifecycle{PostStart: hook},
			Env:           []corev1.EnvVar{{Name: "API_KEY", Value: secret}, {Name: "REF", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{HTTPHeaders: []corev1.HTTPHeader{{Name: "X", Value: secret}}}}},
		}},
	}
	meta := metav1.ObjectMeta{
		Name: "web", Namespace: "ns", UID: "u", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: secret}},
		Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": secret, v1alpha1.AnnotationPostStartHooks: secret, v1alpha1.AnnotationAddress: "10.0.0.9",
		},
	}
	api := fixed{
		pools: []v1alpha1.SandboxPool{{ObjectMeta: meta, Spec: v1alpha1.SandboxPoolSpec{Template: &v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{ObjectMeta: meta, Spec: spec}}}}},
		sandboxes: []v1alpha1.Sandbox{{ObjectMeta: meta, Spec: v1alpha1.SandboxSpec{
			Env: "an-env", Metadata: map[string]string{"user": secret}, End: &v1alpha1.End{Message: "token=" + secret},
		}}},
		builds: []v1alpha1.TemplateBuild{{
			ObjectMeta: meta,
			Spec: v1alpha1.TemplateBuildSpec{Name: "a-template", Recipe: &v1alpha1.TemplateRecipe{
				From: "registry/base:2", StartCommand: secret, ReadyCommand: "curl -u " + secret,
				Steps: []v1alpha1.TemplateStep{{Type: v1alpha1.StepEnv, Args: []string{"NAME", secret}}, {Type: v1alpha1.StepRun, Args: []string{"echo " + secret}}},
			}},
			Status: v1alpha1.TemplateBuildStatus{Phase: v1alpha1.BuildFailed, Step: "2", Message: "exit status 1: " + secret, Log: []v1alpha1.BuildLogEntry{{Level: "info", Text: secret}}},
		}},
		pods: []corev1.Pod{{ObjectMeta: meta, Spec: spec, Status: corev1.PodStatus{Message: "authorization: Bearer " + secret}}},
		events: []corev1.Event{
			{Message: "pulled", InvolvedObject: corev1.ObjectReference{UID: "u"}},
			{Message: "anothers-event", InvolvedObject: corev1.ObjectReference{UID: "x"}},
		},
	}
	log := "all is well\npassword: " + secret + "\nkey e2b_" + secret + "\nAuthorization: Bearer " + secret + "\n" +
		"-----BEGIN EC PRIVATE KEY-----\n" + secret + "\n-----END EC PRIVATE KEY-----\neyJh.eyJ" + secret + ".sig\n"
	find := func(context.Context) ([]processes.Process, error) {
		return []processes.Process{
			{
				Name: "gateway", Gateway: true, ReadLog: func(context.Context, int) ([]byte, error) { return []byte(log), nil },
				ReadMetrics: func(context.Context, string) ([]byte, error) { return []byte("sandlane_metric 1\n"), nil },
			},
			{Name: "other", ReadLog: func(context.Context, int) ([]byte, error) { return nil, errors.New("no log: Bearer " + secret) }},
		}, nil
	}
	var out bytes.Buffer
	if err := bundle.Write(t.Context(), explain.Reader{API: api, SystemNamespace: "system", Processes: find}, "v1", &out); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, &out)
	all := ""
	for name, text := range files {
		all += text
		for line := range strings.Lines(text) {
			if strings.Contains(line, secret) {
				t.Errorf("%s has a secret: %s", name, line)
			}
		}
	}
	for _, want := range []string{"all is well", "sandlane_metric 1", "API_KEY", "secretKeyRef", "registry/image:1", "10.0.0.9", "an-env", "a-template", "registry/base:2", "exit status 1", "pulled", "templates: forbidden", "log of other", "v1"} {
		if !strings.Contains(all, want) {
			t.Errorf("the bundle lacks %q", want)
		}
	}
	if strings.Contains(all, "anothers-event") {
		t.Error("the bundle has Events about objects of others")
	}
}

func unpack(t *testing.T, in io.Reader) map[string]string {
	t.Helper()
	compressed, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(compressed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}
