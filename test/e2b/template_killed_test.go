package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
	"github.com/sandlane/sandlane/test/stack"
)

// killedWithin bounds the time from a gateway's death to the end of its builds: the controller
// takes it as dead after two minutes without a heartbeat, and looks every ten seconds.
const killedWithin = 150 * time.Second

// A build whose gateway is killed fails in bounded time with a sentence that its client reads, and
// leaves no builder; the template can be built again.
func TestBuildOfAKilledGateway(t *testing.T) {
	image := unmadeImage(t)
	state := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	s, err := stack.Start(ctx, state, "--gateways", "2", "--template-bases", strings.TrimPrefix(images.URL, "http://")+"/*",
		"--isolation", "full", "--pool-size", "0", "--base-pool-size", "0")
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(url, method, path, body string, into any) error {
		req, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("X-API-KEY", s.Up.APIKey)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }() // it was only read
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode >= 300 {
			return fmt.Errorf("%s %s: %d %s, %w", method, path, res.StatusCode, text, err)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(text, into)
	}
	type status struct {
		Status string
		Reason *struct{ Message, Step string }
	}
	request := func(url, step string) (template, build string) {
		t.Helper()
		var made struct{ TemplateID, BuildID string }
		err := ask(url, "POST", "/v3/templates", `{"name":"killed","cpuCount":1,"memoryMB":256}`, &made)
		if err == nil {
			body := fmt.Sprintf(`{"fromImage":%q,"steps":[{"type":"RUN","args":[%q]}]}`, image, step)
			err = ask(url, "POST", "/v2/templates/"+made.TemplateID+"/builds/"+made.BuildID, body, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		return made.TemplateID, made.BuildID
	}
	template, id := request(s.Up.Gateways[0].URL, "echo begun; sleep 600")
	build := &v1alpha1.TemplateBuild{}
	read := func() error {
		return s.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: id}, build)
	}
	kubetest.Eventually(t, "the step to run", func() error {
		if err := read(); err != nil {
			return err
		}
		for _, entry := range build.Status.Log {
			if entry.Text == "begun" {
				return nil
			}
		}
		return fmt.Errorf("%s at step %s: %s", build.Status.Phase, build.Status.Step, build.Status.Message)
	})
	other := ""
	killed := 0
	for _, g := range s.Up.Gateways {
		if g.Name == build.Status.Gateway {
			killed = g.Pids["gateway"]
		} else {
			other = g.URL
		}
	}
	if killed == 0 || other == "" {
		t.Fatalf("%s runs the build, of %+v", build.Status.Gateway, s.Up.Gateways)
	}
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	died := time.Now()
	kubetest.Within(t, killedWithin, "the build of the killed gateway to fail", func() error {
		var is status
		if err := ask(other, "GET", "/templates/"+template+"/builds/"+id+"/status", "", &is); err != nil {
			return err
		}
		switch {
		case is.Status != "error":
			return fmt.Errorf("it is %s", is.Status)
		case is.Reason == nil || !strings.Contains(is.Reason.Message, "the gateway that ran the build has stopped; build it again") || is.Reason.Step != "1":
			t.Fatalf("its reason is %+v", is.Reason)
		}
		return nil
	})
	t.Logf("failed %v after its gateway was killed", time.Since(died))
	kubetest.Eventually(t, "nothing to be left of the builder", func() error {
		var pools v1alpha1.SandboxPoolList
		var sandboxes v1alpha1.SandboxList
		if err := s.Client.List(ctx, &pools, client.InNamespace("default")); err != nil {
			return err
		}
		for _, p := range pools.Items {
			if strings.HasSuffix(p.Name, id) {
				return fmt.Errorf("there is the pool %s", p.Name)
			}
		}
		if err := s.Client.List(ctx, &sandboxes); err != nil {
			return err
		}
		for _, b := range sandboxes.Items {
			if b.Spec.Pool == v1alpha1.BuilderPool(id) && b.Spec.End == nil {
				return fmt.Errorf("there is the sandbox %s", b.Name)
			}
		}
		for _, p := range s.PodsOf(t, "default") {
			if p.Labels[v1alpha1.LabelPool] == v1alpha1.BuilderPool(id) {
				return fmt.Errorf("there is the pod %s", p.Name)
			}
		}
		return nil
	})
	again, second := request(other, "echo again")
	kubetest.Eventually(t, "the template to be built again", func() error {
		var is status
		if err := ask(other, "GET", "/templates/"+again+"/builds/"+second+"/status", "", &is); err != nil {
			return err
		}
		if is.Status != "ready" {
			return fmt.Errorf("it is %s: %+v", is.Status, is.Reason)
		}
		return nil
	})
	if err := ask(other, "DELETE", "/templates/"+template, "", nil); err != nil {
		t.Error(err)
	}
	kubetest.Eventually(t, "the builds to go with the template", func() error {
		var left v1alpha1.TemplateBuildList
		if err := s.Client.List(ctx, &left, client.InNamespace("default")); err != nil || len(left.Items) > 0 {
			return fmt.Errorf("%d are left: %w", len(left.Items), err)
		}
		return nil
	})
}
