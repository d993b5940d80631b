package sudo

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		line string
		want options
	}{
		{"id -u", options{Command: lines{"id", "-u"}, User: "root"}},
		{"-n apt-get install -y jq", options{Command: lines{"apt-get", "install", "-y", "jq"}, User: "root"}},
		{"-nEH true", options{Command: lines{"true"}, User: "root", Keep: []string{everything}, Home: true}},
		{"-Eu user true", options{Command: lines{"true"}, User: "user", Keep: []string{everything}}},
		{"-uuser true", options{Command: lines{"true"}, User: "user"}},
		{"--user=user --set-home true", options{Command: lines{"true"}, User: "user", Home: true}},
		{"--preserve-env=A,B true", options{Command: lines{"true"}, User: "root", Keep: []string{"A", "B"}}},
		{"A=1 B= true C=3", options{Command: lines{"true", "C=3"}, Set: lines{"A=1", "B="}, User: "root"}},
		{"-E A=1 -u user B=2 true", options{Command: lines{"true"}, Set: lines{"A=1", "B=2"}, User: "user", Keep: []string{everything}}},
		{"-- A=1 true", options{Command: lines{"A=1", "true"}, User: "root"}},
		{"-S -p prompt -k true", options{Command: lines{"true"}, User: "root"}},
		{"-i", options{Command: lines{}, User: "root", Login: true}},
		{"-s echo hi", options{Command: lines{"echo", "hi"}, User: "root", Shell: true}},
		{"-v", options{Command: lines{}, User: "root", Validate: true}},
		{"-nv", options{Command: lines{}, User: "root", Validate: true}},
		{"./a=b", options{Command: lines{"./a=b"}, User: "root"}},
	} {
		if got, err := parse(strings.Fields(c.line)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("sudo %s: %+v, %v, want %+v", c.line, got, err, c.want)
		}
	}
}

func TestOptionsWithoutACommand(t *testing.T) {
	for line, want := range map[string]error{"-k": errNothing, "-K": errNothing, "-nk": errNothing, "--help": pflag.ErrHelp, "-h": pflag.ErrHelp} {
		if _, err := parse(strings.Fields(line)); !errors.Is(err, want) {
			t.Errorf("sudo %s: %v, want %v", line, err, want)
		}
	}
	for line, want := range map[string]string{
		"": "no command", "A=1": "no command", "-l": "unknown shorthand", "-e file": "unknown shorthand", "--no-such x": "unknown flag",
		"-is": "not both", "-u": "needs an argument", "-b x": "unknown shorthand", "--user= x": "name of a user",
	} {
		if _, err := parse(strings.Fields(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("sudo %s: %v, want an error with %q", line, err, want)
		}
	}
}
