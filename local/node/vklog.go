package node

import (
	"fmt"
	"log/slog"

	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
)

// libraryLog passes on virtual-kubelet's messages that carry an error, at
// level warn; its other complaints are about things that the node does
// itself. The library's own adapter panics on a message that is no string.
type libraryLog struct {
	log *slog.Logger
	err bool
}

func (l libraryLog) say(message string) {
	if l.err {
		l.log.Warn(message)
	}
}

func (libraryLog) Debug(...any)          {}
func (libraryLog) Debugf(string, ...any) {}
func (libraryLog) Info(...any)           {}
func (libraryLog) Infof(string, ...any)  {}

func (l libraryLog) Warn(...any)                  {}
func (l libraryLog) Warnf(string, ...any)         {}
func (l libraryLog) Error(args ...any)            { l.say(fmt.Sprint(args...)) }
func (l libraryLog) Errorf(f string, args ...any) { l.say(fmt.Sprintf(f, args...)) }
func (l libraryLog) Fatal(args ...any)            { l.say(fmt.Sprint(args...)) }
func (l libraryLog) Fatalf(f string, args ...any) { l.say(fmt.Sprintf(f, args...)) }

func (l libraryLog) WithField(string, any) vklog.Logger   { return l }
func (l libraryLog) WithFields(vklog.Fields) vklog.Logger { return l }
func (l libraryLog) WithError(err error) vklog.Logger {
	return libraryLog{log: l.log.With("error", err), err: true}
}
