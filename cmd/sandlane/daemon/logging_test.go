package daemon

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// Lines of our own and of libraries have the same form, and the level holds.
func TestLogOptions(t *testing.T) {
	before := slog.Default()
	t.Cleanup(func() { LogWith(before) })
	var out bytes.Buffer
	o := LogOptions{format: "json", level: "warn"}
	log, err := o.Open(&out)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("left out")
	log.Warn("a warning", "sandbox", "s")
	klog.Background().Error(nil, "of a library")
	var messages []string
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		messages = append(messages, fields["msg"].(string))
	}
	if strings.Join(messages, ", ") != "a warning, of a library" {
		t.Errorf("messages are %q", messages)
	}
	for _, bad := range []LogOptions{{format: "xml", level: "info"}, {format: "text", level: "loud"}} {
		if _, err := bad.Open(&out); err == nil || !strings.Contains(err.Error(), "must be") {
			t.Errorf("%+v: %v, want it refused", bad, err)
		}
	}
}
