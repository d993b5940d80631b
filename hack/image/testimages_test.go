package main

import (
	"runtime"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A program of this machine comes with the libraries of its libraries, once each.
func TestHostProgram(t *testing.T) {
	p := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	entries, err := hostProgram("/bin/bash", "bin/bash", p)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, e := range entries {
		seen[e.path]++
	}
	libraries, loader, err := linked("/bin/bash")
	if err != nil || loader == "" || len(libraries) == 0 {
		t.Fatalf("bash is linked with %v, loader %q, %v", libraries, loader, err)
	}
	for _, name := range libraries {
		file, err := library(name)
		if err != nil {
			t.Fatal(err)
		}
		if seen[file[1:]] != 1 {
			t.Errorf("%s is there %d times", file, seen[file[1:]])
		}
	}
	if seen["bin/bash"] != 1 || seen[loader[1:]] != 1 {
		t.Errorf("files are %v, want bin/bash and %s among them", seen, loader)
	}
	if _, err := hostProgram("/bin/bash", "bin/bash", v1.Platform{OS: "linux", Architecture: "sparc"}); err == nil {
		t.Error("a program of this machine is in an image for another")
	}
}
