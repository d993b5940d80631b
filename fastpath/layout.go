package fastpath

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// The files' layout; module/table.h has the same figures.
const (
	magic     = 0x3150464e414c4453 // "SDLANFP1"
	layout    = 2
	workers   = 64
	ways      = 8
	textSize  = 176
	entrySize = 192
	indexBits = 24
	indexMask = 1<<indexBits - 1

	flagOpen    = 1 // the module answers requests for any port
	flagGuarded = 2 // the module answers requests for port 49983

	// longestTrust is how far ahead of the clock trust may lie, and so how long Envoy may
	// answer after this process has stopped.
	longestTrust = time.Second
)

// Offsets in the control file, in bytes.
const (
	offMagic      = 0
	offLayout     = 8
	offTrustBoot  = 16
	offTrustWall  = 24
	offTrustTerm  = 32
	offGeneration = 40
	offEntries    = 48
	offBuckets    = 56
	offKey        = 64
	// Inodes of the generation's files; the module does not read them.
	offRoutesInode = 72
	offMarksInode  = 80

	offWorkers  = 4096 // of 128 bytes: seq, hits, unfit, absent, untrusted, gone
	workerSize  = 128
	offTerms    = offWorkers + workers*workerSize
	controlSize = 16384
)

// The bytes of the control file that are locked: the gateway's and Envoy's. A locked byte
// means that its process lives.
const (
	lockGateway = 0
	lockEnvoy   = 1
)

// geometry is the size of the table.
type geometry struct{ entries, buckets uint64 }

// geometryFor returns the size of a table for a cache of about size routes. It has an eighth
// more entries than routes, because removed entries are retired before they are free, and so many
// buckets that they are half full on average at most.
func geometryFor(size int) geometry {
	entries := uint64(size) + uint64(size)/8 + 256
	return geometry{entries: entries, buckets: 1 << bits.Len64((entries-1)/(ways/2))}
}

func (g geometry) routesSize() int { return int(g.buckets*ways*8 + g.entries*entrySize) }
func (g geometry) marksSize() int  { return int(g.entries * 4) }

func mix(h, word uint64) uint64 {
	h = (h ^ word) * 0xbf58476d1ce4e5b9
	return h ^ h>>32
}

// hashID hashes a sandbox ID. The low bits pick the bucket; the high 40 bits are stored in
// the word that names the entry.
func hashID(key uint64, id string) uint64 {
	h := key ^ uint64(len(id))*0x9e3779b97f4a7c15
	var word [8]byte
	for len(id) >= 8 {
		copy(word[:], id)
		h = mix(h, binary.LittleEndian.Uint64(word[:]))
		id = id[8:]
	}
	word = [8]byte{}
	copy(word[:], id)
	return mix(mix(h, binary.LittleEndian.Uint64(word[:])), 0x94d049bb133111eb)
}

// checkEntry returns the checksum of the entry with this index.
func checkEntry(key, index uint64, e []byte) uint64 {
	h := key + index
	for i := 8; i < entrySize; i += 8 {
		h = mix(h, binary.LittleEndian.Uint64(e[i:]))
	}
	return h
}
