package sandboxid

import (
	"strings"
	"testing"
)

func TestShort(t *testing.T) {
	const idA = "iaaaaaaaaaaaaaaaaaaaa"
	for given, want := range map[string]string{
		idA: idA, idA + "-6532622b": idA, idA + "-x-y": idA, idA + "b": idA + "b",
		"my-own-1": "my-own-1", "i-short": "i-short", "x": "x",
		"": "", "-x": "", "x-": "", "Ax": "", "a.b": "", "a/b": "", strings.Repeat("a", 58): "",
	} {
		if got, ok := Short(given); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", given, got, ok)
		}
	}
	if a, b := New(), New(); a == b || !generated.MatchString(a) || len(a) != 21 {
		t.Errorf("new IDs %q and %q", a, b)
	}
}
