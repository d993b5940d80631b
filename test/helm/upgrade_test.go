package helm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// releasedPool is a pool whose sandboxes have the sandboxd of the controller's release.
const releasedPool = `{"apiVersion":"sandlane.dev/v1alpha1","kind":"SandboxPool","metadata":{"name":"released","namespace":"default"},"spec":{"replicas":1,"egress":"ByName",
"pause":{"modes":["Freeze","Hibernate"]},"template":{"runtimes":["sandboxd"],"template":{"spec":{"terminationGracePeriodSeconds":1,
"automountServiceAccountToken":false,"enableServiceLinks":false,
"containers":[{"name":"main","image":"sandlane-test-base:test","imagePullPolicy":"IfNotPresent"}]}}}}}`

// release is what `make release PUSH=` has given the registry of the node.
type release struct {
	version string // of its charts
	charts  string // the folder that Helm has unpacked its charts into
}

// upgrade is an installation that goes from the previous release to this commit's and back.
type upgrade struct {
	*cluster
	python        string
	previous, now release
	kept          string // the file that upgrade.py keeps its sandboxes in
}

// TestUpgrade is an upgrade from one release to the next, and the way back, of charts and
// images from a registry that the folders of `make release` were pushed to. Deployments are
// held back, so that gateways and egress of one release run beside controllers of the
// other, both ways, and with sandboxes of both. In each of these states all that upgrade.py
// does works; in between requests flow, and none is lost. `hack/helm-test.sh upgrade` runs it.
func TestUpgrade(t *testing.T) {
	u := &upgrade{python: pythonSDK(t), cluster: boot(t, "")}
	u.startRegistry(t)
	u.steps(t, []step{
		{"releases pushed", u.push},
		{"definitions compared", u.gainOptionalFields},
		{"previous release", u.install},
	})
	u.internet(t)
	u.steps(t, []step{
		{"egress by name", u.addEgress},
		{"helm test", u.helmTest},
		{"sandboxes", u.use},
		{"upgrade: controllers first", u.controllersFirst},
		{"new controllers, old gateways", u.use},
		{"upgrade: gateways and egress", func(t *testing.T) { u.finish(t, u.now) }},
		{"all new", u.use},
		{"helm test of the new", u.helmTest},
		{"rollback: controllers first", u.rollBackControllers},
		{"old controllers, new gateways", u.use},
		{"rollback: gateways and egress", func(t *testing.T) { u.finish(t, u.previous) }},
		{"all old", u.use},
		{"helm test of the old", u.helmTest},
	})
	fmt.Printf("    %d of %d requests to a running sandbox were lost\n", u.lost, u.asked)
}

// steps runs steps, each of which needs the ones before.
func (u *upgrade) steps(t *testing.T, steps []step) {
	t.Helper()
	for _, step := range steps {
		began := time.Now()
		if !t.Run(step.name, step.run) {
			t.FailNow()
		}
		fmt.Printf("    %-36s %5.1f s\n", step.name, time.Since(began).Seconds())
	}
}

// push gives both releases to the registry, as `make release PUSH=` does, and takes their
// charts from there.
func (u *upgrade) push(t *testing.T) {
	for variable, to := range map[string]*release{"SANDLANE_PREVIOUS": &u.previous, "SANDLANE_RELEASE": &u.now} {
		folder, program := os.Getenv(variable), os.Getenv("SANDLANE_PUSH")
		packed, err := filepath.Glob(filepath.Join(folder, "sandlane-tenant-*.tgz"))
		if program == "" || err != nil || len(packed) != 1 {
			t.Fatalf("%s=%q has not one chart, or SANDLANE_PUSH is not set: run `hack/helm-test.sh upgrade`: %v", variable, folder, err)
		}
		to.version = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(packed[0]), "sandlane-tenant-"), ".tgz")
		to.charts = u.tempDir(t)
		u.run(t, program, "-dir", folder, "-push", registryAddress+"/released")
		for _, name := range []string{"sandlane", "sandlane-tenant"} {
			u.run(t, "helm", "pull", "oci://"+registryAddress+"/released/charts/"+name, "--version", to.version, "--plain-http", "--untar", "--untardir", to.charts)
		}
	}
	if u.previous.version == u.now.version {
		t.Fatalf("both releases are %s", u.now.version)
	}
	fmt.Printf("      from %s to %s\n", u.previous.version, u.now.version)
}

func (r release) chart() string { return filepath.Join(r.charts, "sandlane") }

// install installs the previous release with its own images, and a team by its chart.
func (u *upgrade) install(t *testing.T) {
	u.chart = u.previous.chart()
	u.values = []string{"--set", "imageTag=,imageRegistry=" + registryAddress + "/released"}
	u.cluster.install(t)
	u.team(t)
	u.kept = filepath.Join(u.tempDir(t), "kept")
	if err := os.WriteFile(u.kept, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (u *upgrade) addEgress(t *testing.T) {
	u.roll(t, strings.Join(byName("--resolver="+internetAddress+":53", "--upstream-ca=/etc/internet/ca.crt"), ","))
	u.ready(t, "sandlane-egress")
	u.apply(t, releasedPool)
	u.idlePod(t, "released")
}

// use uses sandboxes of every former state, makes, pauses, resumes and ends some, and has a
// first request make one.
func (u *upgrade) use(t *testing.T) {
	u.cluster.python(t, u.python, "upgrade.py", u.kept, credential)
	u.process(t, "mine")
	u.process(t, "passing")
	u.kubectl(t, "delete", "sandbox", "passing", "--timeout=60s")
	u.idlePod(t, "echo")
	u.idlePod(t, "released")
}

// load sends requests to a sandbox while something happens; none may be lost.
func (u *upgrade) load(t *testing.T, happens func()) {
	process := u.process(t, "mine")
	a := u.during(t, "mine", happens)
	a.sameProcess(t, process)
	a.noneFailed(t)
}

// held are the Deployments that stay while controllers go first.
var held = []string{"deployment/sandlane-gateway", "deployment/sandlane-egress"}

// controllersFirst upgrades, and holds gateways and egress back.
func (u *upgrade) controllersFirst(t *testing.T) {
	u.load(t, func() {
		u.kubectl(t, append([]string{"-n", system, "rollout", "pause"}, held...)...)
		u.run(t, "helm", "upgrade", "sandlane", u.now.chart(), "-n", system, "--reset-then-reuse-values", "--timeout", "180s")
		u.ready(t, "sandlane-controller")
	})
	u.releases(t, u.now, u.previous)
}

// rollBackControllers rolls back, and holds gateways and egress back.
func (u *upgrade) rollBackControllers(t *testing.T) {
	u.load(t, func() {
		u.kubectl(t, append([]string{"-n", system, "rollout", "pause"}, held...)...)
		u.run(t, "helm", "rollback", "sandlane", "-n", system, "--timeout", "180s")
		u.ready(t, "sandlane-controller")
	})
	u.releases(t, u.previous, u.now)
}

// finish lets gateways and egress follow. WebSockets last for the grace of their gateways.
func (u *upgrade) finish(t *testing.T, to release) {
	u.rolled(t, func() {
		u.kubectl(t, append([]string{"-n", system, "rollout", "resume"}, held...)...)
		u.ready(t, "sandlane-gateway")
		u.ready(t, "sandlane-egress")
	})
	u.releases(t, to, to)
}

// releases checks of which releases the pods of the control plane are.
func (u *upgrade) releases(t *testing.T, controllers, others release) {
	t.Helper()
	for app, want := range map[string]release{"sandlane-controller": controllers, "sandlane-gateway": others, "sandlane-egress": others} {
		images := u.ofPods(t, app, "spec.containers[0].image")
		for _, image := range images {
			if tag := ":v" + strings.TrimPrefix(want.version, "v"); !strings.HasSuffix(image, tag) {
				t.Errorf("a pod of %s runs %s, want %s", app, image, tag)
			}
		}
		if len(images) == 0 {
			t.Errorf("no pod of %s runs", app)
		}
	}
}
