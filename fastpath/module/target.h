// Which sandbox and port a request names. A request that this file accepts has the same
// target in package extproc; a request that is unusual or unclear it leaves to extproc.
#pragma once
#include "abi.h"
#include <string.h>

#define LINK_PATH "/.sandlane/" // a link below it is the gateway's own (LinkPath in extproc)
#define PORT_COOKIE "sandlane-port" // a cookie that no sandbox sees (PortCookie in extproc)

enum { SANDBOXD_PORT = 49983, MAX_ID = 57, GENERATED_ID = 21 };

typedef struct {
  text id;
  text port; // as it was written: decimal, without leading zeros
  int port_number;
} target;

static inline bool same(const char *s, size_t n, const char *word, size_t size) { return n == size && !memcmp(s, word, n); }
#define IS(s, n, word) same(s, n, word, sizeof(word) - 1)

static inline bool begins(text s, const char *word, size_t size) { return s.size >= size && !memcmp(s.data, word, size); }

// has says whether s has the word in it.
static inline bool has(text s, const char *word, size_t size) {
  for (const char *at = s.data; s.size >= size; s.data = at + 1) {
    at = memchr(s.data, word[0], s.size - size + 1);
    if (!at) return false;
    if (!memcmp(at, word, size)) return true;
    s.size -= (size_t)(at + 1 - s.data);
  }
  return false;
}

static inline bool digit(char c) { return c >= '0' && c <= '9'; }
static inline bool alnum(char c) { return (c >= 'a' && c <= 'z') || digit(c); }
static inline char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c; }

static inline bool is_word(text s, const char *word, size_t size) {
  if (s.size != size) return false;
  for (size_t i = 0; i < size; i++)
    if (lower(s.data[i]) != word[i]) return false;
  return true;
}
#define IS_WORD(s, word) is_word(s, word, sizeof(word) - 1)

// parse_port returns 1 to 65535; 0 if s is no port.
static inline int parse_port(text s) {
  int n = 0;
  if (s.size < 1 || s.size > 5 || s.data[0] == '0') return 0;
  for (size_t i = 0; i < s.size; i++) {
    if (!digit(s.data[i])) return 0;
    n = n * 10 + (s.data[i] - '0');
  }
  return n <= 65535 ? n : 0;
}

// generated says whether s begins like a generated ID: i and 20 of a-z and 0-9.
static inline bool generated(const char *s) {
  if (s[0] != 'i') return false;
  for (int i = 1; i < GENERATED_ID; i++)
    if (!alnum(s[i])) return false;
  return true;
}

// valid_id refuses an ID in the generated form that goes on after a dash, since extproc
// cuts the rest off.
static inline bool valid_id(text s) {
  if (s.size < 1 || s.size > MAX_ID || s.data[0] == '-' || s.data[s.size - 1] == '-') return false;
  for (size_t i = 0; i < s.size; i++)
    if (!alnum(s.data[i]) && s.data[i] != '-') return false;
  return !(s.size > GENERATED_ID && s.data[GENERATED_ID] == '-' && generated(s.data));
}

static inline bool ipv4(text s) {
  size_t i = 0;
  for (int part = 0; part < 4; part++) {
    int n = 0, digits = 0;
    if (part > 0 && (i >= s.size || s.data[i++] != '.')) return false;
    for (; i < s.size && digit(s.data[i]); i++, digits++) {
      if (digits > 0 && n == 0) return false; // a leading zero
      n = n * 10 + (s.data[i] - '0');
      if (n > 255) return false;
    }
    if (digits == 0) return false;
  }
  return i == s.size;
}

// labels says whether s is one or more DNS labels.
static inline bool labels(text s) {
  int n = 0;
  for (size_t i = 0; i < s.size; i++) {
    char c = lower(s.data[i]);
    if (alnum(c) || c == '-' || c == '_') {
      if (++n > 63) return false;
    } else if (c == '.' && n > 0) {
      n = 0;
    } else {
      return false;
    }
  }
  return n > 0;
}

enum host { HOST_UNSURE, HOST_SHARED, HOST_SANDBOX };

// classify returns the kind of host, and the first label of a sandbox's host.
static inline enum host classify(text authority, text *label) {
  text name = authority;
  const char *colon = authority.size ? memchr(authority.data, ':', authority.size) : NULL;
  if (colon) {
    name.size = (size_t)(colon - authority.data);
    text port = {colon + 1, authority.size - name.size - 1};
    if (!parse_port(port)) return HOST_UNSURE;
  }
  if (ipv4(name) || IS_WORD(name, "localhost")) return HOST_SHARED;
  const char *dot = name.size && name.size <= 253 ? memchr(name.data, '.', name.size) : NULL;
  if (!dot) return HOST_UNSURE;
  *label = (text){name.data, (size_t)(dot - name.data)};
  text domain = {dot + 1, name.size - label->size - 1};
  if (!labels(*label) || !labels(domain) || IS_WORD(*label, "api")) return HOST_UNSURE;
  return IS_WORD(*label, "sandbox") ? HOST_SHARED : HOST_SANDBOX;
}

// plain_path says whether the path has nothing that extproc would refuse, decode or clean.
static inline bool plain_path(text path, int port) {
  if (path.size == 0 || path.data[0] != '/') return false;
  for (size_t i = 0; i < path.size; i++) {
    unsigned char c = (unsigned char)path.data[i];
    if (c <= ' ' || c == 0x7f || c == '#') return false;
  }
  if (begins(path, LINK_PATH, sizeof LINK_PATH - 1)) return false;
  if (port != SANDBOXD_PORT) return true;
  const char *query = memchr(path.data, '?', path.size);
  size_t n = query ? (size_t)(query - path.data) : path.size;
  if (IS(path.data, n, "/files") || IS(path.data, n, "/health")) return true;
  int segments = 0;
  for (size_t i = 0; i < n; i++) {
    char c = path.data[i], l = lower(c);
    if (c == '/') {
      if (i + 1 == n || path.data[i + 1] == '/' || path.data[i + 1] == '.') return false;
      segments++;
    } else if (!alnum(l) && c != '.' && c != '_' && c != '-') {
      return false;
    }
  }
  return segments > 1;
}

// field is a header that may come at most once.
typedef struct {
  text value;
  int count;
} field;

static inline void take(field *into, const header *h) {
  into->value = (text){h->value, h->value_size};
  into->count++;
}

// parse_target reads the headers; false leaves the request to extproc.
static inline bool parse_target(const header *headers, size_t count, target *t) {
  field path = {0}, authority = {0}, x_id = {0}, x_port = {0}, e_id = {0}, e_port = {0};
  bool upgrade = false;
  for (size_t i = 0; i < count; i++) {
    const header *h = &headers[i];
    const char *name = h->name;
    size_t n = h->name_size;
    if (n < 5) continue;
    switch (name[0]) {
    case ':':
      if (IS(name, n, ":path")) take(&path, h);
      else if (IS(name, n, ":authority")) take(&authority, h);
      break;
    case 'x':
      if (IS(name, n, "x-sandbox-id")) take(&x_id, h);
      else if (IS(name, n, "x-sandbox-port")) take(&x_port, h);
      else if (n > 10 && !memcmp(name, "x-sandbox-", 10)) return false; // names a key, a pool or an env
      break;
    case 'c':
      if (IS(name, n, "cookie") && has((text){h->value, h->value_size}, PORT_COOKIE, sizeof PORT_COOKIE - 1)) return false;
      break;
    case 's':
      if (IS(name, n, "service-worker")) return false; // which extproc mostly refuses
      break;
    case 'u':
      if (IS(name, n, "upgrade")) upgrade = true;
      break;
    case 'e':
      if (IS(name, n, "e2b-sandbox-id")) take(&e_id, h);
      else if (IS(name, n, "e2b-sandbox-port")) take(&e_port, h);
      break;
    }
  }
  if (path.count != 1 || authority.count != 1) return false;
  text label = {0};
  switch (classify(authority.value, &label)) {
  case HOST_SANDBOX: {
    const char *dash = memchr(label.data, '-', label.size);
    if (!dash) return false;
    t->port = (text){label.data, (size_t)(dash - label.data)};
    t->id = (text){dash + 1, label.size - t->port.size - 1};
    break;
  }
  case HOST_SHARED: {
    int x = x_id.count + x_port.count, e = e_id.count + e_port.count;
    if (!(x == 2 && x_id.count == 1 && e == 0) && !(e == 2 && e_id.count == 1 && x == 0)) return false;
    t->id = x ? x_id.value : e_id.value;
    t->port = x ? x_port.value : e_port.value;
    break;
  }
  default:
    return false;
  }
  t->port_number = parse_port(t->port);
  if (upgrade && t->port_number == SANDBOXD_PORT) return false; // which extproc refuses
  return t->port_number && valid_id(t->id) && plain_path(path.value, t->port_number);
}
