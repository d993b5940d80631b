package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every object in this package.
var GroupVersion = schema.GroupVersion{Group: "sandlane.dev", Version: "v1alpha1"}

// AddToScheme registers this package's kinds with a scheme.
func AddToScheme(s *runtime.Scheme) error { return addKnownTypes(s) }

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&SandboxTemplate{}, &SandboxTemplateList{},
		&SandboxPool{}, &SandboxPoolList{},
		&SandboxEnv{}, &SandboxEnvList{},
		&Sandbox{}, &SandboxList{},
		&Checkpoint{}, &CheckpointList{},
		&TemplateBuild{}, &TemplateBuildList{},
		&SandboxSecret{}, &SandboxSecretList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
