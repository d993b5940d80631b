package v1alpha1

// Conditions of Sandboxes, besides SandboxConditionPaused.
const (
	// SandboxConditionReady is True while the sandbox runs. Its reason is the phase, or
	// ReasonStartContainerFailed.
	SandboxConditionReady = "Ready"
	// SandboxConditionInplaceUpdated is True once the pod runs the images that the sandbox
	// asks for. Absent for a sandbox that asks for none.
	SandboxConditionInplaceUpdated = "InplaceUpdated"
)

const (
	// ReasonStartContainerFailed: the sandbox has ended since its pod could not start it.
	ReasonStartContainerFailed = "StartContainerFailed"
	// ReasonInplaceUpdating and ReasonInplaceUpdated are those of
	// SandboxConditionInplaceUpdated.
	ReasonInplaceUpdating = "InplaceUpdating"
	ReasonInplaceUpdated  = "InplaceUpdated"
)
