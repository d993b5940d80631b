package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/sandlane/sandlane/conformance/sdk"
)

// Verdict is what a backend did with a case.
type Verdict string

// Works to Unproven are the verdicts. Unproven is for an answer that differs from what only
// this project says.
const (
	Works    Verdict = "works"
	Refused  Verdict = "refused"
	Wrong    Verdict = "wrong"
	Unproven Verdict = "unproven"
	NotTried Verdict = "not tried"
)

// Verdicts are all of them.
var Verdicts = []Verdict{Works, Refused, Wrong, Unproven, NotTried}

// Options say what Run asks.
type Options struct {
	// URL is where the REST API is, SandboxURL where the sandboxes are; URL unless set.
	URL, SandboxURL string
	Key             string
	// Template is the template of sandboxes; base unless set.
	Template string
	// SDKs are run too, each with all of its cases; their feature is "sdk".
	SDKs []sdk.SDK
	// Only are the cases to try, as FEATURE or FEATURE/CASE; all unless set.
	Only []string
	// Progress is told each result as soon as it is there.
	Progress func(Result)
}

// Result is what became of one case.
type Result struct {
	Feature string  `json:"feature"`
	Case    string  `json:"case"`
	With    string  `json:"with"` // wire, or an SDK
	Verdict Verdict `json:"verdict"`
	// Why says what is wrong, what refuses, or why it was not tried.
	Why    string `json:"why,omitempty"`
	Source string `json:"source,omitempty"`
	Millis int64  `json:"millis"`
}

const (
	// caseTime bounds a case, sandboxLife each sandbox, in seconds; cleanTime bounds taking
	// away what is left.
	caseTime    = 90 * time.Second
	sandboxLife = 300
	cleanTime   = 30 * time.Second
	// settleTime is how long after a stop a create may still show what it made.
	settleTime = 2 * time.Second
	retryPause = 100 * time.Millisecond
	// mark is in the metadata of each sandbox that the cases make, with the run's name.
	mark = "sandlane-conformance"
)

// run is one call of Run.
type run struct {
	o      Options
	name   string
	client *http.Client

	mu   sync.Mutex
	made map[string]bool // sandboxes and snapshots that may be there: paths to delete
}

// Run tries the cases one after the other and takes away what they made, also after ctx ends.
// The cases that were not reached then are not tried. The error is of what could not be taken
// away, or of wrong options.
func Run(ctx context.Context, o Options) (results []Result, err error) {
	features, err := Features()
	if err != nil {
		return nil, err
	}
	if o.SandboxURL == "" {
		o.SandboxURL = o.URL
	}
	if o.Template == "" {
		o.Template = "base"
	}
	o.URL, o.SandboxURL = strings.TrimRight(o.URL, "/"), strings.TrimRight(o.SandboxURL, "/")
	for _, one := range o.Only {
		if !isSDKCase(one) && !slices.ContainsFunc(features, func(f Feature) bool { return f.has(one) }) {
			return nil, fmt.Errorf("there is no case %s", one)
		}
	}
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 8,
		ForceAttemptHTTP2:   true,
	}
	defer transport.CloseIdleConnections()
	r := &run{o: o, name: uuid.NewString(), client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, made: map[string]bool{}}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		err = errors.Join(err, r.clean(clean, ctx.Err() != nil))
	}()
	tell := func(one Result) {
		results = append(results, one)
		if o.Progress != nil {
			o.Progress(one)
		}
	}
	for _, f := range features {
		r.feature(ctx, f, tell)
	}
	for _, s := range o.SDKs {
		r.sdk(ctx, s, tell)
	}
	return results, nil
}

// has says whether the feature is meant by FEATURE or FEATURE/CASE.
func (f Feature) has(one string) bool {
	name, only, _ := strings.Cut(one, "/")
	return name == f.Name && (only == "" || slices.ContainsFunc(f.Cases, func(c Case) bool { return c.Name == only }))
}

func (r *run) wants(f Feature, c Case) bool {
	return len(r.o.Only) == 0 || slices.Contains(r.o.Only, f.Name) || slices.Contains(r.o.Only, f.Name+"/"+c.Name)
}

// running is one case, or the shared sandbox of a file.
type running struct {
	*run
	vars map[string]any
	kept map[string]*answer
}

func (r *run) feature(ctx context.Context, f Feature, tell func(Result)) {
	var shared map[string]any
	var none error
	for _, c := range f.Cases {
		if !r.wants(f, c) {
			continue
		}
		one := Result{Feature: f.Name, Case: c.Name, With: "wire", Source: c.Source}
		began := time.Now()
		if c.Sandbox == "" && shared == nil && none == nil {
			shared, none = r.create(ctx, r.o.Template, nil)
		}
		switch {
		case ctx.Err() != nil:
			one.Verdict, one.Why = NotTried, "the run was stopped"
		case c.Sandbox == "" && none != nil:
			one.Verdict, one.Why = NotTried, none.Error()
		default:
			one.Verdict, one.Why = r.try(ctx, c, shared)
		}
		one.Millis = time.Since(began).Milliseconds()
		tell(one)
	}
	if id, _ := shared["id"].(string); id != "" {
		r.remove(context.WithoutCancel(ctx), "/sandboxes/"+id)
	}
}

// try runs a case's steps.
func (r *run) try(stopped context.Context, c Case, shared map[string]any) (Verdict, string) {
	ctx, cancel := context.WithTimeout(stopped, caseTime)
	defer cancel()
	one := running{run: r, vars: maps.Clone(shared), kept: map[string]*answer{}}
	if one.vars == nil {
		one.vars = map[string]any{}
	}
	defer one.close()
	one.vars["run"], one.vars["template"], one.vars["key"] = r.name, r.o.Template, r.o.Key
	if c.Sandbox == "own" {
		template := r.o.Template
		if c.Template != "" {
			template = c.Template
		}
		own, err := r.create(ctx, template, c.Create)
		var no *refusal
		switch {
		case errors.As(err, &no) && no.answer.refuses(c.Refusal):
			return Refused, err.Error()
		case errors.As(err, &no) && c.Template != "" && no.answer.status < 500:
			return NotTried, err.Error()
		case err != nil:
			return c.differs(stopped, err.Error())
		}
		maps.Copy(one.vars, own)
		defer r.remove(context.WithoutCancel(stopped), fmt.Sprintf("/sandboxes/%v", own["id"]))
	}
	for i, s := range c.Steps {
		a, why := one.step(ctx, s)
		if why == "" {
			continue
		}
		why = fmt.Sprintf("step %d: %s", i+1, why)
		if a.refuses(c.Refusal) {
			return Refused, why
		}
		return c.differs(stopped, why)
	}
	return Works, ""
}

// differs is the verdict of a case whose answer is not the wanted one.
func (c Case) differs(stopped context.Context, why string) (Verdict, string) {
	switch {
	case stopped.Err() != nil:
		return NotTried, "the run was stopped"
	case c.Source == "":
		return Unproven, why
	}
	return Wrong, why
}

// step asks once, or until the answer is the wanted one, and says how it is not.
func (r *running) step(ctx context.Context, s Step) (*answer, string) {
	end := time.Now().Add(time.Duration(s.Until) * time.Second)
	for {
		a, err := r.ask(ctx, s)
		why := ""
		if err != nil {
			why = err.Error()
		} else {
			r.note(s, a)
			why = s.Want.differs(a, r.vars)
		}
		if why == "" {
			return a, r.save(s, a)
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return a, why
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

// note remembers what a step made, to take it away at the end.
func (r *running) note(s Step, a *answer) {
	if a.status != http.StatusCreated || !strings.HasPrefix(s.REST, "POST ") {
		return
	}
	body := a.body()
	if id, ok := at(body, "sandboxID"); ok {
		r.remember(fmt.Sprint("/sandboxes/", id))
	}
	if id, ok := at(body, "snapshotID"); ok {
		r.remember(fmt.Sprint("/templates/", id))
	}
}

func (r *running) save(s Step, a *answer) string {
	for name, from := range s.Save {
		if header, ok := strings.CutPrefix(from, "header "); ok {
			r.vars[name] = a.header.Get(header)
			continue
		}
		v := a.body()
		if len(a.messages) > 0 {
			v = a.messages[0]
		}
		value, ok := at(v, from)
		if !ok {
			return "no " + from + " in " + shown(v)
		}
		r.vars[name] = value
	}
	return ""
}

// close ends the streams that are still open.
func (r *running) close() {
	for _, a := range r.kept {
		if a.rest != nil {
			_ = a.rest.body.Close()
		}
	}
}

// refusal is the error of a create that was answered.
type refusal struct{ answer *answer }

func (e *refusal) Error() string {
	return fmt.Sprintf("no sandbox: %d %s", e.answer.status, shown(e.answer.text))
}

// create makes a sandbox and returns its variables.
func (r *run) create(ctx context.Context, template string, more map[string]any) (map[string]any, error) {
	body := map[string]any{"templateID": template, "timeout": sandboxLife}
	maps.Copy(body, more)
	metadata := map[string]any{mark: r.name}
	if own, ok := body["metadata"].(map[string]any); ok {
		maps.Copy(metadata, own)
	}
	body["metadata"] = metadata
	one := running{run: r, vars: map[string]any{}, kept: map[string]*answer{}}
	s := Step{REST: "POST /v2/sandboxes", Body: body}
	a, err := one.ask(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("no sandbox: %w", err)
	}
	if a.status != http.StatusCreated {
		return nil, &refusal{a}
	}
	one.note(s, a)
	made, _ := a.body().(map[string]any)
	domain := made["domain"]
	if domain == nil {
		domain = "e2b.app" // as the SDKs have it
	}
	return map[string]any{"id": made["sandboxID"], "token": made["envdAccessToken"], "traffic": made["trafficAccessToken"], "domain": domain}, nil
}
