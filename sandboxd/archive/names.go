package archive

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
)

// nameList has the names of one folder, sorted once sort was called. They are close
// together: a folder may have a million, in a container whose memory the sandbox needs.
type nameList struct {
	text []byte   // the names, each with a zero byte behind it
	at   []uint32 // where in text each begins; it has maxNames at most
}

func (l *nameList) add(name string) {
	l.at = append(l.at, uint32(len(l.text))) //nolint:gosec // maxNames at most
	l.text = append(append(l.text, name...), 0)
}

// name returns the name that begins at a place in text.
func (l *nameList) name(at uint32) []byte {
	name, _, _ := bytes.Cut(l.text[at:], []byte{0})
	return name
}

func (l *nameList) sort() {
	slices.SortFunc(l.at, func(a, b uint32) int { return bytes.Compare(l.name(a), l.name(b)) })
}

// all are the names.
func (l *nameList) all() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, at := range l.at {
			if !yield(string(l.name(at))) {
				return
			}
		}
	}
}

// list reads the names of an open folder that are part of the tree. Those of one that is
// kept count against what an archive may have.
func (a *writer) list(fd int, at string, kept bool) (*nameList, error) {
	l, most := &nameList{}, maxNames
	if kept {
		most -= a.names
	}
	err := eachName(fd, func(name string) error {
		part, err := a.isPart(fd, at, name)
		if err != nil || !part {
			return err
		}
		if l.add(name); len(l.text) > most {
			return fmt.Errorf("%w: more than %d bytes", ErrNames, maxNames)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", at, err)
	}
	l.sort()
	return l, nil
}
