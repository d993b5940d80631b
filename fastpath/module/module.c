// A dynamic module for Envoy: it answers requests for known sandboxes from the
// gateway's table in shared memory, and leaves all others to ext_proc.
// docs/design/fastpath.md has its states and why a fence holds.
//
// The module is two extensions. The early header mutation sees each request before Envoy
// picks a route. It looks the sandbox up; if it finds it, it writes sandbox, pod and address
// into the header HIT, by which Envoy picks the route of hits, which has no ext_proc. On that
// route the module's filter turns the header into metadata.
//
// The module starts no threads, and allocates nothing after its start.
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
#define HIT TEXT("x-envoy-sandlane") // Envoy removes x-envoy-* headers of clients before the mutation

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
  bool attaching;        // a thread is in attach; at most one is
  uint64_t next_attempt; // boot clock; only the thread in attach uses it
  const control_head *head;
  control_workers *workers;
  uint64_t claim;
  view views[MAX_VIEWS];
  int view_count;
  const view *current; // published last; NULL until the first is mapped
} state;

static uint64_t nanos(clockid_t clock) {
  struct timespec t;
  if (clock_gettime(clock, &t)) return UINT64_MAX;
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

// map maps a file of exactly that size; NULL if there is none.
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

// claim locks Envoy's byte of the control file, which this process then holds until its
// end, takes the worker slots over, and gives this Envoy the next claim number.
static bool claim(state *s) {
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
  for (int i = 0; i < WORKERS; i++) { // end the flights of an Envoy that has died
    uint64_t seq = __atomic_load_n(&s->workers->workers[i].seq, __ATOMIC_RELAXED);
    if (seq & 1) __atomic_store_n(&s->workers->workers[i].seq, seq + 1, __ATOMIC_RELEASE);
  }
  s->claim = __atomic_add_fetch(&s->workers->claims, 1, __ATOMIC_SEQ_CST);
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
  if (!s->head && !claim(s)) return;
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

// trusted returns whether this Envoy may answer: the gateway has renewed trust lately, and for
// this Envoy's claim. A time that is further ahead than the longest trust was not written by
// a gateway.
static bool trusted(const state *s) {
  uint64_t boot = __atomic_load_n(&s->head->trust_boot, __ATOMIC_ACQUIRE);
  uint64_t wall = __atomic_load_n(&s->head->trust_wall, __ATOMIC_ACQUIRE);
  if (__atomic_load_n(&s->head->trust_claim, __ATOMIC_ACQUIRE) != s->claim) return false;
  uint64_t boot_now = nanos(CLOCK_BOOTTIME), wall_now = nanos(CLOCK_REALTIME);
  return boot_now < boot && boot - boot_now <= LONGEST_TRUST && wall_now < wall && wall - wall_now <= LONGEST_TRUST;
}

// find copies the target's entry to *e and checks the copy's checksum; false if there is
// none. It is called inside a flight.
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

// answer makes the request a hit: it writes ID, pod, claim and destination into the header
// HIT, with spaces between them, for the filter. The gateway publishes no text with a space.
static void answer(void *request, const target *t, const entry *e) {
  char value[ENTRY_TEXT + 16], *at = value;
  const char *destination = e->text + e->id, *uid = destination + e->destination; // the address and a colon
  at = put(at, e->text, e->id), *at++ = ' ';
  at = put(at, uid, e->uid), *at++ = ' ';
  at = put(at, uid + e->uid, e->claim), *at++ = ' ';
  at = put(at, destination, e->destination);
  at = put(at, t->port.data, t->port.size);
  CALL(early_header_mutation_set_header)(request, HIT, (text){value, (size_t)(at - value)});
}

static void count(uint64_t *counter) { __atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED); }

// run_flight looks the sandbox up and answers, in one flight: while seq is odd the gateway
// reuses no entry. The filter counts the hit, since another filter before it may refuse the
// request.
static void run_flight(void *request, state *s, const view *v, worker_slot *w, const target *t) {
  entry e;
  uint64_t index, seq = (w->seq + 1) | 1; // odd, even if garbage was written over w->seq
  uint64_t *outcome = &w->absent;
  __atomic_store_n(&w->seq, seq, __ATOMIC_RELAXED);
  FULL_FENCE(); // the odd seq is visible before the table is read
  if (__atomic_load_n(&s->head->generation, __ATOMIC_RELAXED) != v->generation || !trusted(s)) {
    outcome = &w->untrusted;
  } else if (find(v, t, &e, &index) && (e.flags & OPEN || (e.flags & GUARDED && t->port_number == SANDBOXD_PORT))) {
    uint32_t *mark = &v->marks[index];
    if (!__atomic_load_n(mark, __ATOMIC_RELAXED)) __atomic_store_n(mark, 1, __ATOMIC_RELAXED);
  }
  count(found ? &w->hits : &w->gone);
  __atomic_store_n(&w->seq, seq + 1, __ATOMIC_RELEASE);
}

// The worker slot of each thread of Envoy, which it gets with its first request.
static _Thread_local struct {
  uint32_t number; // from 1 on; 0 before the first request
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
  if (n <= MAX_HEADERS && CALL(early_header_mutation_get_headers)(request, headers) && parse_target(headers, n, &t))
    run_flight(request, s, v, w, &t);
  else
    count(&w->unfit);
  return true; // Envoy continues with the other header mutations
}

// The filter runs only on the route of hits, in the thread and the turn of its event loop
// in which run_flight looked the request up. It sets the metadata by which Envoy finds the
// pod, from the header that answer wrote.
int HOOK(http_filter_request_headers)(void *stream, const void *filter, bool end) {
  (void)filter, (void)end;
  text hit, part[4];
  if (!CALL(http_get_header)(stream, REQUEST_HEADERS, HIT, &hit, 0, NULL)) return CONTINUE;
  for (int i = 0; i < 4; i++) {
    const char *space = i < 3 ? memchr(hit.data, ' ', hit.size) : hit.data + hit.size;
    if (!space) return CONTINUE;
    part[i] = (text){hit.data, (size_t)(space - hit.data)};
    if (i < 3) hit = (text){space + 1, hit.size - part[i].size - 1};
  }
  const char *colon = memrchr(hit.data, ':', hit.size);
  if (!colon) return CONTINUE;
  int port = parse_port((text){colon + 1, (size_t)(hit.data + hit.size - colon - 1)});
  header pairs[] = {
      {"sandbox_id", 10, part[0].data, part[0].size},
      {"pod_uid", 7, part[1].data, part[1].size},
      {"claim", 5, part[2].data, part[2].size},
      {"destination", 11, part[3].data, part[3].size}, // last: metadata with a destination is an answer
  };
  CALL(http_set_dynamic_metadata_number)(stream, TEXT("sandlane"), TEXT("port"), port);
  CALL(http_set_dynamic_metadata_string_batch)(stream, TEXT("sandlane"), pairs, sizeof pairs / sizeof *pairs);
  if (self.slot) count(&self.slot->hits);
  return CONTINUE;
}

const char *HOOK(program_init)(void) { return ABI_VERSION; }

// The configuration is the folder. The folder need not exist yet, and nothing is claimed
// before the first request, because Envoy also runs this hook to validate a configuration.
const void *HOOK(early_header_mutation_config_new)(void *envoy, text name, text config) {
  (void)envoy, (void)name;
  if (config.size == 0 || config.size >= MAX_FOLDER || config.data[0] != '/') return NULL;
  state *s = calloc(1, sizeof *s);
  if (s) memcpy(s->folder, config.data, config.size);
  return s;
}

void HOOK(early_header_mutation_config_destroy)(const void *config) { (void)config; } // the process keeps its claim

// The filter has no configuration and keeps no state of a request. It returns some pointer,
// since Envoy takes NULL for a failure.
const void *HOOK(http_filter_config_new)(void *envoy, text name, text config) {
  (void)envoy, (void)name, (void)config;
  return &threads;
}
void HOOK(http_filter_config_destroy)(const void *config) { (void)config; }
const void *HOOK(http_filter_new)(const void *config, void *stream) { return (void)stream, config; }

// Hooks that Envoy asks for and this module does not use.
#define UNUSED(name) int HOOK(http_filter_##name)(void) { return CONTINUE; }
void HOOK(http_filter_destroy)(const void *filter) { (void)filter; }
UNUSED(request_body)
UNUSED(request_trailers)
UNUSED(response_headers)
UNUSED(response_body)
UNUSED(response_trailers)
UNUSED(stream_complete)
UNUSED(http_callout_done)
UNUSED(http_stream_headers)
UNUSED(http_stream_data)
UNUSED(http_stream_trailers)
UNUSED(http_stream_complete)
UNUSED(http_stream_reset)
UNUSED(scheduled)
UNUSED(downstream_above_write_buffer_high_watermark)
UNUSED(downstream_below_write_buffer_low_watermark)
