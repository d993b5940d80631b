package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// logOptions say what the lines of a process's log are.
type logOptions struct {
	format, level string
	now           *slog.LevelVar // the level while the process runs; set by open
}

func (o *logOptions) flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.format, "log-format", "text", "lines of the log: text or json")
	flags.StringVar(&o.level, "log-level", "info", "least level that is logged: debug, info, warn or error; /log-level on the metrics address changes it")
}

// open returns the log of a process, and has all libraries use it.
func (o *logOptions) open(w io.Writer) (*slog.Logger, error) {
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
	logWith(l)
	return l, nil
}
