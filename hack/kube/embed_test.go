package kube

import (
	"regexp"
	"testing"
)

func TestVersion(t *testing.T) {
	if v := Version(); !regexp.MustCompile(`^v1\.\d+\.\d+$`).MatchString(v) {
		t.Errorf("Version() = %q", v)
	}
	if len(Sum) == 0 {
		t.Error("kube.sum is empty")
	}
}
