package helm

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// rendered are the chart's objects and its notes; a node is not needed.
func rendered(t *testing.T, set string) (objects []map[string]any, notes string) {
	t.Helper()
	if os.Getenv("NODE_BIN") == "" {
		t.Fatal("NODE_BIN is not set: run `make helm-test`")
	}
	helm := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("NODE_BIN"), "helm"),
		"install", "sandlane", chart, "-n", system, "--dry-run=client", "--set-json", set)
	out, err := helm.CombinedOutput()
	if err != nil {
		t.Fatalf("helm install --set-json '%s': %v\n%s", set, err, out)
	}
	_, manifests, hooks := strings.Cut(string(out), "\nHOOKS:\n")
	manifests, notes, told := strings.Cut(manifests, "\nNOTES:\n")
	if !hooks || !told {
		t.Fatalf("helm prints no hooks or no notes:\n%s", out)
	}
	for _, text := range strings.Split(strings.Replace(manifests, "\nMANIFEST:\n", "\n", 1), "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if object != nil {
			objects = append(objects, object)
		}
	}
	return objects, notes
}

// podSpecs are the specs of all pods that objects make, by kind and name.
func podSpecs(objects []map[string]any) map[string]map[string]any {
	specs := map[string]map[string]any{}
	for _, object := range objects {
		kind := object["kind"].(string)
		if kind == "CustomResourceDefinition" {
			continue
		}
		name := object["metadata"].(map[string]any)["name"].(string)
		var find func(any)
		find = func(value any) {
			fields, _ := value.(map[string]any)
			if _, ok := fields["containers"].([]any); ok {
				specs[kind+"/"+name] = fields
				return
			}
			for _, field := range fields {
				find(field)
			}
		}
		find(object)
	}
	return specs
}

// A cluster whose nodes all have a taint runs every pod of the chart: Jobs too go where the
// values say, or where controllers do.
func TestRenderedPodsGoWhereTheValuesSay(t *testing.T) {
	const where = `{"nodeSelector":{"a":"b"},"tolerations":[{"operator":"Exists"}],"affinity":{"nodeAffinity":{}},"priorityClassName":"high"`
	for name, tc := range map[string]struct{ set, jobs string }{
		"as controllers": {`gateway=` + where + `},controller=` + where + `}`, where + `}`},
		"of their own": {
			`gateway=` + where + `},controller={"tolerations":[{"key":"other"}],"priorityClassName":"low"},jobs=` + where + `}`, where + `}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects, _ := rendered(t, tc.set+`,jobs.resources={"limits":{"memory":"300Mi"}},tests.enabled=true`)
			specs := podSpecs(objects)
			jobs := 0
			for at, spec := range specs {
				if at == "Deployment/sandlane-controller" && name == "of their own" {
					continue
				}
				got, err := json.Marshal(map[string]any{
					"nodeSelector": spec["nodeSelector"], "tolerations": spec["tolerations"], "affinity": spec["affinity"], "priorityClassName": spec["priorityClassName"],
				})
				if err != nil {
					t.Fatal(err)
				}
				if !sameJSON(t, string(got), tc.jobs) {
					t.Errorf("%s: %s, want %s", at, got, tc.jobs)
				}
				if strings.HasPrefix(at, "Deployment/") {
					continue
				}
				jobs++
				for _, c := range spec["containers"].([]any) {
					if got, _ := json.Marshal(c.(map[string]any)["resources"]); !strings.Contains(string(got), `"memory":"300Mi"`) {
						t.Errorf("%s: resources %s", at, got)
					}
				}
			}
			if len(specs)-jobs != 2 || jobs != 5 {
				t.Errorf("%d pods' specs, %d of them of Jobs; want 2 Deployments, 4 Jobs and a CronJob", len(specs), jobs)
			}
		})
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	normal := func(s string) string {
		var v any
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			t.Fatalf("%v in %s", err, s)
		}
		out, _ := json.Marshal(v)
		return string(out)
	}
	return normal(a) == normal(b)
}

// Policies of a cluster may refuse objects without a label.
func TestRenderedLabels(t *testing.T) {
	objects, _ := rendered(t, `commonLabels={"owner":"me"},tests.enabled=true,egress={"enabled":true,"serviceAddress":"10.96.0.53"},gateway.autoscaling.enabled=true,`+
		`networkPolicies={"enabled":true,"apiServerRanges":["10.0.0.1/32"]},checkpoints.enabled=true,monitoring={"monitor":"PodMonitor","rules":{"enabled":true},"dashboard":{"enabled":true}}`)
	if len(objects) < 50 {
		t.Errorf("%d objects", len(objects))
	}
	for _, object := range objects {
		metadata := object["metadata"].(map[string]any)
		if labels, _ := metadata["labels"].(map[string]any); labels["owner"] != "me" {
			t.Errorf("%s %s has the labels %v", object["kind"], metadata["name"], labels)
		}
	}
}

// The Service has the port of the protocol that Envoy speaks, and the notes' URLs are
// answered there.
func TestRenderedServiceAndNotes(t *testing.T) {
	for name, tc := range map[string]struct {
		set        string
		port       float64
		want, lack []string
	}{
		"plain":               {`log.level="info"`, 80, []string{" 8080:80 &", "E2B_API_URL=http://127.0.0.1:8080\n", " http://127.0.0.1:8080/\n"}, []string{"https:"}},
		"TLS":                 {`envoy.tlsSecret="t"`, 443, []string{" 8080:443 &", "E2B_API_URL=https://127.0.0.1:8080\n", " https://127.0.0.1:8080/\n"}, []string{"http:"}},
		"TLS, a domain":       {`envoy.tlsSecret="t",gateway.domain="e.example"`, 443, []string{"E2B_DOMAIN=e.example\n", " https://sandbox.e.example/\n"}, []string{"http:", "must"}},
		"TLS, a port":         {`envoy.tlsSecret="t",service.port=8443`, 8443, []string{" 8080:8443 &"}, []string{"http:"}},
		"a domain, no TLS":    {`gateway.domain="e.example"`, 80, []string{"Clients speak TLS, and this release does not"}, nil},
		"a domain, and proxy": {`gateway.domain="e.example",ingress={"enabled":true,"tlsSecret":"t"}`, 80, []string{" https://sandbox.e.example/\n"}, []string{"this release does not"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects, notes := rendered(t, tc.set)
			for _, object := range objects {
				if object["kind"] == "Service" {
					if port := object["spec"].(map[string]any)["ports"].([]any)[0].(map[string]any)["port"]; port != tc.port {
						t.Errorf("the Service's port is %v, want %v", port, tc.port)
					}
				}
			}
			for _, want := range tc.want {
				if !strings.Contains(notes, want) {
					t.Errorf("the notes lack %q:\n%s", want, notes)
				}
			}
			for _, lack := range tc.lack {
				if strings.Contains(notes, lack) {
					t.Errorf("the notes have %q:\n%s", lack, notes)
				}
			}
		})
	}
}

// An address of a pod may be of IPv6, which takes brackets before a port.
func TestRenderedAddresses(t *testing.T) {
	objects, _ := rendered(t, `log.level="info"`)
	for at, spec := range podSpecs(objects) {
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "IP):") {
			t.Errorf("%s has an address before a port without brackets:\n%s", at, text)
		}
	}
}

// Where egress is enabled, its processes serve at the address that controllers tell pods, by a
// certificate of their own, and nobody else's pods change.
func TestRenderedEgress(t *testing.T) {
	const on = `egress={"enabled":true,"serviceAddress":"10.96.0.53","open":["git.example.com=10.1.0.0/24"],"upstreamProxy":"10.2.0.9:3128"},closedRanges=["10.0.0.0/8"],` +
		`networkPolicies={"enabled":true,"apiServerRanges":["10.0.0.1/32"]},monitoring={"monitor":"PodMonitor"}`
	find := func(objects []map[string]any, kind, name string) string {
		for _, object := range objects {
			if object["kind"] == kind && object["metadata"].(map[string]any)["name"] == name {
				text, err := json.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
		}
		return ""
	}
	objects, _ := rendered(t, on)
	for _, c := range []struct {
		kind, name string
		want       []string
	}{
		{"Deployment", "sandlane-egress", []string{
			`"replicas":2`, `"--address=$(POD_IP)"`, `"--answer-address=10.96.0.53"`, `"--open=git.example.com=10.1.0.0/24"`, `"--closed-ranges=10.0.0.0/8"`, `"--upstream-proxy=10.2.0.9:3128"`,
			`"serviceAccountName":"sandlane-egress"`, `"secretName":"sandlane-control-egress"`, `{"containerPort":9443,"name":"egress-control"}`, `"drop":["ALL"]`, `"runAsNonRoot":true`, `"path":"/readyz"`,
		}},
		{"Deployment", "sandlane-controller", []string{`"--egress-address=10.96.0.53"`}},
		{"Service", "sandlane-egress", []string{`"clusterIP":"10.96.0.53"`, `"port":53,"protocol":"UDP"`, `"port":80`, `"port":443`}},
		{"PodDisruptionBudget", "sandlane-egress", []string{`"maxUnavailable":1`}},
		{"PodMonitor", "sandlane-egress", []string{`"app":"sandlane-egress"`}},
		{"CronJob", "sandlane-control-certs", []string{`"--egress"`}},
		{"NetworkPolicy", "sandlane-egress-processes", []string{
			`"key":"sandlane.dev/pool"`, `"cidr":"10.0.0.1/32"`, `"except":["169.254.0.0/16","10.0.0.0/8"]`, `"cidr":"10.1.0.0/24"`, `"app":"sandlane-controller"`,
			`{"ports":[{"port":3128}],"to":[{"ipBlock":{"cidr":"10.2.0.9/32"}}]}`,
		}},
	} {
		text := find(objects, c.kind, c.name)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s %s has no %s:\n%s", c.kind, c.name, want, text)
			}
		}
	}
	objects, _ = rendered(t, `log.level="info"`)
	if text, _ := json.Marshal(objects); find(objects, "Deployment", "sandlane-egress") != "" || strings.Contains(string(text), "--egress") {
		t.Error("egress is rendered without being enabled")
	}
}

// Gateways and controllers build templates where a registry is named, and only then: gateways alone
// have the Secret with which they push.
func TestRenderedTemplates(t *testing.T) {
	const values = `templates={"registry":"registry.example/templates","pushSecret":"push","pullSecret":"pull","bases":["docker.io/library/*","b.example/x"],"registryRanges":["192.0.2.0/24"]}`
	for name, tc := range map[string]struct {
		set        string
		gateway    []string
		controller []string
		secret     bool
		open       bool
	}{
		"all": {
			values + `,networkPolicies={"enabled":true,"apiServerRanges":["10.0.0.1/32"]}`,
			[]string{"--template-registry=registry.example/templates", "--template-bases=docker.io/library/*,b.example/x", "--template-credentials=/etc/sandlane/templates/config.json"},
			[]string{"--template-registry=registry.example/templates", "--template-pull-secret=pull"}, true, true,
		},
		"a registry": {`templates.registry="r.example/t"`, []string{"--template-registry=r.example/t"}, []string{"--template-registry=r.example/t"}, false, false},
		"none":       {`templates={"pushSecret":"push","bases":["docker.io/*"],"pullSecret":"pull"}`, nil, nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			objects, _ := rendered(t, tc.set)
			specs := podSpecs(objects)
			for at, want := range map[string][]string{"gateway": tc.gateway, "controller": tc.controller} {
				spec := specs["Deployment/sandlane-"+at]
				var got []string
				for _, arg := range spec["containers"].([]any)[0].(map[string]any)["args"].([]any) {
					if text := arg.(string); strings.HasPrefix(text, "--template-") {
						got = append(got, text)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", at, got, want)
				}
				text, err := json.Marshal(spec)
				if err != nil {
					t.Fatal(err)
				}
				has := strings.Contains(string(text), `"secretName":"push"`) && strings.Contains(string(text), `"mountPath":"/etc/sandlane/templates"`)
				if want := tc.secret && at == "gateway"; has != want {
					t.Errorf("%s has the Secret for pushes: %v", at, has)
				}
			}
			text, err := json.Marshal(objects)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), `"192.0.2.0/24"`) != tc.open {
				t.Errorf("the addresses of registries are open: %v", !tc.open)
			}
		})
	}
}
