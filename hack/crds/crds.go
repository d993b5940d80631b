// Package crds holds the versions of the modules that build.sh takes definitions from.
package crds

import (
	_ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)
