package sandboxd

import "strings"

const (
	// ownPrefix marks sandboxd's own settings, which commands never get.
	ownPrefix = "SANDBOXD_"
	// imageEnv is the variable that names those which commands get of sandboxd's own
	// environment, beside PATH. An image sets it to the names of its variables: what
	// the pod adds (KUBERNETES_SERVICE_HOST, the addresses of services) and what the
	// image set cannot be told apart from inside.
	imageEnv = ownPrefix + "ENV"

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
