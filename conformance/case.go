package conformance

import (
	"embed"
	"errors"
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed cases
var files embed.FS

// Feature is one file of cases/.
type Feature struct {
	// Name is the file's, without .yaml.
	Name  string `json:"-"`
	Title string `json:"title"`
	Cases []Case `json:"cases"`
}

// Case is what a backend is asked and must answer.
type Case struct {
	Name string `json:"name"`
	// Source is where the expectation is from; empty is unproven.
	Source string `json:"source"`
	// Sandbox is where the steps go to: the file's shared one (the default), one of the
	// case's own, or none.
	Sandbox string `json:"sandbox"`
	// Create is added to the body of the create of an own sandbox.
	Create map[string]any `json:"create"`
	// Template replaces the run's template.
	Template string `json:"template"`
	// Refusal is a word that the message of a 400 has which refuses what is asked for, such
	// as a field's name. A 501 refuses without it.
	Refusal string `json:"refusal"`
	Steps   []Step `json:"steps"`
}

// Step is one request, by exactly one of REST, Envd, RPC, Stream, Port and Finish.
type Step struct {
	REST   string `json:"rest"`   // METHOD path of the REST API
	Envd   string `json:"envd"`   // METHOD path of the sandbox's daemon
	RPC    string `json:"rpc"`    // a unary Connect procedure of the daemon
	Stream string `json:"stream"` // a Connect procedure whose answer is a stream
	Port   string `json:"port"`   // PORT METHOD path, by the port's own host name
	Finish string `json:"finish"` // the rest of a stream that a step kept

	Body    any               `json:"body"` // sent as JSON
	Raw     *string           `json:"raw"`  // sent as it is
	File    *string           `json:"file"` // sent as the only file of a multipart form
	Headers map[string]string `json:"headers"`
	User    string            `json:"user"` // of the daemon's calls; user unless set
	Sign    *Signature        `json:"sign"`

	Want Want `json:"want"`
	// Save keeps values of the answer's body or first message, by a path with dots, or of a header.
	Save map[string]string `json:"save"`
	// Until asks again for so many seconds until the answer is the wanted one.
	Until int `json:"until"`
	// Keep names a stream that stays open after its first message.
	Keep string `json:"keep"`
}

// Signature is what SDKs add to a file's URL in place of the token.
type Signature struct {
	Path      string `json:"path"`
	Operation string `json:"operation"`
	User      string `json:"user"`
	// Expires is in how many seconds; 0 is never.
	Expires int `json:"expires"`
}

// Want is what an answer must be; what is left out is not looked at.
type Want struct {
	Status   []int             `json:"status"`
	Body     any               `json:"body"`
	Text     *string           `json:"text"`
	Match    string            `json:"match"`
	Headers  map[string]string `json:"headers"`
	Error    []string          `json:"error"`    // Connect codes
	Messages []any             `json:"messages"` // in this order, others between them
	Stdout   *string           `json:"stdout"`
	Stderr   *string           `json:"stderr"`
	PTY      string            `json:"pty"`
	Exit     *int              `json:"exit"`
	Bytes    *int              `json:"bytes"` // of stdout
}

// Features reads all files of cases/.
func Features() ([]Feature, error) {
	entries, err := files.ReadDir("cases")
	if err != nil {
		return nil, err
	}
	var all []Feature
	for _, e := range entries {
		text, err := files.ReadFile(path.Join("cases", e.Name()))
		if err != nil {
			return nil, err
		}
		f := Feature{Name: strings.TrimSuffix(e.Name(), ".yaml")}
		if err := yaml.UnmarshalStrict(text, &f); err != nil {
			return nil, fmt.Errorf("cases/%s: %w", e.Name(), err)
		}
		if err := f.validate(); err != nil {
			return nil, fmt.Errorf("cases/%s: %w", e.Name(), err)
		}
		all = append(all, f)
	}
	return all, nil
}

func (f Feature) validate() error {
	if f.Title == "" {
		return errors.New("no title")
	}
	seen := map[string]bool{}
	for _, c := range f.Cases {
		switch {
		case c.Name == "" || seen[c.Name]:
			return fmt.Errorf("case %q: the name is empty or there twice", c.Name)
		case c.Sandbox != "" && c.Sandbox != "own" && c.Sandbox != "none":
			return fmt.Errorf("case %s: no kind of sandbox: %q", c.Name, c.Sandbox)
		case c.Create != nil && c.Sandbox != "own":
			return fmt.Errorf("case %s: create is for a sandbox of its own", c.Name)
		case len(c.Steps) == 0:
			return fmt.Errorf("case %s: no steps", c.Name)
		}
		seen[c.Name] = true
		for i, s := range c.Steps {
			if err := s.validate(); err != nil {
				return fmt.Errorf("case %s, step %d: %w", c.Name, i+1, err)
			}
		}
	}
	return nil
}

func (s Step) validate() error {
	kinds := 0
	for _, kind := range []string{s.REST, s.Envd, s.RPC, s.Stream, s.Port, s.Finish} {
		if kind != "" {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("it has %d requests, not one", kinds)
	}
	return nil
}
