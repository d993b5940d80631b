package record

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Message tells the line of a record from others of a log.
const Message = "egress connection"

// maxHost bounds a host as a client wrote it: no name is longer.
const maxHost = 253

// waiting is how many records may wait to be written.
const waiting = 4096

// Record is what became of a connection that has ended, or of a question for a name that had
// no answer.
type Record struct {
	Time    time.Time `json:"time"`
	Message string    `json:"msg"` // of the package
	// Sandbox and the two beside it are empty if no claim was known.
	Namespace string `json:"namespace,omitempty"`
	Sandbox   string `json:"sandbox,omitempty"`
	Claim     string `json:"claim,omitempty"`
	// From is the address that the connection came from.
	From string `json:"from"`
	// Port is 443 or 80; 53 is a question.
	Port uint16 `json:"port"`
	// Host is empty if the connection named none.
	Host string `json:"host,omitempty"`
	// Rule is the name or wildcard whose headers the requests got.
	Rule    string `json:"rule,omitempty"`
	Verdict string `json:"verdict"`
	// Requests were judged one by one; Refused are those of them that were refused.
	Requests int `json:"requests,omitempty"`
	Refused  int `json:"refused,omitempty"`
	// Sent and Received are bytes to and from the host.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// Seconds is how long the connection was open.
	Seconds float64 `json:"seconds"`
}

// Writer writes records in the order of Add.
type Writer struct {
	to    io.Writer
	share float64
	lost  func()
	added chan Record
}

// NewWriter returns a Writer of that share of all records, from 0 to 1, chosen by chance.
// lost is called for each that could not be written: what is slow to take lines delays no
// connection.
func NewWriter(to io.Writer, share float64, lost func()) *Writer {
	return &Writer{to: to, share: share, lost: lost, added: make(chan Record, waiting)}
}

// Add takes a record without waiting. It is safe for concurrent use.
func (w *Writer) Add(r Record) {
	if w.share < 1 && rand.Float64() >= w.share {
		return
	}
	select {
	case w.added <- r:
	default:
		w.lost()
	}
}

// Start writes until the context ends, and what was added until then. Call it once.
func (w *Writer) Start(ctx context.Context) error {
	for {
		select {
		case r := <-w.added:
			w.write(r)
		case <-ctx.Done():
			for {
				select {
				case r := <-w.added:
					w.write(r)
				default:
					return nil
				}
			}
		}
	}
}

func (w *Writer) write(r Record) {
	r.Message = Message
	if len(r.Host) > maxHost {
		r.Host = strings.ToValidUTF8(r.Host[:maxHost], "") + "…"
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, err = w.to.Write(append(line, '\n'))
	}
	if err != nil {
		w.lost()
	}
}

// Of returns the records of a sandbox, by its ID, in the text of a log, whose other lines it
// passes over.
func Of(log []byte, sandbox string) []Record {
	var found []Record
	for line := range strings.Lines(string(log)) {
		var r Record
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &r) == nil && r.Message == Message && r.Sandbox == sandbox {
			found = append(found, r)
		}
	}
	return found
}

// String is a line for people. A sandbox chose the bytes of the host: none of them may
// reach a terminal as a command.
func (r Record) String() string {
	host := r.Host
	if quoted := strconv.QuoteToASCII(host); quoted != `"`+host+`"` {
		host = quoted
	}
	text := fmt.Sprintf("%s\t%s:%d\t%s", r.Time.Local().Format(time.DateTime), host, r.Port, r.Verdict)
	if r.Port == 53 {
		return text + "\t\t\t\t"
	}
	text += fmt.Sprintf("\t%s\t%d\t%d\t%.3fs", r.Rule, r.Sent, r.Received, r.Seconds)
	if r.Refused > 0 {
		text += fmt.Sprintf("\t%d of %d requests refused", r.Refused, r.Requests)
	}
	return text
}
