// What the tests run the module in, instead of Envoy.
//
//   check parse           targets of the requests on stdin
//   check run FOLDER      their answers from the table in FOLDER
//   check stall FOLDER    the same; each answer waits inside its reading for a byte
//   check late FOLDER     the same; each hit waits for a byte before it is answered
//   check scribble FOLDER ROUNDS SEED
//                         writes garbage over the routes and answers one ID meanwhile
//   check torture SECONDS readings against removals and waits, as table.go makes them
//
// A request is a byte (how many headers, or FLUSH), then name and value of each after their
// lengths (a byte and two). A result is a byte (0: left to ext_proc) and, of an answer,
// strings with a length of two bytes: of parse, ID and port; else the metadata and the address.
#include "../module.c"
#include <pthread.h>

typedef struct {
  header headers[MAX_HEADERS];
  size_t count;
  bool answered, stall, late;
  char address[300]; // of an answer
  char hit[512];     // the header that makes it a hit
  size_t hit_size;
  double port;
  char pairs[1024];
  size_t size;
} request;

static void wait_for_a_byte(void) {
  putchar('w');
  fflush(stdout);
  if (getchar() == EOF) exit(0);
}

bool CALL(http_set_header)(void *stream, int kind, text key, text value) { return (void)stream, (void)kind, (void)key, (void)value, true; }
bool CALL(http_set_filter_state_bytes)(void *stream, text key, text value) { return (void)stream, (void)key, (void)value, true; }
bool CALL(http_get_filter_state_bytes)(void *stream, text key, text *value) { return (void)stream, (void)key, (void)value, false; }
bool CALL(http_get_metadata_number)(void *stream, int source, text space, text key, double *value) {
  return (void)stream, (void)source, (void)space, (void)key, (void)value, false;
}
void CALL(http_send_response)(void *stream, uint32_t status, const header *headers, size_t count, text body, text details) {
  (void)stream, (void)status, (void)headers, (void)count, (void)body, (void)details;
}

size_t CALL(early_header_mutation_get_headers_size)(void *of) { return ((request *)of)->count; }

bool CALL(early_header_mutation_get_headers)(void *of, header *into) {
  request *r = of;
  memcpy(into, r->headers, r->count * sizeof *into);
  return true;
}

bool CALL(early_header_mutation_set_header)(void *of, text key, text value) {
  request *r = of;
  if (!IS(key.data, key.size, "x-envoy-sandlane") || r->hit_size || !value.size || value.size > sizeof r->hit) abort();
  memcpy(r->hit, value.data, value.size);
  r->hit_size = value.size;
  return true;
}

bool CALL(http_get_header)(void *stream, int kind, text key, text *value, size_t index, size_t *count) {
  request *r = stream;
  if (kind != REQUEST_HEADERS || !IS(key.data, key.size, "x-envoy-sandlane") || index || count) abort();
  *value = (text){r->hit, r->hit_size};
  return r->hit_size > 0;
}

static void put_string(request *r, const char *s, size_t n) {
  if (r->size + n + 2 > sizeof r->pairs) abort();
  r->pairs[r->size++] = (char)(n >> 8);
  r->pairs[r->size++] = (char)n;
  memcpy(r->pairs + r->size, s, n);
  r->size += n;
}

bool CALL(http_set_filter_state_typed)(void *stream, text key, text value) {
  request *r = stream;
  if (!IS(key.data, key.size, "envoy.network.transport_socket.original_dst_address") || r->answered || value.size >= sizeof r->address) abort();
  if (r->stall) wait_for_a_byte();
  memcpy(r->address, value.data, value.size);
  return r->answered = true;
}

void CALL(http_set_dynamic_metadata_number)(void *stream, text space, text key, double value) {
  request *r = stream;
  if (!IS(space.data, space.size, "sandlane") || !IS(key.data, key.size, "port")) abort();
  r->port = value;
}

void CALL(http_set_dynamic_metadata_string_batch)(void *stream, text space, const header *pairs, size_t count) {
  request *r = stream;
  if (!IS(space.data, space.size, "sandlane") || r->size) abort();
  char port[16];
  put_string(r, port, (size_t)snprintf(port, sizeof port, "%.0f", r->port));
  for (size_t i = 0; i < count; i++) {
    put_string(r, pairs[i].name, pairs[i].name_size);
    put_string(r, pairs[i].value, pairs[i].value_size);
  }
  put_string(r, "destination", 11);
  put_string(r, r->address, strlen(r->address));
}

enum { FLUSH = 0xff }; // instead of a request: what was answered is to be sent

static unsigned byte(void) {
  int c = getchar();
  if (c == EOF) exit(0);
  return (unsigned)c;
}

// Each name and value in memory of its own, so that a sanitizer sees a read past it.
static char *bytes(size_t n) {
  char *s = malloc(n ? n : 1);
  if (n && fread(s, 1, n, stdin) != n) exit(0);
  return s;
}

static void read_request(request *r) {
  while ((r->count = byte()) == FLUSH) fflush(stdout);
  for (size_t i = 0; i < r->count; i++) {
    header *h = &r->headers[i];
    h->name_size = byte();
    h->value_size = byte() << 8;
    h->value_size |= byte();
    h->name = bytes(h->name_size);
    h->value = bytes(h->value_size);
  }
}

static void forget(request *r) {
  for (size_t i = 0; i < r->count; i++) free((void *)r->headers[i].name), free((void *)r->headers[i].value);
}

static void reply(bool answered, request *r) {
  putchar(answered);
  if (answered) fwrite(r->pairs, 1, r->size, stdout);
  putchar(0xff); // the end
  fflush(stdout);
}

static void parse(void) {
  for (;;) {
    request r = {0};
    read_request(&r);
    target t;
    bool ok = parse_target(r.headers, r.count, &t);
    if (ok) {
      put_string(&r, t.id.data, t.id.size);
      put_string(&r, t.port.data, t.port.size);
    }
    putchar(ok);
    if (ok) fwrite(r.pairs, 1, r.size, stdout);
    forget(&r);
  }
}

static state *load(const char *folder) {
  state *s = (state *)HOOK(early_header_mutation_config_new)(NULL, TEXT("route"), (text){folder, strlen(folder)});
  if (!s) exit(2);
  return s;
}

// ask does what Envoy does with a request whose pod does not answer: a hit passes the
// filter, another does not.
static void ask(request *r, state *s) {
  if (!HOOK(early_header_mutation_mutate)(s, r)) abort();
  if (r->hit_size && r->late) wait_for_a_byte();
  if (!r->hit_size) return;
  const void *filter = HOOK(http_filter_new)(HOOK(http_filter_config_new)(NULL, TEXT("route"), TEXT("")), r);
  HOOK(http_filter_request_headers)(r, filter, true);
  HOOK(http_filter_local_reply)(r, filter, 503, TEXT(""), false);
  HOOK(http_filter_stream_complete)(r, filter);
  HOOK(http_filter_destroy)(filter);
}

static void run(const char *folder, bool stall, bool late) {
  state *s = load(folder);
  for (;;) {
    request r = {.stall = stall, .late = late};
    read_request(&r);
    s->next_attempt = 0; // tests need not wait for the next second
    ask(&r, s);
    reply(r.answered, &r);
    forget(&r);
  }
}

static uint64_t dice;
static uint64_t roll(void) { return dice = mix(dice, 0x9e3779b97f4a7c15ull); }

// scribble asks for the ID "iaaaaaaaaaaaaaaaaaaaa", whose entry says where it lives,
// while bytes of the routes change: its answer is that of the whole entry, or none.
static void scribble(const char *folder, long rounds, uint64_t seed) {
  state *s = load(folder);
  request first = {.count = 4};
  const char *text_of[] = {":path", "/", ":authority", "localhost", "x-sandbox-id", "iaaaaaaaaaaaaaaaaaaaa", "x-sandbox-port", "80"};
  for (int i = 0; i < 4; i++) first.headers[i] = (header){text_of[2 * i], strlen(text_of[2 * i]), text_of[2 * i + 1], strlen(text_of[2 * i + 1])};
  request r = first;
  ask(&r, s);
  if (!r.answered) exit(3);
  request right = r;
  view *v = &s->views[0];
  size_t size = (v->bucket_mask + 1) * sizeof(bucket) + v->entry_count * sizeof(entry);
  // A copy in memory of its own: a sanitizer sees what lies beyond it.
  char *whole = malloc(size), *copy = malloc(size);
  memcpy(whole, v->buckets, size);
  memcpy(copy, whole, size);
  v->buckets = (void *)copy;
  v->entries = (void *)(copy + (v->bucket_mask + 1) * sizeof(bucket));
  uint64_t h = hash_id(v->key, "iaaaaaaaaaaaaaaaaaaaa", 21);
  size_t b = (h & v->bucket_mask) * sizeof(bucket), e = 0;
  for (int i = 0; i < WAYS; i++)
    if (!((v->buckets[h & v->bucket_mask].word[i] ^ h) >> INDEX_BITS)) e = (v->buckets[h & v->bucket_mask].word[i] & INDEX_MASK) - 1;
  e = (v->bucket_mask + 1) * sizeof(bucket) + e * sizeof(entry);
  dice = seed;
  long answers = 0;
  for (long i = 0; i < rounds; i++) {
    uint64_t d = roll();
    size_t at = d & 1 ? b + (d >> 8) % sizeof(bucket) : e + (d >> 8) % sizeof(entry), n = 1 + (d >> 40) % 8;
    for (size_t k = at; k < at + n && k < size; k++) copy[k] = d & 2 ? (char)roll() : 0;
    r = first;
    ask(&r, s);
    if (r.answered && (r.size != right.size || memcmp(r.pairs, right.pairs, r.size))) {
      printf("round %ld: an answer from garbage\n", i);
      exit(1);
    }
    answers += r.answered;
    if (d & 4) memcpy(copy + b, whole + b, sizeof(bucket)), memcpy(copy + e, whole + e, sizeof(entry));
  }
  printf("%ld rounds, %ld answers\n", rounds, answers);
  fflush(stdout);
  _exit(0); // what it has allocated is no leak
}

// torture: two workers read as read_and_answer does; the gateway's side removes the word,
// waits as waitWorkers does, changes the entry, and publishes it anew. A worker that
// sees the entry change inside its reading was not waited for.
#define OWN_LINE __attribute__((aligned(128)))
static OWN_LINE worker_slot slots[2];
static OWN_LINE uint64_t shared_word = 1;
static OWN_LINE volatile uint64_t shared_entry = 1;
static OWN_LINE char after_it; // nothing shares the entry's line
static int stop;
static long broken, readings, found;

static void *read_on(void *p) {
  worker_slot *w = p;
  long mine = 0, bad = 0, seen = 0;
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    uint64_t seq = (w->seq + 1) | 1;
    __atomic_store_n(&w->seq, seq, __ATOMIC_RELAXED);
    FULL_FENCE();
    if (__atomic_load_n(&shared_word, __ATOMIC_ACQUIRE)) {
      seen++;
      for (int i = 0; i < 400; i++)
        if (shared_entry != 1) {
          bad++;
          break;
        }
    }
    __atomic_store_n(&w->seq, seq + 1, __ATOMIC_RELEASE);
    mine++;
  }
  __atomic_add_fetch(&broken, bad, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&readings, mine, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&found, seen, __ATOMIC_SEQ_CST);
  return NULL;
}

static void torture(double seconds) {
  pthread_t t[2];
  for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, read_on, &slots[i]);
  uint64_t end = nanos(CLOCK_BOOTTIME) + (uint64_t)(seconds * 1e9);
  long waits = 0;
  while (nanos(CLOCK_BOOTTIME) < end) {
    __atomic_exchange_n(&shared_word, 0, __ATOMIC_SEQ_CST);
#ifndef NO_WAIT
    for (int i = 0; i < 2; i++) {
      uint64_t s = __atomic_load_n(&slots[i].seq, __ATOMIC_SEQ_CST);
      for (int k = 0; s & 1 && __atomic_load_n(&slots[i].seq, __ATOMIC_SEQ_CST) == s; k++)
        if (k > 20000) nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    }
#endif
    shared_entry = 2;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (volatile int k = 0; k < 300; k++) continue;
    shared_entry = 1;
    __atomic_store_n(&shared_word, 1, __ATOMIC_RELEASE);
    for (volatile int k = 0; k < 200; k++) continue;
    waits++;
  }
  stop = 1;
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
  printf("%ld waits, %ld readings, %ld of them with the entry, %ld broken\n", waits, readings, found, broken);
  exit(broken != 0 || after_it);
}

int main(int argc, char **argv) {
  const char *how = argc > 1 ? argv[1] : "";
  if (!strcmp(how, "parse")) parse();
  else if (!strcmp(how, "run") && argc > 2) run(argv[2], false, false);
  else if (!strcmp(how, "stall") && argc > 2) run(argv[2], true, false);
  else if (!strcmp(how, "late") && argc > 2) run(argv[2], false, true);
  else if (!strcmp(how, "scribble") && argc > 4) scribble(argv[2], atol(argv[3]), strtoull(argv[4], NULL, 10));
  else if (!strcmp(how, "torture") && argc > 2) torture(atof(argv[2]));
  else return 64;
}
