package sandboxd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandlane/sandlane/sandboxd/users"
)

const (
	// ownPrefix marks sandboxd's own settings, which commands never get.
	ownPrefix = "SANDBOXD_"
	// imageEnv is the variable that names those which commands get of sandboxd's own
	// environment, beside PATH. An image sets it to the names of its variables: what
	// the pod adds (KUBERNETES_SERVICE_HOST, the addresses of services) and what the
	// image set cannot be told apart from inside.
	imageEnv = ownPrefix + "ENV"

	// imageUser is the variable that holds the image's USER: sandboxd itself runs as
	// root, so that it can act for every user.
	imageUser = ownPrefix + "USER"

	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// commandEnv returns what commands get of an environment.
func commandEnv(environ []string) map[string]string {
	all := map[string]string{}
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			all[name] = value
		}
	}
	env := map[string]string{"PATH": defaultPath}
	if all["PATH"] != "" {
		env["PATH"] = all["PATH"]
	}
	separator := func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' }
	for _, name := range strings.FieldsFunc(all[imageEnv], separator) {
		if value, set := all[name]; set && !strings.HasPrefix(name, ownPrefix) {
			env[name] = value
		}
	}
	return env
}

// userOfImage returns the name of the image's user, or nothing if it has none or
// if sandboxd, not being root, acts for its own user alone. The user is named as in
// an image's configuration: by name or number, a group may follow.
func userOfImage(environ []string, database users.Database) (string, error) {
	i := slices.IndexFunc(environ, func(pair string) bool { return strings.HasPrefix(pair, imageUser+"=") })
	if i < 0 || !database.Privileged() {
		return "", nil
	}
	user, _, _ := strings.Cut(strings.TrimPrefix(environ[i], imageUser+"="), ":")
	if user == "" {
		return "", nil
	}
	if uid, err := strconv.ParseUint(user, 10, 32); err == nil {
		user = database.Name(uint32(uid))
	}
	if _, err := database.Lookup(user); err != nil {
		return "", fmt.Errorf("the user of the image, in %s, is not used: %w", imageUser, err)
	}
	return user, nil
}
