// A dynamic module for Envoy: it answers requests for known sandboxes from the
// gateway's table in shared memory, and leaves all others to ext_proc.
// docs/design/fastpath.md has its states and why a fence holds.
//
// It is two extensions. The early header mutation sees each request before Envoy picks
// a route; it looks the sandbox up, and writes what was asked for into the header HIT,
// which picks the route of hits: one without ext_proc. There the filter answers: it looks
// the sandbox up once more and sets the address by which Envoy finds the pod, in one
// reading. Envoy may let a request wait between the two, for as long as it is busy with
// others, so what the mutation saw is no answer.
//
// A third extension is a filter of the cluster of pods: at each attempt to send a request it
// refuses an answer that is too old, be it the module's or ExtProc's, and to send a request
// twice that may not be repeated (docs/design/decisions/repeats.md).
//
// It has no threads. After its start it allocates one hit for each request that it may
// answer, until that request's end.
#define _GNU_SOURCE
#include "abi.h"
#include "table.h"
#include "target.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_HEADERS = 256, MAX_FOLDER = 200, MAX_VIEWS = 8 };
enum { RETRY_SECONDS = 1 };
#define FULL_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define TEXT(s) ((text){(s), sizeof(s) - 1})
#define HIT TEXT("x-envoy-sandlane") // Envoy drops x-envoy-* of clients first
// ADDRESS is where Envoy's ORIGINAL_DST cluster looks first, before its metadata
// (well_known_filter_state.rst of Envoy). It takes IP:PORT.
#define ADDRESS TEXT("envoy.network.transport_socket.original_dst_address")
// ANSWERED is when the module answered, in nanoseconds of the boot clock. ExtProc's answers
// have the same name in metadata, in milliseconds (MetadataAnswered in extproc).
#define ANSWERED TEXT("sandlane.answered")
// MAX_AGE is how old an answer may be when an attempt to connect has begun (MaxAge in envoy).
#define MAX_AGE 4000000000ull
// REPEAT_AGE is the same of an attempt to repeat a request (RepeatAge in envoy).
#define REPEAT_AGE 1000000000ull
// ATTEMPT is what Envoy says of an attempt (attemptHeader in envoy): the connection that it has
// got, 0 for none yet, and how many bytes earlier attempts sent and received.
#define ATTEMPT TEXT("x-envoy-sandlane-attempt")
// OPENED is there if the attempt that sent the request opened a connection for it.
#define OPENED TEXT("sandlane.opened")
// BROKEN is the metadata of a request that a pod broke off and that is not repeated
// (MetadataBroken in extproc).
#define BROKEN TEXT("broken")
// LONG_STREAM is half of what makes Envoy report the end of a stream (longStream in
// envoy/accesslog.go), since Envoy's clock of a request starts before the filter's.
#define LONG_STREAM 500000000ull

// view is one generation of the routes, mapped and never unmapped. Its sizes are copies
// that were checked: a later change of them in the file has no effect.
typedef struct {
  uint64_t generation, key, entry_count, bucket_mask;
  const bucket *buckets;
  const entry *entries;
  uint32_t *marks;
} view;

// state is this process's state for one folder; it lives as long as the process.
typedef struct {
  char folder[MAX_FOLDER];
  bool attaching;        // one thread at a time
  uint64_t next_attempt; // boot clock; only the attaching thread's
  const control_head *head;
  control_workers *workers;
  uint64_t term; // this process's number among the Envoys that took the table over
  view views[MAX_VIEWS];
  int view_count;
  const view *current; // published last; NULL until the first is mapped
} state;

static uint64_t nanos(clockid_t clock) {
  struct timespec t;
  if (clock_gettime(clock, &t)) return UINT64_MAX;
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

// map opens a file of exactly that size; NULL if there is none.
static void *map(const char *folder, const char *name, uint64_t generation, size_t size, int how) {
  char path[MAX_FOLDER + 64];
  snprintf(path, sizeof path, "%s/%s.%016llx", folder, name, (unsigned long long)generation);
  int fd = open(path, (how & PROT_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  if (fd < 0) return NULL;
  struct stat st;
  void *at = MAP_FAILED;
  if (!fstat(fd, &st) && (uint64_t)st.st_size == size) at = mmap(NULL, size, how, MAP_SHARED, fd, 0);
  close(fd);
  return at == MAP_FAILED ? NULL : at;
}

// take_over locks Envoy's byte of the control file, which this process then holds until
// its end, and takes the worker slots over.
static bool take_over(state *s) {
  char path[MAX_FOLDER + 64];
  snprintf(path, sizeof path, "%s/control", s->folder);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat st;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_ENVOY, .l_len = 1};
  void *head = MAP_FAILED, *workers = MAP_FAILED;
  if (fstat(fd, &st) || st.st_size != CONTROL_SIZE || st.st_uid != geteuid()) goto failed;
  head = mmap(NULL, CONTROL_HEAD, PROT_READ, MAP_SHARED, fd, 0);
  workers = mmap(NULL, CONTROL_SIZE - CONTROL_HEAD, PROT_READ | PROT_WRITE, MAP_SHARED, fd, CONTROL_HEAD);
  if (head == MAP_FAILED || workers == MAP_FAILED) goto failed;
  if (__atomic_load_n(&((control_head *)head)->magic, __ATOMIC_ACQUIRE) != MAGIC) goto failed;
  if (fcntl(fd, F_OFD_SETLK, &lock)) goto failed; // another Envoy lives
  s->head = head;
  s->workers = workers;
  for (int i = 0; i < WORKERS; i++) { // readings of an Envoy that is dead
    uint64_t seq = __atomic_load_n(&s->workers->workers[i].seq, __ATOMIC_RELAXED);
    if (seq & 1) __atomic_store_n(&s->workers->workers[i].seq, seq + 1, __ATOMIC_RELEASE);
  }
  s->term = __atomic_add_fetch(&s->workers->terms, 1, __ATOMIC_SEQ_CST);
  return true;
failed:
  if (head != MAP_FAILED) munmap(head, CONTROL_HEAD);
  if (workers != MAP_FAILED) munmap(workers, CONTROL_SIZE - CONTROL_HEAD);
  close(fd);
  return false;
}

// attach maps the generation that the head names.
static void attach(state *s) {
  uint64_t now = nanos(CLOCK_BOOTTIME);
  if (now < s->next_attempt) return;
  s->next_attempt = now + RETRY_SECONDS * 1000000000ull;
  if (!s->head && !take_over(s)) return;
  const control_head *h = s->head;
  view v = {.generation = __atomic_load_n(&h->generation, __ATOMIC_ACQUIRE)};
  if (!v.generation || h->magic != MAGIC || h->layout != LAYOUT || s->view_count == MAX_VIEWS) return;
  uint64_t buckets = h->buckets;
  v.entry_count = h->entries;
  v.key = h->key;
  if (!v.entry_count || v.entry_count >= INDEX_MASK || !buckets || buckets > INDEX_MASK || (buckets & (buckets - 1))) return;
  v.bucket_mask = buckets - 1;
  size_t routes = buckets * sizeof(bucket) + v.entry_count * sizeof(entry);
  size_t marks = v.entry_count * sizeof *v.marks;
  const char *at = map(s->folder, "routes", v.generation, routes, PROT_READ);
  if (!at) return;
  v.marks = map(s->folder, "marks", v.generation, marks, PROT_READ | PROT_WRITE);
  if (!v.marks) {
    munmap((void *)at, routes);
    return;
  }
  v.buckets = (const void *)at;
  v.entries = (const void *)(at + buckets * sizeof(bucket));
  s->views[s->view_count] = v;
  __atomic_store_n(&s->current, &s->views[s->view_count++], __ATOMIC_RELEASE);
}

// trusted says whether the gateway lives, holds its lease, and has tested this Envoy. No
// gateway writes a time that is further ahead than the longest trust.
static bool trusted(const state *s) {
  uint64_t boot = __atomic_load_n(&s->head->trust_boot, __ATOMIC_ACQUIRE);
  uint64_t wall = __atomic_load_n(&s->head->trust_wall, __ATOMIC_ACQUIRE);
  if (__atomic_load_n(&s->head->trust_term, __ATOMIC_ACQUIRE) != s->term) return false;
  uint64_t boot_now = nanos(CLOCK_BOOTTIME), wall_now = nanos(CLOCK_REALTIME);
  return boot_now < boot && boot - boot_now <= LONGEST_TRUST && wall_now < wall && wall - wall_now <= LONGEST_TRUST;
}

// find copies the target's entry, as checked against its checksum; false if there is
// none. Inside a reading.
static bool find(const view *v, const target *t, entry *e, uint64_t *index) {
  uint64_t h = hash_id(v->key, t->id.data, t->id.size);
  const bucket *b = &v->buckets[h & v->bucket_mask];
  for (int i = 0; i < WAYS; i++) {
    uint64_t word = __atomic_load_n(&b->word[i], __ATOMIC_ACQUIRE);
    if ((word ^ h) >> INDEX_BITS || !(word & INDEX_MASK)) continue;
    *index = (word & INDEX_MASK) - 1;
    if (*index >= v->entry_count) continue;
    memcpy(e, &v->entries[*index], sizeof *e);
    if (e->check != check_entry(v->key, *index, e)) continue;
    if (e->id + e->destination + e->uid + e->claim > ENTRY_TEXT) continue;
    if (e->id == t->id.size && !memcmp(e->text, t->id.data, e->id)) return true;
  }
  return false;
}

enum outcome { FOUND, ABSENT, UNTRUSTED };

// look_up copies the entry from which the target's request may be answered now.
static enum outcome look_up(const state *s, const view *v, const target *t, entry *e, uint64_t *index) {
  if (__atomic_load_n(&s->head->generation, __ATOMIC_RELAXED) != v->generation || !trusted(s)) return UNTRUSTED;
  if (!find(v, t, e, index)) return ABSENT;
  return e->flags & OPEN || (e->flags & GUARDED && t->port_number == SANDBOXD_PORT) ? FOUND : ABSENT;
}

static void count(uint64_t *counter) { __atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED); }

// hit is what the filter keeps of one request.
typedef struct {
  int port;       // 0: it has not answered the request
  bool told;      // the metadata is set
  uint64_t since; // when it answered, by the coarse monotonic clock
  entry entry;    // from which it answered
} hit;

// answer sets the address of the pod, after the time of the answer, and returns false if
// Envoy does not take them.
static bool answer(void *stream, const target *t, const entry *e) {
  uint64_t now = nanos(CLOCK_BOOTTIME);
  if (!CALL(http_set_filter_state_bytes)(stream, ANSWERED, (text){(char *)&now, sizeof now})) return false;
  char address[ENTRY_TEXT + 8];
  memcpy(address, e->text + e->id, e->destination); // the address and a colon
  memcpy(address + e->destination, t->port.data, t->port.size);
  return CALL(http_set_filter_state_typed)(stream, ADDRESS, (text){address, e->destination + t->port.size});
}

// tell sets the metadata that ExtProc would have set: of an answer that Envoy makes itself,
// and of the access log's record. Few requests have either, and metadata is most
// of what a hit costs beside plain Envoy (docs/design/fastpath.md).
static void tell(void *stream, hit *h) {
  if (!h->port || h->told) return;
  h->told = true;
  const entry *e = &h->entry;
  const char *uid = e->text + e->id + e->destination;
  header pairs[] = {{"sandbox_id", 10, e->text, e->id}, {"pod_uid", 7, uid, e->uid}, {"claim", 5, uid + e->uid, e->claim}};
  CALL(http_set_dynamic_metadata_number)(stream, TEXT("sandlane"), TEXT("port"), h->port);
  CALL(http_set_dynamic_metadata_string_batch)(stream, TEXT("sandlane"), pairs, sizeof pairs / sizeof *pairs);
}

// read_and_answer is one reading: it looks the sandbox up and answers, and the gateway
// reuses no entry meanwhile. It marks the use after the answer: a mark that it takes while the
// reading goes on is set again.
static void read_and_answer(void *stream, const state *s, const view *v, worker_slot *w, const target *t, hit *h) {
  uint64_t index, seq = (w->seq + 1) | 1; // odd whatever it was
  __atomic_store_n(&w->seq, seq, __ATOMIC_RELAXED);
  FULL_FENCE(); // the reading begins before the look at the table
  bool found = look_up(s, v, t, &h->entry, &index) == FOUND && answer(stream, t, &h->entry);
  if (found) {
    h->port = t->port_number;
    h->since = nanos(CLOCK_MONOTONIC_COARSE);
    uint32_t *mark = &v->marks[index];
    if (!__atomic_load_n(mark, __ATOMIC_RELAXED)) __atomic_store_n(mark, 1, __ATOMIC_RELAXED);
  }
  count(found ? &w->hits : &w->gone);
  __atomic_store_n(&w->seq, seq + 1, __ATOMIC_RELEASE);
}

// self is what each thread of Envoy keeps: its worker slot, from its first request on, and
// the state whose table answers its hits. One state of a process at most has taken a table over.
static _Thread_local struct {
  uint32_t number; // from 1 on; 0: none yet
  worker_slot *slot;
  const state *state;
} self;
static uint32_t threads;

static worker_slot *own_slot(const state *s) {
  if (!self.number) self.number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
  self.state = s;
  return self.slot = self.number <= WORKERS ? &s->workers->workers[self.number - 1] : NULL;
}

bool HOOK(early_header_mutation_mutate)(const void *config, void *request) {
  state *s = (state *)config;
  const view *v = __atomic_load_n(&s->current, __ATOMIC_ACQUIRE);
  if (!v || __atomic_load_n(&s->head->generation, __ATOMIC_RELAXED) != v->generation) {
    if (!__atomic_exchange_n(&s->attaching, true, __ATOMIC_ACQUIRE)) {
      attach(s);
      __atomic_store_n(&s->attaching, false, __ATOMIC_RELEASE);
    }
    if (!(v = __atomic_load_n(&s->current, __ATOMIC_ACQUIRE))) return true;
  }
  worker_slot *w = own_slot(s);
  if (!w) return true;
  header headers[MAX_HEADERS];
  size_t n = CALL(early_header_mutation_get_headers_size)(request);
  target t;
  if (n > MAX_HEADERS || !CALL(early_header_mutation_get_headers)(request, headers) || !parse_target(headers, n, &t)) {
    count(&w->unfit);
    return true; // other header mutations go on
  }
  // Outside a reading the entry may change while it is copied; its checksum fails then.
  entry e;
  uint64_t index;
  enum outcome outcome = look_up(s, v, &t, &e, &index);
  if (outcome == FOUND) {
    char value[ENTRY_TEXT + 8]; // the ID, which has no space and fits an entry; a space; the port
    memcpy(value, t.id.data, t.id.size);
    value[t.id.size] = ' ';
    memcpy(value + t.id.size + 1, t.port.data, t.port.size);
    CALL(early_header_mutation_set_header)(request, HIT, (text){value, t.id.size + 1 + t.port.size});
  } else {
    count(outcome == ABSENT ? &w->absent : &w->untrusted);
  }
  return true;
}

// age_filter is what all requests' filters of the cluster of pods are.
static hit age_filter;

// too_old says whether the answer by which the request goes to a pod is older than `longest`,
// or has no time.
static bool too_old(void *stream, uint64_t longest) {
  uint64_t answered, now = nanos(CLOCK_BOOTTIME);
  text kept;
  double millis;
  if (CALL(http_get_filter_state_bytes)(stream, ANSWERED, &kept) && kept.size == sizeof answered) {
    memcpy(&answered, kept.data, sizeof answered);
  } else if (CALL(http_get_metadata_number)(stream, DYNAMIC_METADATA, TEXT("sandlane"), TEXT("answered"), &millis) && millis > 0 &&
             millis < 1e13) {
    answered = (uint64_t)(millis * 1e6);
  } else {
    return true;
  }
  return answered > now || now - answered > longest;
}

// next_word takes the next word of s, which spaces part.
static text next_word(text *s) {
  const char *space = s->size ? memchr(s->data, ' ', s->size) : NULL;
  text word = {s->data, space ? (size_t)(space - s->data) : s->size};
  size_t taken = word.size + (space != NULL);
  s->data += taken, s->size -= taken;
  return word;
}

static bool zero(text s) { return s.size == 1 && s.data[0] == '0'; }

// judge returns the status with which an attempt is refused, 0 to let it go on. Without the
// header, an attempt counts as one to repeat a request, after bytes of an answer.
static uint32_t judge(void *stream, bool end) {
  text attempt = {NULL, 0}, none;
  CALL(http_get_header)(stream, REQUEST_HEADERS, ATTEMPT, &attempt, 0, NULL);
  bool has_connection = !zero(next_word(&attempt)), unsent = zero(next_word(&attempt)), unanswered = zero(next_word(&attempt));
  if (!CALL(http_set_header)(stream, REQUEST_HEADERS, ATTEMPT, (text){NULL, 0})) return 502;
  bool opened = CALL(http_get_filter_state_bytes)(stream, OPENED, &none);
  if (!unsent) return unanswered && end && !opened && !too_old(stream, REPEAT_AGE) ? 0 : 502;
  if (!has_connection && !opened && !CALL(http_set_filter_state_bytes)(stream, OPENED, TEXT("1"))) return 502;
  return too_old(stream, MAX_AGE) ? 503 : 0;
}

// The filter of hits runs on their route alone, in the thread that the mutation ran in. It
// answers, or leaves the request without an address: Envoy answers 503 to that.
int HOOK(http_filter_request_headers)(void *stream, const void *filter, bool end) {
  if (filter == &age_filter) {
    uint32_t refusal = judge(stream, end);
    if (!refusal) return CONTINUE;
    if (refusal == 502) CALL(http_set_dynamic_metadata_number)(stream, TEXT("sandlane"), BROKEN, 1);
    CALL(http_send_response)(stream, refusal, NULL, 0, TEXT(""), refusal == 502 ? TEXT("not_repeated") : TEXT("answer_too_old"));
    return STOP;
  }
  text asked;
  if (!self.slot || !CALL(http_get_header)(stream, REQUEST_HEADERS, HIT, &asked, 0, NULL)) return CONTINUE;
  const char *space = memchr(asked.data, ' ', asked.size);
  if (!space) return CONTINUE;
  target t = {.id = {asked.data, (size_t)(space - asked.data)}};
  t.port = (text){space + 1, asked.size - t.id.size - 1};
  t.port_number = parse_port(t.port);
  const view *v = __atomic_load_n(&self.state->current, __ATOMIC_ACQUIRE);
  if (t.port_number && v) read_and_answer(stream, self.state, v, self.slot, &t, (hit *)filter);
  return CONTINUE;
}

// Envoy calls this before it answers itself, and before it breaks an answer off that the pod
// broke off.
int HOOK(http_filter_local_reply)(void *stream, const void *filter, uint32_t status, text details, bool reset) {
  (void)status, (void)details, (void)reset;
  tell(stream, (hit *)filter);
  return CONTINUE;
}

// Envoy calls this before it writes the record of a request.
void HOOK(http_filter_stream_complete)(void *stream, const void *filter) {
  hit *h = (hit *)filter;
  if (nanos(CLOCK_MONOTONIC_COARSE) - h->since >= LONG_STREAM) tell(stream, h);
}

const char *HOOK(program_init)(void) { return ABI_VERSION; }

// The configuration is the folder. It need not be there yet, and nothing is taken over
// before the first request: Envoy also runs this to validate a configuration.
const void *HOOK(early_header_mutation_config_new)(void *envoy, text name, text config) {
  (void)envoy, (void)name;
  if (config.size == 0 || config.size >= MAX_FOLDER || config.data[0] != '/') return NULL;
  state *s = calloc(1, sizeof *s);
  if (s) memcpy(s->folder, config.data, config.size);
  return s;
}

void HOOK(early_header_mutation_config_destroy)(const void *config) { (void)config; } // the table stays the process's

// A filter's configuration is its name alone; NULL would be a failure.
const void *HOOK(http_filter_config_new)(void *envoy, text name, text config) {
  (void)envoy, (void)config;
  return name.size == 3 && !memcmp(name.data, "age", 3) ? (void *)&age_filter : &threads;
}
void HOOK(http_filter_config_destroy)(const void *config) { (void)config; }
const void *HOOK(http_filter_new)(const void *config, void *stream) { // NULL: the request fails
  (void)stream;
  if (config == &age_filter) return config;
  hit *h = malloc(sizeof *h);
  if (h) h->port = 0, h->told = false, h->since = 0;
  return h;
}
void HOOK(http_filter_destroy)(const void *filter) {
  if (filter != &age_filter) free((void *)filter);
}

// Hooks that Envoy asks for and this module does not use.
#define UNUSED(name) int HOOK(http_filter_##name)(void) { return CONTINUE; }
UNUSED(request_body)
UNUSED(request_trailers)
UNUSED(response_headers)
UNUSED(response_body)
UNUSED(response_trailers)
UNUSED(http_callout_done)
UNUSED(http_stream_headers)
UNUSED(http_stream_data)
UNUSED(http_stream_trailers)
UNUSED(http_stream_complete)
UNUSED(http_stream_reset)
UNUSED(scheduled)
UNUSED(downstream_above_write_buffer_high_watermark)
UNUSED(downstream_below_write_buffer_low_watermark)
