package users

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func database(t *testing.T, uid int) Database {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "passwd", "root:x:0:0:root:/root:/bin/bash\n# comment\nbroken\nuser:x:1000:1000::/home/user:/bin/zsh\nbare:x:1001:1001:::\nbad:x:many:1:::\n")
	write(t, dir, "group", "root:x:0:\nuser:x:1000:\nsudo:x:27:other,user\nvideo:x:44:username\n")
	return Database{Dir: dir, UID: func() int { return uid }}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLookup(t *testing.T) {
	db := database(t, 0)
	u, err := db.Lookup("user")
	if err != nil || u.UID != 1000 || u.Home != "/home/user" || u.Shell != "/bin/zsh" || !slices.Equal(u.Groups, []uint32{1000, 27}) {
		t.Errorf("user: %+v %v", u, err)
	}
	bare, err := db.Lookup("bare")
	if err != nil || bare.Home != "/" || bare.Shell != "/bin/sh" {
		t.Errorf("bare: %+v %v", bare, err)
	}
	for _, name := range []string{"nobody-here", "", "bad", "broken"} {
		if _, err := db.Lookup(name); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v, want ErrUnknown", name, err)
		}
	}
	if db.Name(1000) != "user" || db.Name(77) != "77" || db.GroupName(27) != "sudo" || db.GroupName(77) != "77" {
		t.Error("names of IDs are wrong")
	}
}

func TestUnprivileged(t *testing.T) {
	db := database(t, 1000)
	if u, err := db.Lookup("user"); err != nil || u.UID != 1000 {
		t.Errorf("own user: %+v %v", u, err)
	}
	if _, err := db.Lookup("root"); !errors.Is(err, ErrNotPermitted) {
		t.Errorf("root: %v, want ErrNotPermitted", err)
	}
	t.Setenv("HOME", "/some/where")
	housed := database(t, 0)
	housed.Home = "/elsewhere"
	if u, err := housed.Lookup("root"); err != nil || u.Home != "/elsewhere" {
		t.Errorf("own user with another home: %+v %v", u, err)
	}
	if u, err := housed.Lookup("user"); err != nil || u.Home != "/home/user" {
		t.Errorf("another user: %+v %v", u, err)
	}
	if own := database(t, 12345).Own(); own.Name != "12345" || own.Home != "/some/where" {
		t.Errorf("a user without a line: %+v", own)
	}
}

func TestResolve(t *testing.T) {
	u := User{Home: "/home/user"}
	for _, c := range []struct{ path, workdir, want string }{
		{"", "", "/home/user"},
		{"", "/work", "/work"},
		{"~", "/work", "/home/user"},
		{"~/a", "/work", "/home/user/a"},
		{"./~a", "/work", "/work/~a"},
		{"a/../b", "", "/home/user/b"},
		{"/x//y/", "/work", "/x/y"},
	} {
		if got, err := u.Resolve(c.path, c.workdir); got != c.want || err != nil {
			t.Errorf("Resolve(%q, %q) = %q, %v, want %q", c.path, c.workdir, got, err, c.want)
		}
	}
	for _, path := range []string{"~bob", "~bob/x", "~~/x", "a\x00b", "/a\x00"} {
		if got, err := u.Resolve(path, "/work"); got != "" || !errors.Is(err, ErrPath) {
			t.Errorf("Resolve(%q) = %q, %v", path, got, err)
		}
	}
}
