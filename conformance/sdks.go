package conformance

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandlane/sandlane/conformance/sdk"
)

const (
	// sdkFeature is the feature of all cases that an SDK's program has.
	sdkFeature = "sdk"
	// sdkTime bounds an SDK's program, its installation included.
	sdkTime = 15 * time.Minute
)

// answered501 is how the programs say that an SDK was answered with that status: the error's
// class, and its message, which begins with it.
var answered501 = regexp.MustCompile(`^\w+: 501: `)

// isSDKCase says whether FEATURE or FEATURE/CASE is one of an SDK's program.
func isSDKCase(one string) bool {
	name, only, _ := strings.Cut(one, "/")
	return name == sdkFeature && (only == "" || slices.ContainsFunc(sdk.Cases, func(c sdk.Case) bool { return c.Name == only }))
}

// sdk runs an SDK's program and tells what became of each case that was asked for.
func (r *run) sdk(stopped context.Context, s sdk.SDK, tell func(Result)) {
	var wanted, names []string
	for _, c := range sdk.Cases {
		if len(r.o.Only) > 0 && !slices.Contains(r.o.Only, sdkFeature) && !slices.Contains(r.o.Only, sdkFeature+"/"+c.Name) {
			continue
		}
		if wanted = append(wanted, c.Name); c.Needs == "" {
			names = append(names, c.Name)
		}
	}
	ctx, cancel := context.WithTimeout(stopped, sdkTime)
	defer cancel()
	became := map[string]bool{}
	report := func(got sdk.Result) {
		became[got.Name] = true
		tell(resultOf(s, got))
	}
	var err error
	if len(names) > 0 {
		_, err = s.Run(ctx, sdk.Options{
			Only: names, Tell: report,
			Env: []string{"E2B_API_KEY=" + r.o.Key, "E2B_API_URL=" + r.o.URL, "E2B_SANDBOX_URL=" + r.o.SandboxURL, "CONFORMANCE_RUN=" + r.name, "TEST_BOOT_ID=any"},
		})
	}
	for _, c := range sdk.Cases {
		if became[c.Name] || !slices.Contains(wanted, c.Name) {
			continue
		}
		one := Result{Feature: sdkFeature, Case: c.Name, With: s.String(), Verdict: NotTried, Source: "SDK " + s.String()}
		switch {
		case c.Needs != "":
			one.Why, one.Source = "needs "+c.Needs, ""
		case stopped.Err() != nil:
			one.Why = "the run was stopped"
		case err != nil:
			one.Why = err.Error()
		default:
			one.Why = fmt.Sprintf("the program of %s does not have it", s)
		}
		tell(one)
	}
}

// resultOf judges what a program printed of a case.
func resultOf(s sdk.SDK, got sdk.Result) Result {
	one := Result{Feature: sdkFeature, Case: got.Name, With: s.String(), Verdict: Works, Source: "SDK " + s.String(), Millis: int64(got.MS)}
	if !got.OK {
		one.Verdict, one.Why = Wrong, got.Error
		if answered501.MatchString(got.Error) {
			one.Verdict = Refused
		}
	}
	return one
}
