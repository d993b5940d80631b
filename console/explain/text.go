package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
)

// oneLine makes a line of what strangers wrote, such as a pod's last message: it ends where it
// does, and moves neither a terminal's cursor nor the direction of what follows.
func oneLine(text string) string { return printable(strings.Join(strings.Fields(text), " ")) }

func printable(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, line)
}

// Text is the report as the command and the console show it.
func (r Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sandbox %s: %s\n", r.ID, r.State)
	for _, l := range r.Lines {
		fmt.Fprintf(&b, "  %-9s %s\n", l[0], printable(l[1]))
	}
	b.WriteString("\n" + Text(r.Findings))
	section(&b, "events", r.Events)
	section(&b, "logs", r.Logged)
	section(&b, "not read", r.Unread)
	return b.String()
}

// Text is a list of findings, one or two lines each.
func Text(all []Finding) string {
	if len(all) == 0 {
		return "nothing is wrong as far as is known\n"
	}
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%-4s  %s: %s\n", f.Level, f.About, oneLine(f.Text))
		if f.Do != "" {
			fmt.Fprintf(&b, "      do: %s\n", f.Do)
		}
	}
	return b.String()
}

func section(b *strings.Builder, name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", name)
	for _, line := range lines {
		fmt.Fprintf(b, "  %s\n", printable(line))
	}
}

// events are the newest Events, the newest last.
func events(f Facts) []string {
	sorted := slices.Clone(f.Events)
	slices.SortStableFunc(sorted, func(a, b corev1.Event) int { return Happened(&a).Compare(Happened(&b)) })
	var lines []string
	for i := range sorted {
		e := &sorted[i]
		lines = append(lines, fmt.Sprintf("%5s ago  %s  %s/%s: %s", ago(f.Now, Happened(e)), e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, oneLine(e.Message)))
	}
	return last(lines, mostLines)
}

// Happened is when an Event last happened.
func Happened(e *corev1.Event) time.Time {
	switch {
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}
