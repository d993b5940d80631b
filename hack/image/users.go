package main

import (
	"fmt"
	"strconv"
	"strings"
)

// sandboxUser is who SDKs act as when they name nobody.
const sandboxUser = "user"

// account is what is in the files of users.
type account struct {
	uid, gid int
	home     string
}

// addUser returns passwd and group with the user of the sandbox in them, and the
// account. A user of that name who is there already stays; otherwise it gets the
// number 1000 or the first free one after, and a group of its own.
func addUser(passwd, group, shell string) (string, string, account, error) {
	taken := map[int]bool{}
	for line := range strings.Lines(passwd) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 7 {
			continue
		}
		uid, err := strconv.Atoi(fields[2])
		if err != nil {
			continue
		}
		taken[uid] = true
		if fields[0] != sandboxUser {
			continue
		}
		gid, err := strconv.Atoi(fields[3])
		if err != nil {
			return "", "", account{}, fmt.Errorf("user %q has the group %q, which is no number", sandboxUser, fields[3])
		}
		return passwd, group, account{uid: uid, gid: gid, home: strings.Trim(fields[5], "/")}, nil
	}
	for line := range strings.Lines(group) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if fields[0] == sandboxUser {
			return "", "", account{}, fmt.Errorf("there is a group %q, but no user of that name", sandboxUser)
		}
		if len(fields) >= 3 {
			if gid, err := strconv.Atoi(fields[2]); err == nil {
				taken[gid] = true
			}
		}
	}
	id := 1000
	for taken[id] {
		id++
	}
	passwd = whole(passwd) + fmt.Sprintf("%s:x:%d:%d::/home/%s:%s\n", sandboxUser, id, id, sandboxUser, shell)
	group = whole(group) + fmt.Sprintf("%s:x:%d:\n", sandboxUser, id)
	return passwd, group, account{uid: id, gid: id, home: "home/" + sandboxUser}, nil
}

// whole ends the last line of a file.
func whole(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
