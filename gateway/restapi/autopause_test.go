package restapi

import (
	"strings"
	"testing"
	"time"
)

// What a create says of the timeout is done, or refused with the field's name.
func TestAutoPause(t *testing.T) {
	for _, c := range []struct {
		body          string
		status        int
		text          string
		pause, resume bool
		lifecycle     string
	}{
		{`{"templateID":"base"}`, 201, "", false, false, `"lifecycle":{"autoResume":false,"onTimeout":"kill"}`},
		{`{"templateID":"base","autoPause":false,"autoPauseMemory":true}`, 201, "", false, false, `"onTimeout":"kill"`},
		{`{"templateID":"base","autoPause":true}`, 201, "", true, false, `"lifecycle":{"autoResume":false,"onTimeout":"pause"}`},
		{`{"templateID":"base","autoPause":true,"autoResume":{"enabled":true}}`, 201, "", true, true, `"lifecycle":{"autoResume":true,"onTimeout":"pause"}`},
		{`{"templateID":"base","autoResume":{"enabled":true}}`, 400, "autoResume", false, false, ""},
		{`{"templateID":"base","autoPause":true,"autoPauseMemory":false}`, 400, "autoPauseMemory", false, false, ""},
		{`{"templateID":"deep","autoPause":true,"autoPauseMemory":false}`, 201, "", true, false, `"lifecycle":{"autoResume":false,"onTimeout":"pause"}`},
		{`{"templateID":"deep","autoPause":true}`, 400, "autoPause", false, false, ""},
		{`{"templateID":"deep","autoPauseMemory":false}`, 400, "autoPauseMemory", false, false, ""},
		{`{"templateID":"deep","autoPause":false,"autoPauseMemory":false}`, 400, "autoPauseMemory", false, false, ""},
		{`{"templateID":"deep","autoPause":false,"autoPauseMemory":true}`, 201, "", false, false, `"onTimeout":"kill"`},
		{`{"templateID":"deep","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`, 400, "autoPauseMemory", false, false, ""},
		{`{"templateID":"stiff","autoPause":true}`, 400, "autoPause", false, false, ""},
		{`{"templateID":"resting"}`, 201, "", true, true, `"lifecycle":{"autoResume":true,"onTimeout":"pause"}`},
		{`{"templateID":"resting","autoResume":{"enabled":false}}`, 201, "", true, false, `"lifecycle":{"autoResume":false,"onTimeout":"pause"}`},
		{`{"templateID":"resting","autoPause":false}`, 201, "", false, false, `"onTimeout":"kill"`},
		{`{"templateID":"resting","autoPauseMemory":false}`, 400, "autoPauseMemory", false, false, ""},
		{`{"templateID":"deep-resting","autoPauseMemory":false}`, 201, "", true, false, `"lifecycle":{"autoResume":false,"onTimeout":"pause"}`},
		{`{"templateID":"deep-resting","autoPause":false,"autoPauseMemory":false}`, 400, "autoPauseMemory", false, false, ""},
		{`{"templateID":"deep-alone"}`, 201, "", true, false, `"lifecycle":{"autoResume":false,"onTimeout":"pause"}`},
		{`{"templateID":"deep-alone","autoPause":false}`, 201, "", false, false, `"onTimeout":"kill"`},
		{`{"templateID":"deep-alone","autoPause":true}`, 400, "autoPause", false, false, ""},
		{`{"templateID":"deep-never"}`, 201, "", false, false, `"onTimeout":"kill"`},
	} {
		f := newFake()
		s := newServer(t, f, func(o *Options) {
			o.Snapshots = &fakeSnapshots{}
			o.Templates = fakeTemplates{{ID: "base", Pool: "base", MaxLifetime: time.Hour, Pausable: true}, {ID: "stiff", Pool: "stiff", MaxLifetime: time.Hour},
				{ID: "deep", Pool: "deep", MaxLifetime: time.Hour, Hibernates: true},
				{ID: "resting", Pool: "resting", MaxLifetime: time.Hour, Pausable: true, AutoPause: true, AutoResume: true},
				{ID: "deep-resting", Pool: "deep-resting", MaxLifetime: time.Hour, Pausable: true, Hibernates: true, AutoPause: true, AutoResume: true},
				{ID: "deep-alone", Pool: "deep-alone", MaxLifetime: time.Hour, Hibernates: true, AutoPause: true, AutoPauseFiles: true, AutoResume: true},
				{ID: "deep-never", Pool: "deep-never", MaxLifetime: time.Hour, AutoPause: true, AutoPauseFiles: true, AutoResume: true}}
		})
		w := ask(t, s, "POST", "/v2/sandboxes", keyA, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) || c.status == 400 && len(f.made) != 0 {
			t.Errorf("%s: %d %s", c.body, w.Code, w.Body)
		}
		if c.status != 201 {
			continue
		}
		n := f.made[0]
		if n.AutoPauseFiles != (n.AutoPause && strings.HasPrefix(n.Pool, "deep")) || n.AutoPause != c.pause || n.AutoResume != c.resume || n.Lifetime != 300*time.Second {
			t.Errorf("%s: %+v", c.body, n)
		}
		if w := ask(t, s, "GET", "/sandboxes/"+n.ID, keyA, ""); !strings.Contains(w.Body.String(), c.lifecycle) {
			t.Errorf("%s: %s", c.body, w.Body)
		}
	}
}

// A pool whose sandboxes are resumed whatever they have kept resumes those of the API so too,
// unless the client switches the resume off; a client cannot ask for that itself.
func TestAutoResumeOfThePool(t *testing.T) {
	for _, c := range []struct {
		template, body                 string
		pause, files, resume, anything bool
	}{
		{"always", ``, true, false, true, true},
		{"always", `,"autoPause":true`, true, false, true, true},
		{"always", `,"autoPause":true,"autoResume":{"enabled":true}`, true, false, true, true},
		{"always", `,"autoResume":{"enabled":false}`, true, false, false, false},
		{"always", `,"autoPause":false`, false, false, false, false},
		{"always", `,"autoPauseMemory":false`, true, true, true, true},
		{"always", `,"autoPause":true,"autoPauseMemory":false`, true, true, true, true},
		{"always", `,"autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":false}`, true, true, false, false},
		{"memory", ``, true, false, true, false},
		{"memory", `,"autoPause":true,"autoResume":{"enabled":true}`, true, false, true, false},
		{"memory", `,"autoPause":true,"autoPauseMemory":false`, true, true, false, false},
		{"alone", ``, true, true, true, true},
		{"alone", `,"autoResume":{"enabled":false}`, true, true, false, false},
	} {
		f := newFake()
		s := newServer(t, f, func(o *Options) {
			o.Snapshots = &fakeSnapshots{}
			both := Template{ID: "memory", Pool: "memory", MaxLifetime: time.Hour, Pausable: true, Hibernates: true, AutoPause: true, AutoResume: true}
			always := both
			always.ID, always.Pool, always.AutoResumeFiles = "always", "always", true
			alone := always
			alone.ID, alone.Pool, alone.Pausable, alone.AutoPauseFiles = "alone", "alone", false, true
			o.Templates = fakeTemplates{both, always, alone}
		})
		w := ask(t, s, "POST", "/v2/sandboxes", keyA, `{"templateID":"`+c.template+`"`+c.body+`}`)
		if w.Code != 201 {
			t.Errorf("%s%s: %d %s", c.template, c.body, w.Code, w.Body)
			continue
		}
		if n := f.made[0]; n.AutoPause != c.pause || n.AutoPauseFiles != c.files || n.AutoResume != c.resume || n.AutoResumeFiles != c.anything {
			t.Errorf("%s%s: %+v", c.template, c.body, n)
		}
	}
}
