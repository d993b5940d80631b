package builds

import (
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func step(kind v1alpha1.TemplateStepType, args ...string) v1alpha1.TemplateStep {
	s := v1alpha1.TemplateStep{Type: kind, Args: args}
	if kind == v1alpha1.StepCopy {
		s.Files = strings.Repeat("a", 64)
	}
	return s
}

// Each step has the user, folder and variables that those before it left.
func TestSteps(t *testing.T) {
	s := initial(v1.Config{Env: []string{"PATH=/bin", "LANG=C"}, WorkingDir: "/srv/", User: "node"}, false)
	for _, c := range []struct {
		step v1alpha1.TemplateStep
		user string
		dir  string
		args []string
	}{
		{step(v1alpha1.StepRun, "make"), "user", "/srv", []string{"-l", "-c", "make"}},
		{step(v1alpha1.StepRun, "make install", "root"), "root", "/srv", []string{"-l", "-c", "make install"}},
		{step(v1alpha1.StepWorkdir, "sub"), "root", "/", []string{"--make-dir", "/srv/sub", "--owner", "user"}},
		{step(v1alpha1.StepUser, "other"), "root", "/", []string{"--add-user", "other"}},
		{step(v1alpha1.StepEnv, "PATH", "/opt:$PATH", "A", "${LANG}x"), "", "", nil},
		{step(v1alpha1.StepRun, "id"), "other", "/srv/sub", []string{"-l", "-c", "id"}},
		{step(v1alpha1.StepCopy, "x", "to", "", ""), "root", "/", []string{"--unpack", uploaded, "--from", "x", "--to", "/srv/sub/to", "--owner", "other"}},
		{step(v1alpha1.StepCopy, "x", "../to/", "root:staff", "0700"), "root", "/", []string{"--unpack", uploaded, "--from", "x", "--to", "/srv/to/", "--owner", "root:staff", "--mode", "0700"}},
		{step(v1alpha1.StepCopy, "x", ".", "", ""), "root", "/", []string{"--unpack", uploaded, "--from", "x", "--to", "/srv/sub/", "--owner", "other"}},
		{step(v1alpha1.StepCopy, "x", "/$A", "", ""), "root", "/", []string{"--unpack", uploaded, "--from", "x", "--to", "/Cx", "--owner", "other"}},
	} {
		a, err := s.take(c.step)
		if err != nil {
			t.Errorf("%v: %v", c.step, err)
			continue
		}
		if c.args == nil {
			if a.command != nil {
				t.Errorf("%v runs %v", c.step, a.command)
			}
			continue
		}
		if a.command.User != c.user || a.command.Dir != c.dir || !slices.Equal(a.command.Args, c.args) {
			t.Errorf("%v: %+v, want user %s, folder %s, %q", c.step, a.command, c.user, c.dir, c.args)
		}
		if (a.files != "") != (c.step.Type == v1alpha1.StepCopy) {
			t.Errorf("%v takes the upload %q", c.step, a.files)
		}
	}
	if got, want := s.variables(), map[string]string{"PATH": "/opt:/bin", "A": "Cx"}; !maps.Equal(got, want) {
		t.Errorf("variables %v, want %v", got, want)
	}
	config := v1.Config{Env: []string{"PATH=/bin", "LANG=C", "SANDBOXD_USER=of the base"}, User: "node", Cmd: []string{"kept"}}
	s.configure(&config)
	if want := []string{"LANG=C", "PATH=/opt:/bin", "A=Cx", "SANDBOXD_USER=other"}; !slices.Equal(config.Env, want) || config.User != "" || config.WorkingDir != "/srv/sub" || len(config.Cmd) != 1 {
		t.Errorf("configuration %+v, want the variables %q", config, want)
	}
}

func TestStepsRefused(t *testing.T) {
	for _, s := range []v1alpha1.TemplateStep{
		{Type: v1alpha1.StepRun}, step("ADD", "x"), step(v1alpha1.StepEnv, "A"), step(v1alpha1.StepEnv, "", "x"), step(v1alpha1.StepEnv, "A=B", "x"),
		{Type: v1alpha1.StepCopy, Args: []string{"x", "y"}}, step(v1alpha1.StepCopy, "x", ""),
	} {
		if a, err := initial(v1.Config{}, false).take(s); err == nil {
			t.Errorf("%v does %+v", s, a)
		}
	}
}

// The value of a variable may be a secret: the log has its name alone.
func TestEnvIsNotLogged(t *testing.T) {
	a, err := initial(v1.Config{}, false).take(step(v1alpha1.StepEnv, "TOKEN", "hunter2"))
	if err != nil || a.text != "ENV TOKEN" {
		t.Errorf("%q, %v", a.text, err)
	}
}

func TestLines(t *testing.T) {
	var got []string
	w := &lineWriter{print: func(line string) { got = append(got, line) }}
	for _, part := range []string{"on", "e\r\ntwo\n\nth", "ree"} {
		w.write([]byte(part))
	}
	w.end()
	w.end()
	if want := []string{"one", "two", "", "three"}; !slices.Equal(got, want) || w.tail() != ": one\ntwo\n\nthree" {
		t.Errorf("%q, tail %q", got, w.tail())
	}
	got = nil
	w.write([]byte(strings.Repeat("x", 3*maxEntry))) // a line without an end does not grow for ever
	if len(w.rest) > maxEntry || len(got) == 0 {
		t.Errorf("%d bytes are kept", len(w.rest))
	}
}

// A log is bounded, says that it was cut, and has only text.
func TestLogIsBounded(t *testing.T) {
	r := newRecord(nil, nil)
	r.at("1")
	r.print("info", "a\xffb\n"+strings.Repeat("é", maxEntry))
	if len(r.log) != 3 || r.log[0].Text != "a\uFFFDb" || r.log[0].Step != "1" {
		t.Fatalf("%d entries, first %+v", len(r.log), r.log[0])
	}
	for range 3 * maxEntries {
		r.print("info", strings.Repeat("y", 1000))
	}
	last := r.log[len(r.log)-1]
	if r.bytes > maxLog+maxEntry || len(r.log) > maxEntries || last.Level != "warn" || !strings.Contains(last.Text, "left out") {
		t.Errorf("%d entries of %d bytes, the last %+v", len(r.log), r.bytes, last)
	}
}
