package main

import (
	"bytes"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"testing"
)

// The floor answers with the fields that it claims to, and its memory does not grow.
func TestFloor(t *testing.T) {
	m := fieldsOf("b7", netip.MustParseAddr("127.1.0.7"), 8000).answer()
	got := m.GetDynamicMetadata().GetFields()["sandlane"].GetStructValue().GetFields()
	want := []string{"answered", "claim", "destination", "pod_uid", "port", "sandbox_id"} // docs/design, 5
	if got := slices.Sorted(maps.Keys(got)); !reflect.DeepEqual(got, want) {
		t.Errorf("metadata %v, want %v", got, want)
	}
	if got := got["destination"].GetStringValue(); got != "127.1.0.7:8000" {
		t.Errorf("destination %s", got)
	}
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(text, []byte("\n")); lines >= 100 {
		t.Errorf("the floor has %d lines: it is to be seen at a glance that it does nothing", lines)
	}
}
