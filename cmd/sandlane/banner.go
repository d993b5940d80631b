package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sandlane/sandlane/local"
)

// banner is the last thing that a start says. Its lines can be pasted. An empty
// stop is `down`.
func banner(out io.Writer, stateDir string, up local.UpFile, stop string) {
	p, with, trust := program(), "", ""
	if usual, err := local.DefaultStateDir(); err != nil || usual != stateDir {
		with = " --state " + shellWord(stateDir)
	}
	if stop == "" {
		stop = "`" + p + " down" + with + "`"
	}
	if up.CAFile != "" {
		trust = " --cacert " + shellWord(up.CAFile)
	}
	fmt.Fprintf(out, `
Sandlane is up.            state  %s      stop with %s
  gateway     %s
  api key     %s
  console     %s

Try:
  curl%s -H 'X-Sandbox-Id: hello' -H 'X-Sandbox-Port: 8000' %s/
  %s kubectl%s get sandboxpools,sandboxes
  %s end%s hello

E2B's SDKs work without a change:
  pip install e2b    # or: npm install e2b
%s  python3 - <<'PY'
from e2b import Sandbox
with Sandbox.create() as sbx:
    print(sbx.commands.run("echo hello from $HOSTNAME; python3 --version").stdout)
    sbx.files.write("note.txt", "hi"); print(sbx.files.read("note.txt"))
PY
`, shortHome(stateDir), stop, gatewayURLs(up), up.APIKey, up.ConsoleURL, trust, up.GatewayURL, p, with, p, with, sdkVariables(up))
}

// sdkVariables is what points E2B's SDKs here. The two addresses of the mode
// without TLS would win over a domain; and SSL_CERT_FILE comes after pip, since it
// takes the place of the authorities that Python trusts otherwise.
func sdkVariables(up local.UpFile) string {
	if up.CAFile == "" {
		return fmt.Sprintf("  export E2B_API_KEY=%s  E2B_API_URL=%s  E2B_SANDBOX_URL=%s\n", up.APIKey, up.GatewayURL, up.GatewayURL)
	}
	ca := shellWord(up.CAFile)
	return fmt.Sprintf("  unset E2B_API_URL E2B_SANDBOX_URL\n  export E2B_API_KEY=%s  E2B_DOMAIN=%s\n", up.APIKey, up.Domain) +
		fmt.Sprintf("  export SSL_CERT_FILE=%s    # for Python\n", ca) +
		fmt.Sprintf("  export NODE_EXTRA_CA_CERTS=%s  NODE_OPTIONS=%s    # for Node\n", ca, shellWord(nodeRequire(up.NodeResolve)))
}

// nodeRequire is the value of NODE_OPTIONS that loads a file first.
func nodeRequire(file string) string {
	if strings.ContainsAny(file, ` "\`) {
		file = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(file) + `"`
	}
	return "--require=" + file
}

// shellWord quotes a word where a shell would take it apart.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-=+:@%,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// gatewayURLs is where clients connect, one a line.
func gatewayURLs(up local.UpFile) string {
	urls := up.GatewayURL
	for _, g := range up.Gateways {
		if g.URL == up.GatewayURL {
			continue
		}
		urls += fmt.Sprintf("\n  %-11s %s", g.Name, g.URL)
	}
	return urls
}

// program is this program as the user called it.
func program() string { return os.Args[0] }

func shortHome(path string) string {
	if home, err := os.UserHomeDir(); err == nil && strings.HasPrefix(path, home+"/") {
		return "~" + strings.TrimPrefix(path, home)
	}
	return path
}
