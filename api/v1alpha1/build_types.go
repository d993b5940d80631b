package v1alpha1

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TemplateBuild makes an image from an image, and a pool of it. The image is in the
// template registry; this is the record of how it was made.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tb
// +kubebuilder:printcolumn:name="Template",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.status.image`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')",message="the name of a build is a UUID"
type TemplateBuild struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TemplateBuildSpec `json:"spec"`
	// +optional
	Status TemplateBuildStatus `json:"status,omitempty"`
}

// TemplateBuildSpec says what is built. It is written when the build is requested, and once
// more, with the recipe, when it is started.
//
// +kubebuilder:validation:XValidation:rule="self.templateID == oldSelf.templateID && self.name == oldSelf.name && self.tags == oldSelf.tags && self.cpuCount == oldSelf.cpuCount && self.memoryMB == oldSelf.memoryMB",message="of a build's spec only the recipe can be added"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.recipe) || has(self.recipe)",message="a build that was started has a recipe"
type TemplateBuildSpec struct {
	// TemplateID is the same for all builds of one name in a namespace.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{20}$`
	TemplateID string `json:"templateID"`
	// Name is what users call the template.
	// +kubebuilder:validation:Pattern=`^[a-z0-9_-]{1,128}$`
	Name string `json:"name"`
	// Tags are what the build gets when it is Ready. The tag "default" is what a name without
	// a tag means.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9_.-]{1,64}$`
	Tags []string `json:"tags"`
	// CPUCount and MemoryMB are what the builder and the sandboxes of the template get.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	CPUCount int32 `json:"cpuCount"`
	// +kubebuilder:validation:Minimum=64
	// +kubebuilder:validation:Maximum=262144
	MemoryMB int32 `json:"memoryMB"`
	// Recipe is what is done. Unset: the build was requested, and is not started.
	// +optional
	Recipe *TemplateRecipe `json:"recipe,omitempty"`
}

// TemplateRecipe is what makes the image of a build.
type TemplateRecipe struct {
	// From is the base: an image; of a template the image that it had when the build was started.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	From string `json:"from"`
	// FromTemplate is the template, with its tag, whose image From is. Its variables, folder and
	// user are those of the first step.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FromTemplate string `json:"fromTemplate,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Steps []TemplateStep `json:"steps,omitempty"`
	// StartCommand is run by a shell in each sandbox, before it is claimed.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	StartCommand string `json:"startCommand,omitempty"`
	// ReadyCommand is run by a shell until it succeeds; before that no sandbox is claimed.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	ReadyCommand string `json:"readyCommand,omitempty"`
}

// TemplateStepType is what a step of a recipe does.
// +kubebuilder:validation:Enum=RUN;COPY;ENV;WORKDIR;USER
type TemplateStepType string

// The types of steps.
const (
	// StepRun: a shell command, and optionally its user.
	StepRun TemplateStepType = "RUN"
	// StepCopy: source, destination, and optionally user and mode of uploaded files.
	StepCopy TemplateStepType = "COPY"
	// StepEnv: names and values of variables, in turns.
	StepEnv TemplateStepType = "ENV"
	// StepWorkdir: the folder in which the next commands begin.
	StepWorkdir TemplateStepType = "WORKDIR"
	// StepUser: the user of the next commands.
	StepUser TemplateStepType = "USER"
)

// TemplateStep is one step of a recipe.
type TemplateStep struct {
	Type TemplateStepType `json:"type"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=131072
	Args []string `json:"args,omitempty"`
	// Files names an upload, of COPY alone.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Files string `json:"files,omitempty"`
}

// BuildPhase is a build's state in one word; empty counts as Waiting.
// +kubebuilder:validation:Enum=Waiting;Building;Starting;Ready;Failed
type BuildPhase string

// The phases of builds, in order.
const (
	// BuildWaiting: it is requested, and files may be uploaded.
	BuildWaiting BuildPhase = "Waiting"
	// BuildBuilding: a gateway runs its steps.
	BuildBuilding BuildPhase = "Building"
	// BuildStarting: the image is made, and the first pod of its pool starts.
	BuildStarting BuildPhase = "Starting"
	// BuildReady: sandboxes can be made.
	BuildReady BuildPhase = "Ready"
	// BuildFailed: it ended otherwise.
	BuildFailed BuildPhase = "Failed"
)

// Steps of a build besides the numbers of its recipe's.
const (
	// BuildStepBase: finding and copying the base, and starting the builder.
	BuildStepBase = "base"
	// BuildStepFinalize: making the image, and starting the template's first pod.
	BuildStepFinalize = "finalize"
)

// TemplateBuildStatus is how far a build has come.
//
// +kubebuilder:validation:XValidation:rule="!has(self.phase) || !(self.phase in ['Starting', 'Ready']) || has(self.image)",message="a build that is made has an image"
type TemplateBuildStatus struct {
	// +optional
	Phase BuildPhase `json:"phase,omitempty"`
	// Gateway is the gateway that runs the steps.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Gateway string `json:"gateway,omitempty"`
	// Heartbeat is when that gateway last wrote that it does.
	// +optional
	Heartbeat *metav1.Time `json:"heartbeat,omitempty"`
	// PhaseAt is when the phase was written.
	// +optional
	PhaseAt *metav1.Time `json:"phaseAt,omitempty"`
	// Base is what the builder begins with, by digest: the copy of the base in the template
	// registry, or what an earlier build's steps have made of it. Unset: there is no builder.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Base string `json:"base,omitempty"`
	// Image is what was built, by digest.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
	// Stored is what the template registry keeps for the build: layers of its base and of its
	// steps, and uploads. It is written before the bytes are.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	Stored []StoredLayer `json:"stored,omitempty"`
	// Tags are those that the build has had, each with the time from which on: of several
	// builds of a template the last has a tag.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Tags []BuildTag `json:"tags,omitempty"`
	// Step is what is being done: base, the number of a step, or finalize.
	// +optional
	Step string `json:"step,omitempty"`
	// Message says why it failed, at Step.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// Log is what the build has printed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	Log []BuildLogEntry `json:"log,omitempty"`
}

// StoredLayer is a layer in the template registry.
type StoredLayer struct {
	// Name is the layer's digest; of an upload its tag.
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// Size is in bytes, as they are kept.
	// +kubebuilder:validation:Minimum=0
	Size int64 `json:"size"`
}

// BuildTag is a tag of a build.
type BuildTag struct {
	// +kubebuilder:validation:Pattern=`^[a-z0-9_.-]{1,64}$`
	Name string           `json:"name"`
	At   metav1.MicroTime `json:"at"`
}

// BuildLogEntry is a line of a build's log.
type BuildLogEntry struct {
	At metav1.MicroTime `json:"at"`
	// +kubebuilder:validation:Enum=debug;info;warn;error
	Level string `json:"level"`
	// +optional
	Step string `json:"step,omitempty"`
	// +kubebuilder:validation:MaxLength=8192
	Text string `json:"text"`
}

// TemplateBuildList is a list of TemplateBuilds.
//
// +kubebuilder:object:root=true
type TemplateBuildList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TemplateBuild `json:"items"`
}

// BuilderPool and TemplatePool are the names of the pools of a build: that of its builder, and
// that of the sandboxes that begin with its image.
func BuilderPool(build string) string { return "build-" + build }

// TemplatePool is the name of the pool of a template: see BuilderPool.
func TemplatePool(build string) string { return "template-" + build }

// DefaultTag is the tag that a template's name without one means.
const DefaultTag = "default"

// TemplateAliases are the names that a tag gives a build of a template, from the template's own
// names: its name, and its ID.
func TemplateAliases(tag string, names ...string) []string {
	all := slices.Clone(names)
	if tag != DefaultTag {
		for i := range all {
			all[i] += ":" + tag
		}
	}
	return all
}

// TagHolders returns the builds of one template that have its tags, by tag: of several Ready
// builds that were given a tag the one that was given it last has it.
func TagHolders(builds []TemplateBuild) map[string]*TemplateBuild {
	holders, since := map[string]*TemplateBuild{}, map[string]metav1.MicroTime{}
	for i := range builds {
		b := &builds[i]
		if b.Status.Phase != BuildReady || b.DeletionTimestamp != nil {
			continue
		}
		for _, tag := range b.Status.Tags {
			later := tag.At.Compare(since[tag.Name].Time)
			if holder := holders[tag.Name]; holder == nil || later > 0 || later == 0 && strings.Compare(b.Name, holder.Name) > 0 {
				holders[tag.Name], since[tag.Name] = b, tag.At
			}
		}
	}
	return holders
}

// NextTagTime is now, or a time after those at which any of the builds was given one of the tags:
// the clock that wrote those may be ahead.
func NextTagTime(builds []TemplateBuild, tags []string, now time.Time) metav1.MicroTime {
	now = now.Truncate(time.Microsecond)
	for i := range builds {
		for _, tag := range builds[i].Status.Tags {
			if slices.Contains(tags, tag.Name) && !now.After(tag.At.Time) {
				now = tag.At.Add(time.Microsecond)
			}
		}
	}
	return metav1.NewMicroTime(now)
}
