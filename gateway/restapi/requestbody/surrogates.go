package requestbody

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const escapeLen = len(`\u0000`)

// loneSurrogate reports whether a JSON text has an escape that is half of a
// character (\ud83d without \ude00 behind it, or the other way round). No UTF-8 says
// the same, and decoders put U+FFFD in its place. A backslash stands only in strings,
// so it need not be known where these begin.
func loneSurrogate(text []byte) bool {
	for {
		at := bytes.IndexByte(text, '\\')
		if at < 0 {
			return false
		}
		text = text[at:]
		first := escapedRune(text)
		switch {
		case first < 0: // \n and the like, an escaped backslash, or a mistake
			text = text[min(2, len(text)):]
		case !utf16.IsSurrogate(first):
			text = text[escapeLen:]
		default:
			if utf16.DecodeRune(first, escapedRune(text[escapeLen:])) == utf8.RuneError {
				return true
			}
			text = text[2*escapeLen:]
		}
	}
}

// escapedRune returns the number of the escape \u that text begins with; -1 if it
// begins with something else.
func escapedRune(text []byte) rune {
	if len(text) < escapeLen || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[2:escapeLen]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
