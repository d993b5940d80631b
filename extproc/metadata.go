package extproc

import (
	"math"
	"net/netip"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sandlane/sandlane/routecache"
)

// The dynamic metadata that carries the answer (envoy.md): ORIGINAL_DST reads
// the destination, the local replies and the access log the rest. Package envoy
// configures Envoy with these names.
const (
	MetadataNamespace   = "sandlane"
	MetadataDestination = "destination"
	MetadataSandboxID   = "sandbox_id"
	MetadataPort        = "port"
	metadataPodUID      = "pod_uid"
	metadataClaim       = "claim"
	// MetadataFinal is there if ExtProc answered the client itself: the sandbox's ID, empty
	// if the request named none.
	MetadataFinal = "final"
	metadataCause = "cause" // what failed here, for the log alone
	// MetadataAnswered is when ExtProc answered, in milliseconds of CLOCK_BOOTTIME.
	MetadataAnswered = "answered"
	// MetadataBroken is there if a pod broke a request off that Envoy did not repeat.
	MetadataBroken = "broken"
)

// Field numbers of ProcessingResponse and of google.protobuf.Struct and Value.
const (
	fieldDynamicMetadata = 8
	fieldStructFields    = 1 // map<string, Value>: entries of key 1, value 2
	fieldEntryKey        = 1
	fieldEntryValue      = 2
	fieldNumber          = 2
	fieldString          = 3
	fieldStruct          = 5
)

// appendMetadata returns a new message: what came before, and the field
// dynamic_metadata of a routing answer in wire form. Encoding structpb's maps by
// reflection is half of what an answer costs, so the hot path writes the bytes
// itself; a test compares them with structpb's.
func appendMetadata(before []byte, r *routecache.Route, t *Target) []byte {
	var stack [384]byte
	inner := stack[:0]
	var destination [48]byte
	inner = appendString(inner, MetadataDestination, netip.AddrPortFrom(r.Addr, t.Port).AppendTo(destination[:0]))
	inner = appendString(inner, MetadataSandboxID, r.SandboxID)
	inner = appendString(inner, metadataPodUID, r.PodUID)
	inner = appendString(inner, metadataClaim, r.ClaimID)
	inner = appendNumber(inner, MetadataPort, float64(t.Port))
	inner = appendNumber(inner, MetadataAnswered, bootMillis())

	value := 1 + protowire.SizeBytes(len(inner))
	entry := entrySize(MetadataNamespace, value)
	out := make([]byte, 0, len(before)+1+protowire.SizeBytes(1+protowire.SizeBytes(entry)))
	out = append(out, before...)
	out = protowire.AppendTag(out, fieldDynamicMetadata, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(1+protowire.SizeBytes(entry)))
	out = appendEntry(out, MetadataNamespace, value)
	out = protowire.AppendTag(out, fieldStruct, protowire.BytesType)
	return protowire.AppendBytes(out, inner)
}

// appendEntry begins an entry of Struct.fields; a Value of that size must follow.
func appendEntry(b []byte, key string, value int) []byte {
	b = protowire.AppendTag(b, fieldStructFields, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(entrySize(key, value)))
	b = protowire.AppendTag(b, fieldEntryKey, protowire.BytesType)
	b = protowire.AppendString(b, key)
	b = protowire.AppendTag(b, fieldEntryValue, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(value))
}

// entrySize counts both tags, which are one byte each.
func entrySize(key string, value int) int {
	return 2 + protowire.SizeBytes(len(key)) + protowire.SizeBytes(value)
}

func appendNumber(b []byte, key string, v float64) []byte {
	b = appendEntry(b, key, 1+8)
	b = protowire.AppendTag(b, fieldNumber, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, math.Float64bits(v))
}

// bootMillis is the time of the clock that counts while the machine sleeps, and that
// nothing sets.
func bootMillis() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("extproc: reading CLOCK_BOOTTIME: " + err.Error()) // Linux has it
	}
	return float64(t.Nano()) / 1e6
}

func appendString[T string | []byte](b []byte, key string, v T) []byte {
	b = appendEntry(b, key, 1+protowire.SizeBytes(len(v)))
	b = protowire.AppendTag(b, fieldString, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(v)))
	return append(b, v...)
}
