package stack

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/sandlane/sandlane/access"
)

// auditFlag has `up` record every request of gateways and controller.
const auditFlag = "--audit"

// AuditEvent is the part of an audit record that tests read: one answered request
// to the API server.
type AuditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	UserAgent string `json:"userAgent"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// Audit reads the API server's audit log: writes of pods and sandboxes, and with
// the argument --audit all that gateways and controller asked for.
func (s *Stack) Audit() ([]AuditEvent, error) {
	var events []AuditEvent
	err := s.eachRequest(func(e *AuditEvent) { events = append(events, *e) })
	return events, err
}

// eachRequest calls visit for each record of the log, of which there may be more
// than fit into memory.
func (s *Stack) eachRequest(visit func(*AuditEvent)) error {
	files, err := filepath.Glob(filepath.Join(s.State, "audit*.log"))
	if err != nil {
		return err
	}
	sort.Strings(files) // those that are full have the time in their name
	for _, file := range files {
		if err := readAudit(file, visit); err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
	}
	return nil
}

func readAudit(file string, visit func(*AuditEvent)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e AuditEvent
		if json.Unmarshal(lines.Bytes(), &e) == nil { // the last one may be half written
			visit(&e)
		}
	}
	return lines.Err()
}

// CheckRights compares what gateways and controller have asked the API server for
// with the list of their rights. It returns each verb of a right that none of them
// used, and an error for what the list does not have, and for what RBAC or an
// admission policy refused. The stack must have been started with --audit.
func (s *Stack) CheckRights() (unused []string, err error) {
	var o access.Options
	o.Complete()
	asked, used, wrong := map[access.Process]int{}, map[string]bool{}, map[string]int{}
	// An API server that has just started refuses everything until it has read its
	// roles; what RBAC grants later is no missing right.
	forbidden, granted := map[string]string{}, map[string]bool{}
	err = s.eachRequest(func(e *AuditEvent) {
		for _, p := range access.Processes() {
			if e.User.Username != o.Username(p) || e.ObjectRef.Resource == "" {
				continue
			}
			asked[p]++
			what := fmt.Sprintf("%s: %s", p, e.what())
			switch {
			case e.forbidden():
				forbidden[what] = e.ResponseStatus.Message
			case e.refusedByPolicy():
				wrong[fmt.Sprintf("%s was refused: %s", what, e.ResponseStatus.Message)]++
			default:
				granted[what] = true
			}
			listed := false
			for _, r := range access.Rights(p) {
				if e.within(r, o) {
					used[useOf(p, r, e.Verb)], listed = true, true
				}
			}
			if !listed {
				wrong[fmt.Sprintf("%s asked to %s, which is not in the list of its rights", p, e.what())]++
			}
		}
	})
	for what, message := range forbidden {
		if !granted[what] {
			wrong[fmt.Sprintf("%s was refused: %s", what, message)]++
		}
	}
	errs := []error{err}
	for _, p := range access.Processes() {
		if asked[p] == 0 && p != access.Egress { // it runs where it is asked for
			errs = append(errs, fmt.Errorf("the audit log has no request of the %s", p))
		}
		for _, r := range access.Rights(p) {
			for _, verb := range r.Verbs {
				if use := useOf(p, r, verb); !used[use] && r.When == "" {
					unused = append(unused, use)
				}
			}
		}
	}
	for what, times := range wrong {
		errs = append(errs, fmt.Errorf("%s (%d times)", what, times))
	}
	return unused, errors.Join(errs...)
}

func useOf(p access.Process, r access.Right, verb string) string {
	return fmt.Sprintf("%s: %s %s/%s in the %s %s", p, verb, r.Group, r.Resource, r.Scope, strings.Join(r.Names, ","))
}

func (e *AuditEvent) resource() string {
	return strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
}

func (e *AuditEvent) what() string {
	namespace := e.ObjectRef.Namespace
	if !slices.Contains([]string{"", access.DefaultSystemNamespace, access.DefaultKeyNamespace}, namespace) {
		namespace = "a pool namespace"
	}
	return fmt.Sprintf("%s %s/%s in %q", e.Verb, e.ObjectRef.APIGroup, e.resource(), namespace)
}

// forbidden reports whether RBAC refused the request. Other things answer 403 too: a
// quota, a namespace that ends.
func (e *AuditEvent) forbidden() bool {
	return e.Annotations["authorization.k8s.io/decision"] == "forbid"
}

// refusedByPolicy reports whether one of our admission policies did; tests have others,
// which refuse pods as a quota would.
func (e *AuditEvent) refusedByPolicy() bool {
	return slices.ContainsFunc(access.Processes(), func(p access.Process) bool {
		return strings.Contains(e.ResponseStatus.Message, "ValidatingAdmissionPolicy '"+access.AccountName(p)+"-")
	})
}

// within reports whether the right covers the request.
func (e *AuditEvent) within(r access.Right, o access.Options) bool {
	ref := &e.ObjectRef
	if ref.APIGroup != r.Group || e.resource() != r.Resource || !slices.Contains(r.Verbs, e.Verb) ||
		len(r.Names) > 0 && !slices.Contains(r.Names, ref.Name) {
		return false
	}
	ours := ref.Namespace == o.SystemNamespace || ref.Namespace == o.KeyNamespace
	switch r.Scope {
	case access.Cluster:
		return true
	case access.Pools, access.Bound:
		return ref.Namespace != "" && !ours
	case access.System:
		return ref.Namespace == o.SystemNamespace
	case access.Keys:
		return ref.Namespace == o.KeyNamespace
	}
	return false
}
