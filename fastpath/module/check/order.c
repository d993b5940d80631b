// Runs a request through the module once for each of its steps, and lets the gateway act
// at that step: it takes the route out, or trust away, or begins another generation, and
// waits for the worker as waitWorkers does. A wait that is over at once must mean that
// the request is answered no more, and that what was answered is marked.
//
// A step is an atomic operation of the module, which this file does in its place, as
// x86 orders them: stores wait in the processor's buffer, in their order, while loads
// go ahead of them. They leave it at a full fence, at the end, or at once: both are
// tried.
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void step(void);
static void drain(void);
static void load_from(const void *at, void *into, size_t n);
static void store_to(void *at, const void *from, size_t n);

#define __atomic_load_n(at, order) ({ __typeof__(*(at)) got; step(); load_from((at), (void *)&got, sizeof got); got; })
#define __atomic_store_n(at, value, order) ({ __typeof__(*(at)) new = (value); step(); store_to((at), &new, sizeof new); })
#define __atomic_exchange_n(at, value, order) ({ step(); drain(); __typeof__(*(at)) old = *(at); *(at) = (value); old; })
#define __atomic_add_fetch(at, value, order) ({ step(); drain(); *(at) += (value); })
#define __atomic_thread_fence(order) ({ step(); drain(); })

#include "../module.c"

static struct {
  void *at;
  char bytes[8];
  size_t n;
} buffer[64];
static size_t buffered;

static void drain(void) {
  for (size_t i = 0; i < buffered; i++) memcpy(buffer[i].at, buffer[i].bytes, buffer[i].n);
  buffered = 0;
}

static void load_from(const void *at, void *into, size_t n) {
  memcpy(into, at, n);
  for (size_t i = 0; i < buffered; i++)
    if (buffer[i].at == at && buffer[i].n == n) memcpy(into, buffer[i].bytes, n);
}

static bool at_once; // stores leave the buffer at the next step

static void store_to(void *at, const void *from, size_t n) {
  if (buffered == sizeof buffer / sizeof *buffer || n > sizeof buffer->bytes) abort();
  buffer[buffered].at = at;
  buffer[buffered].n = n;
  memcpy(buffer[buffered++].bytes, from, n);
}

static control_head head;
static control_workers workers;
static bucket buckets[1];
static entry entries[1];
static uint32_t marks[1];
static state s = {.head = &head, .workers = &workers, .term = 1};

enum { NOTHING, REMOVAL, LOSS, GENERATION, ACTS };
static const char *const act_names[ACTS] = {"nothing", "removal", "lost lease", "new generation"};
static int act, acts_at, steps;
static bool acted, answered, answered_before, over;

static void gateway(void) {
  acted = true;
  if (act == REMOVAL) buckets[0].word[0] = 0;
  if (act == LOSS) head.trust_boot = head.trust_wall = 0;
  if (act == GENERATION) head.generation = 0;
  over = !(workers.workers[0].seq & 1);
  answered_before = answered;
  if (over && answered && !marks[0]) {
    printf("step %d: a wait was over before an answer was marked\n", steps);
    exit(1);
  }
}

static void step(void) {
  if (at_once) drain();
  if (act != NOTHING && steps++ == acts_at) gateway();
}

static const header headers[] = {{":path", 5, "/", 1}, {":authority", 10, "localhost", 9}, {"x-sandbox-id", 12, "iaaaaaaaaaaaaaaaaaaaa", 21}, {"x-sandbox-port", 14, "80", 2}};

bool CALL(http_set_header)(void *stream, int kind, text key, text value) { return (void)stream, (void)kind, (void)key, (void)value, true; }
bool CALL(http_set_filter_state_bytes)(void *stream, text key, text value) { return (void)stream, (void)key, (void)value, true; }
bool CALL(http_get_filter_state_bytes)(void *stream, text key, text *value) { return (void)stream, (void)key, (void)value, false; }
bool CALL(http_get_metadata_number)(void *stream, int source, text space, text key, double *value) {
  return (void)stream, (void)source, (void)space, (void)key, (void)value, false;
}
void CALL(http_send_response)(void *stream, uint32_t status, const header *headers, size_t count, text body, text details) {
  (void)stream, (void)status, (void)headers, (void)count, (void)body, (void)details;
}

size_t CALL(early_header_mutation_get_headers_size)(void *of) { return (void)of, sizeof headers / sizeof *headers; }

bool CALL(early_header_mutation_get_headers)(void *of, header *into) {
  (void)of;
  memcpy(into, headers, sizeof headers);
  return true;
}

static char asked[64];
static size_t asked_size;

bool CALL(early_header_mutation_set_header)(void *of, text key, text value) {
  (void)of, (void)key;
  if (value.size > sizeof asked) abort();
  memcpy(asked, value.data, asked_size = value.size);
  return true;
}

bool CALL(http_get_header)(void *stream, int kind, text key, text *value, size_t index, size_t *count) {
  (void)stream, (void)kind, (void)key, (void)index, (void)count;
  *value = (text){asked, asked_size};
  return true;
}

void CALL(http_set_dynamic_metadata_number)(void *stream, text space, text key, double value) {
  (void)stream, (void)space, (void)key, (void)value;
}

void CALL(http_set_dynamic_metadata_string_batch)(void *stream, text space, const header *pairs, size_t count) {
  (void)stream, (void)space, (void)pairs, (void)count;
}

bool CALL(http_set_filter_state_typed)(void *stream, text key, text value) {
  (void)stream, (void)key, (void)value;
  step();
  return answered = true;
}

// prepare publishes the route and gives trust.
static void prepare(void) {
  static view v;
  entry e = {.id = 21, .destination = 9, .uid = 1, .claim = 1, .flags = OPEN};
  memcpy(e.text, "iaaaaaaaaaaaaaaaaaaaa10.0.0.5:uc", 32);
  e.check = check_entry(7, 0, &e);
  entries[0] = e;
  buckets[0].word[0] = (hash_id(7, "iaaaaaaaaaaaaaaaaaaaa", 21) & ~INDEX_MASK) | 1;
  marks[0] = 0;
  head = (control_head){.magic = MAGIC, .layout = LAYOUT, .trust_term = 1, .generation = 5};
  head.trust_boot = nanos(CLOCK_BOOTTIME) + LONGEST_TRUST / 2;
  head.trust_wall = nanos(CLOCK_REALTIME) + LONGEST_TRUST / 2;
  v = (view){.generation = 5, .key = 7, .entry_count = 1, .buckets = buckets, .entries = entries, .marks = marks};
  s.current = &v;
  workers.workers[0].seq += workers.workers[0].seq & 1;
  acted = answered = answered_before = over = false;
  asked_size = 0;
  steps = 0;
}

static void request(void) {
  char of;
  HOOK(early_header_mutation_mutate)(&s, &of);
  hit h = {0};
  if (asked_size) HOOK(http_filter_request_headers)(&of, &h, true);
  drain();
}

int main(void) {
  int tried = 0, stopped = 0;
  prepare();
  request();
  if (!answered || !marks[0]) return printf("the route is not answered\n"), 1;
  for (int how = 0; how < 2; how++) {
    at_once = how;
    for (int what = REMOVAL; what < ACTS; what++)
      for (int k = 0;; k++) {
        act = NOTHING;
        prepare();
        act = what, acts_at = k;
        request();
        if (!acted) break;
        tried++;
        stopped += over && !answered;
        if (over && answered && !answered_before)
          return printf("step %d of a request (%s, %s): the gateway's wait was over, and the request was answered\n", k, act_names[what], how ? "stores at once" : "stores late"), 1;
      }
  }
  printf("%d steps, %d of them outside the reading\n", tried, stopped);
  return !stopped;
}
