package sdk

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed python/*.py python/*.lock js/*.mjs js/*/package.json js/*/package-lock.json
var programs embed.FS

// SDK is an SDK in one way of use.
type SDK struct {
	Language string // python or js
	Version  string
	Async    bool // of python alone
}

var version = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+$`)

// Parse reads python==2.63.0, which is two, and js==2.51.0.
func Parse(text string) ([]SDK, error) {
	language, number, ok := strings.Cut(text, "==")
	switch {
	case ok && language == "python" && version.MatchString(number):
		return []SDK{{Language: language, Version: number}, {Language: language, Version: number, Async: true}}, nil
	case ok && language == "js" && version.MatchString(number):
		return []SDK{{Language: language, Version: number}}, nil
	}
	return nil, fmt.Errorf("no SDK %q: name one as python==2.63.0 or js==2.51.0", text)
}

// Pinned are those with a lock file, newest first, as Parse reads them.
func Pinned() (all []string) {
	locks, _ := fs.Glob(programs, "python/e2b-*.lock") // an embedded folder is always there
	for _, lock := range locks {
		all = append(all, "python=="+strings.TrimSuffix(strings.TrimPrefix(path.Base(lock), "e2b-"), ".lock"))
	}
	folders, _ := fs.Glob(programs, "js/*/package.json")
	for _, p := range folders {
		all = append(all, "js=="+path.Base(path.Dir(p)))
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all
}

// String names it in results.
func (s SDK) String() string {
	if s.Async {
		return s.Language + " " + s.Version + " async"
	}
	return s.Language + " " + s.Version
}

// locks are its embedded lock files by name; none if it is not pinned.
func (s SDK) locks() map[string][]byte {
	names := []string{path.Join("python", "e2b-"+s.Version+".lock")}
	if s.Language == "js" {
		names = []string{path.Join("js", s.Version, "package.json"), path.Join("js", s.Version, "package-lock.json")}
	}
	all := map[string][]byte{}
	for _, name := range names {
		text, err := programs.ReadFile(name)
		if err != nil {
			return nil
		}
		all[path.Base(name)] = text
	}
	return all
}
