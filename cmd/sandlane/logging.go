package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// logOptions say what the lines of a process's log are.
type logOptions struct{ format, level string }

func (o *logOptions) flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.format, "log-format", "text", "lines of the log: text or json")
	flags.StringVar(&o.level, "log-level", "info", "least level that is logged: debug, info, warn or error")
}

// open returns the log of a process, and has all libraries use it.
func (o *logOptions) open(w io.Writer) (*slog.Logger, error) {
	handler := &slog.HandlerOptions{}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: must be debug, info, warn or error", o.level)
	}
	handler.Level = level
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
