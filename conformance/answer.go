package conformance

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// answer is what a step got.
type answer struct {
	status   int
	header   http.Header
	text     string
	messages []any // of a stream
	failure  any   // how a stream or a Connect call failed, as an object with code and message
	rest     *stream
}

// body is the answer's JSON; nil if it is none.
func (a *answer) body() (v any) {
	if json.Unmarshal([]byte(a.text), &v) != nil {
		return nil
	}
	return v
}

// refuses says whether the answer refuses in the words that SDKs understand: an error object
// with 501, or with 400 and the word that names what is refused.
func (a *answer) refuses(word string) bool {
	if a == nil {
		return false
	}
	body, _ := a.body().(map[string]any)
	message, _ := body["message"].(string)
	if message == "" {
		return false
	}
	return a.status == http.StatusNotImplemented || body["code"] == "unimplemented" ||
		a.status == http.StatusBadRequest && word != "" && strings.Contains(message, word)
}

// output joins what a process wrote.
func (a *answer) output(kind string) string {
	var b strings.Builder
	for _, m := range a.messages {
		if part, ok := at(m, "event.data."+kind); ok {
			text, _ := part.(string)
			bytes, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return "not base64: " + text
			}
			b.Write(bytes)
		}
	}
	return b.String()
}

// differs says how the answer is not the wanted one.
func (w Want) differs(a *answer, vars map[string]any) string {
	if len(w.Status) > 0 && !slices.Contains(w.Status, a.status) {
		return fmt.Sprintf("status %d instead of %v: %s", a.status, w.Status, shown(a.text))
	}
	code := ""
	if a.failure != nil {
		c, _ := at(a.failure, "code")
		code, _ = c.(string)
	}
	switch {
	case len(w.Error) > 0 && !slices.Contains(w.Error, code):
		return fmt.Sprintf("error %q instead of %v: %s", code, w.Error, shown(a.text))
	case len(w.Error) == 0 && a.failure != nil:
		return "failed: " + shown(a.failure)
	}
	for name, pattern := range w.Headers {
		pattern, _ = filled(pattern, vars).(string)
		if ok, err := regexp.MatchString(pattern, a.header.Get(name)); err != nil || !ok {
			return fmt.Sprintf("header %s is %q, not %s", name, a.header.Get(name), pattern)
		}
	}
	if w.Body != nil {
		if d := differs(a.body(), filled(w.Body, vars)); d != "" {
			return d
		}
	}
	if w.Text != nil {
		if want, _ := filled(*w.Text, vars).(string); a.text != want {
			return shown(a.text) + " instead of " + shown(want)
		}
	}
	if w.Match != "" {
		pattern, _ := filled(w.Match, vars).(string)
		if ok, err := regexp.MatchString(pattern, a.text); err != nil || !ok {
			return shown(a.text) + " is not " + pattern
		}
	}
	return w.differsStream(a, vars)
}

func (w Want) differsStream(a *answer, vars map[string]any) string {
	if messages, _ := filled(w.Messages, vars).([]any); len(messages) > 0 {
		if d := misses(a.messages, messages); d != "" {
			return d
		}
	}
	for kind, want := range map[string]*string{"stdout": w.Stdout, "stderr": w.Stderr} {
		if want == nil {
			continue
		}
		if text, _ := filled(*want, vars).(string); a.output(kind) != text {
			return kind + " is " + shown(a.output(kind)) + " instead of " + shown(text)
		}
	}
	if w.Bytes != nil && len(a.output("stdout")) != *w.Bytes {
		return fmt.Sprintf("%d bytes of stdout instead of %d", len(a.output("stdout")), *w.Bytes)
	}
	if w.PTY != "" {
		if ok, err := regexp.MatchString(w.PTY, a.output("pty")); err != nil || !ok {
			return "the terminal said " + shown(a.output("pty")) + ", not " + w.PTY
		}
	}
	if w.Exit != nil {
		for _, m := range a.messages {
			if end, ok := at(m, "event.end"); ok {
				// JSON of protobuf leaves a zero out.
				code, _ := at(end, "exitCode")
				if n, _ := code.(float64); int(n) == *w.Exit {
					return ""
				}
				return "the process ended with " + shown(end)
			}
		}
		return "the process has no end"
	}
	return ""
}

// stream is an open answer of the Connect protocol.
type stream struct {
	body io.ReadCloser
	in   *bufio.Reader
}

// endOfStream marks the last envelope.
const endOfStream = 2

// mostMessage bounds one message.
const mostMessage = 16 << 20

// next reads a message. The last one of a stream is its end: then more is false, and failure
// is the error in it, if any.
func (s *stream) next() (message, failure any, more bool, err error) {
	var head [5]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the stream was cut off")
		}
		return nil, nil, false, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > mostMessage {
		return nil, nil, false, fmt.Errorf("a message of %d bytes", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(s.in, text); err != nil {
		return nil, nil, false, err
	}
	if err := json.Unmarshal(text, &message); err != nil {
		return nil, nil, false, fmt.Errorf("a message is no JSON: %w", err)
	}
	if head[0]&endOfStream != 0 {
		failure, _ = at(message, "error")
		return nil, failure, false, nil
	}
	return message, nil, true, nil
}

// readAll reads messages until the end, or one message only.
func (a *answer) readAll(one bool) error {
	for {
		message, failure, more, err := a.rest.next()
		if err != nil {
			return err
		}
		if !more {
			a.failure = failure
			_ = a.rest.body.Close()
			a.rest = nil
			return nil
		}
		a.messages = append(a.messages, message)
		if one {
			return nil
		}
	}
}
