package main

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sandlane/sandlane/local"
)

// The output of a detached `up` is a log that stays: the API key goes to the terminal
// that detached it, and not there.
func TestDetachedUpKeepsTheKeyOutOfItsLog(t *testing.T) {
	up := local.UpFile{GatewayURL: "http://127.0.0.1:1", APIKey: "e2b_secret"}
	var screen, log bytes.Buffer
	ready(&screen, "/s", nil)(up)
	if !strings.Contains(screen.String(), up.APIKey) {
		t.Errorf("the user is not shown the key:\n%s", screen.String())
	}

	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	fd, err := syscall.Dup(int(out.Fd())) // the reporter's own, which it closes
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	t.Setenv("SANDLANE_UP_REPORT", strconv.Itoa(fd))
	ready(&log, "/s", local.NewReporter())(up)
	report, err := io.ReadAll(in)
	if err != nil || !strings.Contains(string(report), up.APIKey) {
		t.Errorf("whoever detached it is not told the key: %q, %v", report, err)
	}
	if strings.Contains(log.String(), up.APIKey) || !strings.Contains(log.String(), "is up") {
		t.Errorf("the log says:\n%s", log.String())
	}
}
