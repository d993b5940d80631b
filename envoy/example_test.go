package envoy_test

import (
	"fmt"
	"strings"

	"github.com/sandlane/sandlane/envoy"
)

// The configuration of an Envoy beside a gateway, as a file that Envoy reads.
func Example() {
	o := envoy.Options{RunDir: "/run/sandlane", ListenAddress: "0.0.0.0"}
	o.Complete()
	if err := o.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	config, err := envoy.Bootstrap(o)
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := envoy.YAML(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(o.Port, o.ExtProcSocket, strings.Contains(string(text), o.ExtProcSocket))
	fmt.Println(envoy.Args("/run/sandlane/envoy.yaml", 2)[:2])
	// Output:
	// 8080 /run/sandlane/extproc.sock true
	// [--config-path /run/sandlane/envoy.yaml]
}
