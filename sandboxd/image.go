package sandboxd

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sandlane/sandlane/sandboxd/users"
)

const (
	// ownPrefix marks sandboxd's own settings, which commands never get.
	ownPrefix = "SANDBOXD_"
	// imageEnv is the variable that names the variables of sandboxd's own environment which
	// commands get, besides PATH. An image sets it to the names of its own variables, because
	// sandboxd cannot tell these from the variables that the pod adds
	// (KUBERNETES_SERVICE_HOST, the addresses of services). allVariables names all but the
	// cluster's and sandboxd's own: it is for an image whose variables are not listed.
	imageEnv      = ownPrefix + "ENV"
	allVariables  = "*"
	clusterPrefix = "KUBERNETES_"

	// imageUser is the variable that holds the image's USER: sandboxd itself runs as
	// root, so that it can act for every user.
	imageUser = ownPrefix + "USER"

	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// commandEnv returns the variables of an environment that commands get.
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
	names := strings.FieldsFunc(all[imageEnv], separator)
	if slices.Contains(names, allVariables) {
		names = slices.Collect(maps.Keys(all))
		names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, clusterPrefix) })
	}
	for _, name := range names {
		if value, set := all[name]; set && !strings.HasPrefix(name, ownPrefix) {
			env[name] = value
		}
	}
	return env
}

// userOfImage returns the name of the image's user; nothing if the image names none, or if
// sandboxd is not root and so can act only as its own user. The user is named as in an
// image's configuration: by name or number, and a group may follow.
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
