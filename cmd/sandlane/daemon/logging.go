// Package daemon is what all long-running commands of sandlane share: the log and its
// level, build information, the address of metrics and what answers there, and how much of
// the machine a process takes. The commands of package main call it.
package daemon

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// LogOptions say what the lines of a process's log are. Fill them by Flags.
type LogOptions struct {
	format, level string
	now           *slog.LevelVar // the level while the process runs; set by Open
}

// Flags adds the flags of the log to a command's.
func (o *LogOptions) Flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.format, "log-format", "text", "lines of the log: text or json")
	flags.StringVar(&o.level, "log-level", "info", "least level that is logged: debug, info, warn or error; /log-level on the metrics address changes it")
}

// Open returns the log of a process, and has all libraries use it.
func (o *LogOptions) Open(w io.Writer) (*slog.Logger, error) {
	level, err := parseLevel(o.level)
	if err != nil {
		return nil, fmt.Errorf("--log-level %w", err)
	}
	o.now = new(slog.LevelVar)
	o.now.Set(level)
	handler := &slog.HandlerOptions{Level: o.now}
	var l *slog.Logger
	switch o.format {
	case "text":
		l = slog.New(slog.NewTextHandler(w, handler))
	case "json":
		l = slog.New(slog.NewJSONHandler(w, handler))
	default:
		return nil, fmt.Errorf("--log-format %q: must be text or json", o.format)
	}
	LogWith(l)
	return l, nil
}

// LogWith sends what every library says to one log.
func LogWith(l *slog.Logger) {
	slog.SetDefault(l)
	sink := logr.FromSlogHandler(l.Handler())
	ctrllog.SetLogger(sink)
	klog.SetLogger(sink)
}
