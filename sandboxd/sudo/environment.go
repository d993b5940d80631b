package sudo

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sandlane/sandlane/sandboxd/users"
)

// kept are the variables of the caller that a command gets without -E: those of the terminal
// and the language. A variable whose name begins with keptPrefix is kept, too.
var kept = []string{"TERM", "COLORTERM", "COLORS", "LS_COLORS", "DISPLAY", "XAUTHORITY", "LANG", "LANGUAGE", "TZ"}

const keptPrefix = "LC_"

// environment returns the variables of a command: the kept ones of the caller, those of the
// target user, and those of the command line, which win.
func environment(r request, target users.User, client peer, command, path string) []string {
	caller := variables(r.Env)
	env := map[string]string{}
	all := slices.Contains(r.Keep, everything)
	for name, value := range caller {
		if all || slices.Contains(kept, name) || strings.HasPrefix(name, keptPrefix) {
			env[name] = value
		}
	}
	for name, value := range map[string]string{"HOME": target.Home, "SHELL": target.Shell} {
		if _, has := env[name]; !has || r.Login || name == "HOME" && r.Home {
			env[name] = value
		}
	}
	if r.Shell && caller["SHELL"] != "" {
		env["SHELL"] = caller["SHELL"]
	}
	maps.Copy(env, map[string]string{
		"USER": target.Name, "LOGNAME": target.Name, "PATH": path,
		"SUDO_USER": client.name, "SUDO_UID": strconv.Itoa(int(client.uid)), "SUDO_GID": strconv.Itoa(int(client.gid)),
		"SUDO_COMMAND": command,
	})
	for _, name := range r.Keep {
		if value, has := caller[name]; has {
			env[name] = value
		}
	}
	maps.Copy(env, variables(r.Set))
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// variables returns VAR=value pairs by name; the last of a name counts.
func variables(pairs []string) map[string]string {
	all := map[string]string{}
	for _, pair := range pairs {
		if name, value, ok := strings.Cut(pair, "="); ok {
			all[name] = value
		}
	}
	return all
}
