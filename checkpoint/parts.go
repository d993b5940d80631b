package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// PartSize is how many bytes each part of an archive has, but for the last one.
const PartSize = 1 << 20

// sum is a SHA-256.
type sum = [sha256.Size]byte

// sums are the SHA-256s of an archive's parts, one after the other. Written to, it takes the
// archive's bytes. Make it with newSums.
type sums struct {
	list []byte
	part hash.Hash
	n    int // bytes of the part that is not in list yet
}

func newSums() *sums { return &sums{part: sha256.New()} }

// Write implements io.Writer.
func (s *sums) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		piece := rest[:min(len(rest), PartSize-s.n)]
		s.part.Write(piece) // it never fails
		if s.n += len(piece); s.n == PartSize {
			s.endPart()
		}
		rest = rest[len(piece):]
	}
	return len(p), nil
}

func (s *sums) endPart() {
	s.list = s.part.Sum(s.list)
	s.part.Reset()
	s.n = 0
}

// end returns the list once all bytes are written.
func (s *sums) end() []byte {
	if s.n > 0 {
		s.endPart()
	}
	return s.list
}

// digestOf returns the digest of an archive, which is that of its parts' sums.
func digestOf(list []byte) sum { return sha256.Sum256(list) }

// partsOf returns how many parts an archive of n bytes has.
func partsOf(n int64) int64 { return (n + PartSize - 1) / PartSize }

// lengthOf returns how many bytes the archive in a file of this size has: its parts' sums
// and its digest follow it. It is negative for a size that no file of an archive has.
func lengthOf(file int64) int64 {
	behind := file - sha256.Size
	if behind < 0 {
		return -1
	}
	parts := (behind + PartSize + sha256.Size - 1) / (PartSize + sha256.Size)
	n := behind - parts*sha256.Size
	if n < 0 || partsOf(n) != parts {
		return -1
	}
	return n
}

func inHex(s sum) string { return hex.EncodeToString(s[:]) }
