package console

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	// pageSize is how many rows a page of a table has, and mostRows how many it may ask for.
	pageSize, mostRows = 50, 200
	// widest bounds a cell: a message may have a kilobyte.
	widest = 300
)

// row is one object of a table.
type row struct {
	Cells []string `json:"cells"`
	// Key is the object's, among those of the table.
	Key string `json:"key"`
	// Level is bad or warn for a row that needs a look.
	Level string `json:"level,omitempty"`
	// Sandbox is the ID that the row leads to.
	Sandbox string `json:"sandbox,omitempty"`

	at time.Time // sorts: the newest first, then by the order of the objects
}

type table struct {
	Columns []string `json:"columns"`
	Rows    []row    `json:"rows"`
	// Total counts the rows that match, All all of them; Offset is of the first row here.
	Total  int `json:"total"`
	All    int `json:"all"`
	Offset int `json:"offset"`
	// Refused says why the kind cannot be read.
	Refused string `json:"refused,omitempty"`
}

// table answers one page of a table: those rows in which each word of q is found.
func (s *Server) table(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("kind")
	make, found := tables[name]
	if !found {
		http.NotFound(w, r)
		return
	}
	t := make(s, time.Now())
	t.Refused = s.kinds[kindOfTable[name]].refusal()
	q := r.URL.Query()
	t.cut(q.Get("q"), number(q.Get("offset"), 0), min(number(q.Get("limit"), pageSize), mostRows))
	writeJSON(w, t)
}

// cut leaves one page of what matches.
func (t *table) cut(search string, offset, limit int) {
	t.All = len(t.Rows)
	words := strings.Fields(strings.ToLower(search))
	rows := slices.DeleteFunc(t.Rows, func(r row) bool {
		return slices.ContainsFunc(words, func(word string) bool {
			return !slices.ContainsFunc(r.Cells, func(cell string) bool { return strings.Contains(strings.ToLower(cell), word) })
		})
	})
	slices.SortStableFunc(rows, func(a, b row) int { return b.at.Compare(a.at) })
	t.Total = len(rows)
	if offset >= t.Total { // the last page that there is
		offset = max(0, t.Total-1) / limit * limit
	}
	t.Offset = offset
	t.Rows = append([]row{}, rows[offset:min(offset+limit, t.Total)]...)
	for i := range t.Rows {
		for c, text := range t.Rows[i].Cells {
			if runes := []rune(text); len(runes) > widest {
				t.Rows[i].Cells[c] = string(runes[:widest]) + "…"
			}
		}
	}
}

// number is a positive one, or the usual.
func number(text string, usual int) int {
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return n
	}
	return usual
}

func age(now, at time.Time) string {
	if at.IsZero() {
		return "–"
	}
	return duration.HumanDuration(max(0, now.Sub(at)))
}
