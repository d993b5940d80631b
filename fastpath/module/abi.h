// What this module uses of the interface between Envoy 1.40 and a dynamic module
// (version v0.2.0): functions that Envoy exports, and functions that it calls.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ABI_VERSION "v0.2.0"

typedef struct {
  const char *data;
  size_t size;
} text;

typedef struct {
  const char *name;
  size_t name_size;
  const char *value;
  size_t value_size;
} header;

enum { REQUEST_HEADERS = 0 };
enum { CONTINUE = 0, STOP = 1 };
enum { DYNAMIC_METADATA = 0 };

#define CALL(name) envoy_dynamic_module_callback_##name
#define HOOK(name) envoy_dynamic_module_on_##name

// The early header mutation, which runs before Envoy picks a route.
size_t CALL(early_header_mutation_get_headers_size)(void *request);
bool CALL(early_header_mutation_get_headers)(void *request, header *into);
bool CALL(early_header_mutation_set_header)(void *request, text key, text value);

// The filter.
bool CALL(http_get_header)(void *stream, int kind, text key, text *value, size_t index, size_t *count);
bool CALL(http_set_header)(void *stream, int kind, text key, text value); // {NULL, 0} takes it away
bool CALL(http_set_filter_state_typed)(void *stream, text key, text value);
bool CALL(http_set_filter_state_bytes)(void *stream, text key, text value);
bool CALL(http_get_filter_state_bytes)(void *stream, text key, text *value);
bool CALL(http_get_metadata_number)(void *stream, int source, text space, text key, double *value);
void CALL(http_send_response)(void *stream, uint32_t status, const header *headers, size_t count, text body, text details);
void CALL(http_set_dynamic_metadata_number)(void *stream, text space, text key, double value);
void CALL(http_set_dynamic_metadata_string_batch)(void *stream, text space, const header *pairs, size_t count);

const char *HOOK(program_init)(void);
const void *HOOK(early_header_mutation_config_new)(void *envoy, text name, text config);
void HOOK(early_header_mutation_config_destroy)(const void *config);
bool HOOK(early_header_mutation_mutate)(const void *config, void *request);
const void *HOOK(http_filter_config_new)(void *envoy, text name, text config);
void HOOK(http_filter_config_destroy)(const void *config);
const void *HOOK(http_filter_new)(const void *config, void *stream);
void HOOK(http_filter_destroy)(const void *filter);
int HOOK(http_filter_request_headers)(void *stream, const void *filter, bool end);
int HOOK(http_filter_local_reply)(void *stream, const void *filter, uint32_t status, text details, bool reset);
void HOOK(http_filter_stream_complete)(void *stream, const void *filter);
