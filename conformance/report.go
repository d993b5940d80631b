package conformance

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Formats are the names of the forms that Write knows.
var Formats = []string{"text", "markdown", "json", "junit"}

// Write writes results in one of the forms.
func Write(w io.Writer, format string, results []Result) error {
	switch format {
	case "text":
		return writeText(w, results)
	case "markdown":
		return writeMarkdown(w, results)
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(results)
	case "junit":
		return writeJUnit(w, results)
	}
	return fmt.Errorf("no format %q: %s", format, strings.Join(Formats, ", "))
}

// Count says how many results have each verdict.
func Count(results []Result) map[Verdict]int {
	n := map[Verdict]int{}
	for _, r := range results {
		n[r.Verdict]++
	}
	return n
}

func summary(results []Result) string {
	n := Count(results)
	var parts []string
	for _, v := range Verdicts {
		parts = append(parts, fmt.Sprintf("%d %s", n[v], v))
	}
	return strings.Join(parts, ", ")
}

func writeText(w io.Writer, results []Result) error {
	for _, r := range results {
		if err := WriteLine(w, r); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, summary(results))
	return err
}

// WriteLine writes a result as the text form has it.
func WriteLine(w io.Writer, r Result) error {
	why := ""
	if r.Why != "" {
		why = "  " + r.Why
	}
	_, err := fmt.Fprintf(w, "%-9s  %-20s %s%s\n", r.Verdict, r.With, r.Feature+"/"+r.Case, why)
	return err
}

// writeMarkdown has a line for each case and a column for each way that it was tried.
func writeMarkdown(w io.Writer, results []Result) error {
	var ways, names []string
	cells := map[string]map[string]Verdict{}
	for _, r := range results {
		name := r.Feature + "/" + r.Case
		if cells[name] == nil {
			cells[name] = map[string]Verdict{}
			names = append(names, name)
		}
		if !slices.Contains(ways, r.With) {
			ways = append(ways, r.With)
		}
		cells[name][r.With] = r.Verdict
	}
	var b strings.Builder
	b.WriteString("| case | " + strings.Join(ways, " | ") + " |\n|---|" + strings.Repeat("---|", len(ways)) + "\n")
	for _, name := range names {
		b.WriteString("| " + name + " |")
		for _, way := range ways {
			b.WriteString(" " + string(cells[name][way]) + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n" + summary(results) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Seconds float64       `xml:"time,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
}

// writeJUnit calls what is wrong a failure, and what is not tried, unproven or refused skipped.
func writeJUnit(w io.Writer, results []Result) error {
	suite := struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}{Name: "sandlane conformance", Tests: len(results)}
	for _, r := range results {
		c := junitCase{Class: r.Feature + " (" + r.With + ")", Name: r.Case, Seconds: float64(r.Millis) / 1000}
		switch r.Verdict {
		case Works:
		case Wrong:
			suite.Failures++
			c.Failure = &junitMessage{r.Why}
		case Refused, Unproven, NotTried:
			suite.Skipped++
			c.Skipped = &junitMessage{string(r.Verdict) + ": " + r.Why}
		}
		suite.Cases = append(suite.Cases, c)
	}
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}
