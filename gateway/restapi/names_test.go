package restapi

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
		`{"templateID":"base","metadata":{"a":"\ud83d"}}`, `{"templateID":"base","metadata":{"a":"\ude00"}}`,
		`{"templateID":"base","metadata":{"a":"\ud83dx\ude00"}}`, `{"templateID":"base","metadata":{"a":"\ude00\ud83d"}}`,
		`{"templateID":"base","metadata":{"a":"\uD83D\uD83D\uDE00"}}`, `{"templateID":"base","metadata":{"\ud83d":"a"}}`,
		`{"templateID":"base","metadata":{"a":"\\\ud83d"}}`, `{"templateID":"base","metadata":{"a":"\u0041\udfff"}}`,
	} {
		if w := ask(t, s, "POST", "/v2/sandboxes", keyA, body); w.Code != 400 {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	}
	for value, want := range map[string]string{
		"ä€😀": "ä€😀", `\ud83d\ude00\uD83D\uDE00`: "😀😀", `\\ud83d`: `\ud83d`, `\n\\\u0041\"`: "\n\\A\"", `\ufffd`: "\ufffd",
	} {
		if w := ask(t, s, "POST", "/v2/sandboxes", keyA, `{"templateID":"base","metadata":{"a":"`+value+`"}}`); w.Code != 201 {
			t.Errorf("%s: %d %s", value, w.Code, w.Body)
		} else if got := f.made[len(f.made)-1].Metadata["a"]; got != want {
			t.Errorf("%s: made with %q, want %q", value, got, want)
		}
	}
}
