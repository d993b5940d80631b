package local

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/local/node"
)

const (
	// baseName is the template that E2B's SDKs ask for when told nothing else.
	baseName  = "base"
	baseImage = "local/base"
	// basePort is sandboxd's. A gateway knows by its number in a pod's template
	// that the pool runs sandboxd; the name is for people.
	basePort     = v1alpha1.SandboxdPort
	basePortName = "envd"
	// baseMemory keeps one sandbox from taking the whole machine.
	baseMemory = "1Gi"
)

// basePool is the pool of E2B's sandboxes: sandboxd over this machine's tools. It
// has no idle timeout: users of E2B expect no end before the one they set.
func basePool(replicas int, isolation node.Isolation) *v1alpha1.SandboxPool {
	main := corev1.Container{
		Image:          baseImage,
		Ports:          []corev1.ContainerPort{{Name: basePortName, ContainerPort: basePort}},
		Resources:      corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(baseMemory)}},
		ReadinessProbe: httpProbe("/health", basePort),
	}
	if isolation == node.IsolationNone {
		// All pods share the machine's ports and its users: each gets the port on
		// its own address alone, and the pod's folder in place of the home of the
		// user who started `up`. The pod has a second to stop, sandboxd half of it.
		main.Env = append(main.Env, fieldEnv("POD_IP", "status.podIP"),
			corev1.EnvVar{Name: commandEnv, Value: strings.Join(append(node.PlainEnv(), baseImageEnv[commandEnv]), ",")})
		main.Args = []string{fmt.Sprintf("--address=$(POD_IP):%d", basePort), "--home=.", "--grace=500ms"}
	} else {
		main.Args = []string{"--sudo"} // as E2B's templates have one
	}
	pool := newPool(baseName, replicas, nil, main)
	pool.Spec.Pause = &v1alpha1.PoolPause{Modes: []v1alpha1.PauseMode{v1alpha1.PauseFreeze, v1alpha1.PauseHibernate}}
	return pool
}

// baseImageEnv are the variables of the image, and the names of those that
// commands get: text is UTF-8 whatever the locale of the user of `up`.
var baseImageEnv = map[string]string{"LANG": "C.UTF-8", commandEnv: "LANG"}

// commandEnv names the variables that sandboxd hands on to commands.
const commandEnv = "SANDBOXD_ENV"
