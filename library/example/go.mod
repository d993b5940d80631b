module example

go 1.26.0

require (
	github.com/sandlane/sandlane v0.0.0
	sigs.k8s.io/controller-runtime v0.25.2
)

// A program outside this repository names a version instead.
replace github.com/sandlane/sandlane => ../..
