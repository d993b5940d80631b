// The files in shared memory, little-endian, in words of 64 bits. docs/design/fastpath.md
// says what the gateway and Envoy may change in them. Package fastpath (layout.go) has the
// same figures, and a test compares them.
#pragma once
#include <stdint.h>
#include <string.h>

#define MAGIC 0x3150464e414c4453ull // "SDLANFP1"
enum { LAYOUT = 2, WORKERS = 64, WAYS = 8, ENTRY_TEXT = 176 };
enum { OPEN = 1, GUARDED = 2 }; // flags of an entry: any port, port 49983
enum { LOCK_ENVOY = 1 };         // byte of the control file
#define LONGEST_TRUST 1000000000ull

typedef struct { // the first page of the control file; only the gateway writes it
  uint64_t magic, layout;
  uint64_t trust_boot, trust_wall; // nanoseconds; 0: none
  uint64_t trust_term;             // of the Envoy that trust is for
  uint64_t generation;             // of the files to map; 0: none. Written last
  uint64_t entries, buckets;       // buckets is a power of two
  uint64_t key;
} control_head;

typedef struct {
  uint64_t seq; // odd: during a reading
  uint64_t hits, unfit, absent, untrusted;
  uint64_t gone; // found before a route was picked, and not when it was to be answered
  uint64_t rest[10];
} worker_slot;

typedef struct { // what Envoy writes, from the control file's second page on
  worker_slot workers[WORKERS];
  uint64_t terms; // how many Envoys have taken the table over
} control_workers;

enum { CONTROL_HEAD = 4096, CONTROL_SIZE = 16384 };

typedef struct {
  uint64_t word[WAYS];
} bucket;

typedef struct {
  uint64_t check;
  uint8_t id, destination, uid, claim, flags, rest[3]; // lengths of the texts
  char text[ENTRY_TEXT];                               // one after the other
} entry;

_Static_assert(sizeof(worker_slot) == 128, "one worker, two cache lines");
_Static_assert(CONTROL_HEAD + sizeof(control_workers) <= CONTROL_SIZE, "the control file");
_Static_assert(sizeof(entry) == 192 && sizeof(bucket) == 64, "the routes file");

static inline uint64_t mix(uint64_t h, uint64_t word) {
  h = (h ^ word) * 0xbf58476d1ce4e5b9ull;
  return h ^ (h >> 32);
}

// hash_id: the low bits pick the bucket, the 40 highest stand in its word.
static inline uint64_t hash_id(uint64_t key, const char *id, size_t n) {
  uint64_t h = key ^ (n * 0x9e3779b97f4a7c15ull), word;
  for (; n >= 8; n -= 8, id += 8) {
    memcpy(&word, id, 8);
    h = mix(h, word);
  }
  word = 0;
  memcpy(&word, id, n);
  return mix(mix(h, word), 0x94d049bb133111ebull);
}

#define INDEX_BITS 24
#define INDEX_MASK ((1ull << INDEX_BITS) - 1)

// check_entry is the checksum of the entry with this index.
static inline uint64_t check_entry(uint64_t key, uint64_t index, const entry *e) {
  uint64_t h = key + index, word;
  for (size_t i = 8; i < sizeof *e; i += 8) {
    memcpy(&word, (const char *)e + i, 8);
    h = mix(h, word);
  }
  return h;
}
