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
	// ReasonStartContainerFailed is that of a sandbox that has ended since its pod could not
	// start it.
	ReasonStartContainerFailed = "StartContainerFailed"
	// ReasonInplaceUpdating is that of SandboxConditionInplaceUpdated while it is False.
	ReasonInplaceUpdating = "InplaceUpdating"
	// ReasonInplaceUpdated is that of SandboxConditionInplaceUpdated once it is True.
	ReasonInplaceUpdated = "InplaceUpdated"
)
