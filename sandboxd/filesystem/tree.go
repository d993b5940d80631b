package filesystem

import "strings"

// tree has the watched directories, by the number of their watch and by path. Each directory
// has one number and one path.
type tree struct {
	paths map[int32]string
	wds   map[string]int32
}

func newTree() tree { return tree{paths: map[int32]string{}, wds: map[string]int32{}} }

// record notes a watched directory. If it was known by another path, it has moved, with all
// directories below it.
func (t tree) record(wd int32, path string) {
	if old, known := t.paths[wd]; known && old != path {
		t.rename(old, path)
	}
	if other, known := t.wds[path]; known && other != wd {
		delete(t.paths, other)
	}
	t.paths[wd], t.wds[path] = path, wd
}

// rename rewrites the paths of a directory and of all below it.
func (t tree) rename(from, to string) {
	for _, old := range t.below(from) {
		wd := t.wds[old]
		delete(t.wds, old)
		path := to + strings.TrimPrefix(old, from)
		if other, known := t.wds[path]; known {
			delete(t.paths, other) // the directory that had this path is gone
		}
		t.paths[wd], t.wds[path] = path, wd
	}
}

// drop forgets one directory and returns the number of its watch.
func (t tree) drop(path string) (wd int32, known bool) {
	if wd, known = t.wds[path]; known {
		delete(t.wds, path)
		delete(t.paths, wd)
	}
	return wd, known
}

// below returns the directories at and below a path.
func (t tree) below(path string) (all []string) {
	for p := range t.wds {
		if within(p, path) {
			all = append(all, p)
		}
	}
	return all
}

// within reports whether a path is a directory or lies below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
