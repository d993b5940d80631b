package e2b

import (
	"testing"
	"time"
)

// A field counts only as openapi.yaml writes it: under another case it was not
// checked, so it must not be read. E2B ignores names that it does not know.
func TestNamesCountAsTheyAreWritten(t *testing.T) {
	f := newFake()
	s := newServer(t, f, nil)
	for _, c := range []struct {
		path, body string
		code       int
	}{
		{"/sandboxes/" + idA + "/timeout", `{"timeout":60,"Timeout":-9446744073}`, 204},
		{"/sandboxes/" + idA + "/timeout", `{"Timeout":-9446744073}`, 400},
		{"/sandboxes/" + idA + "/timeout", `{"timeout":-1}`, 400},
		{"/sandboxes/" + idA + "/timeout", `{"timeout":9223372036854775807}`, 204}, // as much as there is
		{"/sandboxes/" + idA + "/timeout", `{"timeout":9223372036854775808}`, 400},
		{"/sandboxes/" + idA + "/refreshes", `{"Duration":9223372036854775807}`, 204},
		{"/sandboxes/" + idA + "/refreshes", `{"duration":9223372036854775807}`, 400},
		{"/sandboxes/" + idA + "/connect", `{"timeout":60,"TIMEOUT":9223372036854775807}`, 200},
		{"/v2/sandboxes/" + idA + "/connect", `{"TimeOut":-9446744073}`, 200},
		{"/v2/sandboxes", `{"templateID":"base","timeout":60,"TIMEOUT":-9446744073,"unknown":1}`, 201},
		{"/v2/sandboxes", `{"templateID":"base","Metadata":{"a":"b"}}`, 201},
		{"/sandboxes", `{"templateID":"base","SECURE":true,"secure":false}`, 201},
	} {
		w := ask(t, s, "POST", c.path, keyA, c.body)
		if w.Code != c.code {
			t.Errorf("%s %s: %d %s, want %d", c.path, c.body, w.Code, w.Body, c.code)
		}
	}
	now, longest := time.Now(), time.Now().Add(time.Hour+time.Minute)
	for _, n := range f.made {
		if n.EndAt.Before(now.Add(-time.Minute)) || n.EndAt.After(longest) || len(n.Metadata) > 0 {
			t.Errorf("it was made to end at %v, with the metadata %v", n.EndAt, n.Metadata)
		}
	}
	if n := len(f.made); n != 3 || f.made[n-1].Secure {
		t.Errorf("%d were made, the last secured: %v", n, f.made[n-1].Secure)
	}
	for _, at := range f.moved {
		if at.Before(now.Add(-time.Minute)) || at.After(longest) {
			t.Errorf("an end was moved to %v", at)
		}
	}
}

// Text that is not UTF-8 could not be given back as it came.
func TestBodyMustBeUTF8(t *testing.T) {
	f := newFake()
	s := newServer(t, f, nil)
	for _, body := range []string{
		"{\"templateID\":\"base\",\"metadata\":{\"a\":\"\xff\"}}", "{\"templateID\":\"base\",\"metadata\":{\"\xc3\x28\":\"a\"}}",
		"{\"templateID\":\"base\",\"envVars\":{\"A\":\"\xed\xa0\x80\"}}",
	} {
		if w := ask(t, s, "POST", "/v2/sandboxes", keyA, body); w.Code != 400 {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	}
	if w := ask(t, s, "POST", "/v2/sandboxes", keyA, `{"templateID":"base","metadata":{"a":"ä€😀"}}`); w.Code != 201 || len(f.made) != 1 {
		t.Errorf("valid UTF-8: %d %s; made %d", w.Code, w.Body, len(f.made))
	}
}
