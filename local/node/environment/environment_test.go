package environment

import "testing"

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "B": "two"}
	for in, want := range map[string]string{
		"$(A)-$(B)": "1-two", "$(C)": "$(C)", "$$(A)": "$(A)", "$A": "$A", "$": "$", "$(": "$(", "a$(A": "a$(A", "": "",
	} {
		if got := Expand(in, values); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
