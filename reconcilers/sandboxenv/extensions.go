package sandboxenv

import "github.com/sandlane/sandlane/api/v1alpha1"

// The interface of this file is for programs that embed the reconcilers. Nothing in this
// repository implements it: `sandlane controller` leaves its field nil. So it is with
// sandboxpool.PluginManager, which this package asks as well.

// EnvRouterSync is for programs that route by envs in the same process. OnEnvUpsert is
// called at the end of each reconcile that succeeded; it must return at once and not
// change the env.
type EnvRouterSync interface {
	OnEnvUpsert(env *v1alpha1.SandboxEnv)
}
