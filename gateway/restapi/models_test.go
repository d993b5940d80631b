package restapi

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// modelsFile has the fields of each model of the newest SDK; read from the SDK's package.
const modelsFile = "testdata/models-2.63.0.json"

// schemaOf are the SDK's models that this API's operations take and give, by the schemas here.
var schemaOf = map[string]string{
	"NewSandbox": "NewSandbox", "NewSandboxV2": "NewSandboxV2", "ConnectSandbox": "ConnectSandbox", "ConnectSandboxV2": "ConnectSandboxV2",
	"ResumedSandbox": "ResumedSandbox", "SandboxPauseRequest": "SandboxPause", "SandboxTimeoutRequest": "SandboxTimeout",
	"SandboxRefreshRequest": "SandboxRefresh", "SandboxSnapshotRequest": "NewSnapshot", "SandboxNetworkConfig": "SandboxNetwork",
	"SandboxNetworkUpdateConfig": "SandboxNetworkUpdate", "Sandbox": "Sandbox", "SandboxDetail": "SandboxDetail", "ListedSandbox": "ListedSandbox",
	"SandboxMetric": "SandboxMetric", "SandboxesWithMetrics": "SandboxesWithMetrics", "SandboxLog": "SandboxLog", "SandboxLogs": "SandboxLogs",
	"SandboxLogEntry": "SandboxLogEntry", "SandboxLogsV2Response": "SandboxLogsV2", "SnapshotInfo": "Snapshot", "Template": "Template",
	"TemplateAliasResponse": "TemplateAlias", "Error": "Error", "BuildLogEntry": "BuildLogEntry", "BuildStatusReason": "BuildReason",
	"TemplateBuildFileUpload": "TemplateFiles", "TemplateBuildInfo": "TemplateBuildInfo", "TemplateBuildRequestV3": "TemplateBuildRequest",
	"TemplateBuildStartV2": "TemplateBuildStart", "TemplateRequestResponseV3": "RequestedTemplateBuild", "TemplateStep": "TemplateStep",
	"GeneralRegistry": "ImageRegistry", "NewSecret": "NewSecret", "Secret": "Secret", "SecretUpdate": "SecretUpdate",
}

// harmless are fields that are left out, and why no program misses them.
var harmless = map[string]string{
	"SandboxDetail envdUnresponsiveAtPause": "a sandbox whose agent does not answer is not paused",
	"ListedSandbox envdUnresponsiveAtPause": "the same",
	"Template isDefault":                    "there are no default templates",
	"Template description":                  "SDKs do not require it",
	"TemplateBuildFileUpload headers":       "an upload needs none",
	"Error error_code":                      "SDKs do not require it",
}

// insideOf are models that stand in a field of another, whose schema has them without a name,
// or which is refused as a whole.
var insideOf = []string{
	"SandboxAutoResumeConfig", "SandboxLifecycle", "SandboxLogEntryFields", "McpType0", "SandboxIam", "SandboxIamToken", "SandboxIamTokens",
	"SandboxEgressProxyConfigType0", "SandboxEgressProxyTLSConfigType0", "SandboxNetworkConfigRules", "SandboxNetworkUpdateConfigRules",
	"SandboxNetworkRule", "SandboxNetworkTransform", "SandboxNetworkTransformHeaders", "SandboxVolumeMount", "SecretMetadata", "TeamUser",
}

// unsupportedModels are those of operations that are answered with 501.
var unsupportedModels = []string{
	"AWSRegistry", "AssignTemplateTagsRequest", "AssignedTemplateTags", "DeleteTemplateTagsRequest",
	"GCPRegistry", "NewVolume", "SandboxForkRequest", "SandboxForkResult",
	"TemplateBuild", "TemplateBuildFileUploadHeaders", "TemplateBuildLogsResponse", "TemplateTag", "TemplateTagAssignment",
	"TemplateTagAssignmentsResponse", "TemplateTagExistsResponse", "TemplateTagGroup", "TemplateTagGroupsResponse", "TemplateTagsCountResponse",
	"TemplateUpdateRequest", "TemplateUpdateResponse", "TemplateWithBuilds", "Volume", "VolumeAndToken",
}

// Each field of the newest SDK's models is in openapi.yaml, where it is done or refused by its
// name, or is known to be harmless.
func TestFieldsOfTheNewestSDK(t *testing.T) {
	text, err := os.ReadFile(modelsFile)
	if err != nil {
		t.Fatal(err)
	}
	var models map[string][]string
	if err := json.Unmarshal(text, &models); err != nil {
		t.Fatal(err)
	}
	doc, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	unused := map[string]bool{}
	for field := range harmless {
		unused[field] = true
	}
	for model, fields := range models {
		name, taken := schemaOf[model]
		if !taken {
			if !slices.Contains(insideOf, model) && !slices.Contains(unsupportedModels, model) {
				t.Errorf("the model %s is on no list", model)
			}
			continue
		}
		named := properties(doc.Components.Schemas[name].Value)
		for _, field := range fields {
			_, spared := harmless[model+" "+field]
			delete(unused, model+" "+field)
			if (named[field] != nil) == spared {
				t.Errorf("%s of %s: in openapi.yaml %v, harmless %v", field, model, named[field] != nil, spared)
			}
		}
	}
	if len(models) < 70 || len(unused) > 0 {
		t.Errorf("%d models; harmless fields of none: %v", len(models), unused)
	}
}

// Operators see what users ask for in vain: refused fields and operations by name, all that is
// ignored as one.
func TestUnsupportedIsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := newServer(t, newFake(), func(o *Options) { o.Registerer = reg })
	const create, resume, list = "POST /v2/sandboxes", "POST /sandboxes/{sandboxID}/resume", "GET /v2/sandboxes"
	for _, c := range []struct{ method, path, body, operation, field string }{
		{"POST", "/v2/sandboxes", `{"templateID":"base","mcp":{"x":{}}}`, create, "mcp"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","network":{"allowOut":["example.com"]}}`, create, "network.allowOut"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","hunter2":1}`, create, otherField},
		{"POST", "/v2/sandboxes", `{"templateID":"base","network":{"hunter2":1}}`, create, otherField},
		{"POST", "/v2/sandboxes", `{"templateID":"base","metadata":{"mine":"1"},"envVars":{"A":"1"},"autoResume":{"enabled":false}}`, "", ""},
		{"POST", "/sandboxes/" + idA + "/resume", `{"hunter2":1}`, resume, otherField},
		{"GET", "/v2/sandboxes?hunter2=1", ``, list, otherField},
		{"GET", "/v2/sandboxes?limit=1&state=running", ``, "", ""},
		{"POST", "/sandboxes/" + idA + "/fork", `{}`, "POST /sandboxes/{sandboxID}/fork", allOfIt},
	} {
		before := testutil.CollectAndCount(s.metrics.unsupported)
		of := func() float64 {
			if c.operation == "" {
				return 1
			}
			return testutil.ToFloat64(s.metrics.unsupported.WithLabelValues(c.operation, c.field))
		}
		was := of()
		ask(t, s, c.method, c.path, keyA, c.body)
		switch now := testutil.CollectAndCount(s.metrics.unsupported); {
		case c.operation == "" && now != before:
			t.Errorf("%s %s %s: something was counted", c.method, c.path, c.body)
		case c.operation != "" && of() != was+1:
			t.Errorf("%s %s %s: %v of %s, was %v", c.method, c.path, c.body, of(), c.field, was)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "hunter2" {
					t.Errorf("%s has a client's word as a label", f.GetName())
				}
			}
		}
	}
}
