package main

import (
	"os"
	"os/signal"
	"syscall"
)

// heedSignals gives the command the default action of signals that podinit was started
// to ignore, as by `nohup sandlane up`: a program inherits what is ignored, not what is
// handled. These are the two that Go leaves ignored; it handles the others itself.
func heedSignals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}
