/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - what a session asks of the provider.
 *
 * In:  the session's configuration: provider options (keys that begin with "ep.cytoc."), those about EPContext models.
 * Out: an ep. Options of the compiler are its command line's, and it says what is wrong with their values.
 */
#include "integrations/onnxruntime/plugin.h"

#include "ir/nearest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ep_log(const ep *e, int32_t severity, const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  int n = snprintf(text, sizeof text, "cytoc: ");
  vsnprintf(text + n, sizeof text - (size_t)n, format, arguments);
  va_end(arguments);
  ort_status *status = e->ort->Logger_LogMessage(e->logger, severity, text, "cytoc", 0, "cytoc");
  if (status)
    e->ort->ReleaseStatus(status);
}

/* ---- values ---- */

static ort_status *set_text(const ep *e, char **to, const char *value) {
  free(*to);
  *to = strdup(value);
  return *to ? NULL : plugin_error(e->ort, ORT_FAIL, "cytoc: out of memory");
}

static ort_status *invalid(const ep *e, const char *key, const char *expected, const char *value) {
  return plugin_error(e->ort, ORT_INVALID_ARGUMENT, "cytoc: option %s: expected %s, found '%s'", key, expected, value);
}

static bool is_one_of(const char *value, const char *const words[4]) {
  for (int i = 0; i < 4; i++)
    if (!strcmp(value, words[i]))
      return true;
  return false;
}

/* 1, 0, or -1: neither. */
static int switch_of(const char *value) {
  static const char *const yes[4] = {"1", "true", "True", "on"}, *const no[4] = {"0", "false", "False", "off"};
  return is_one_of(value, yes) ? 1 : is_one_of(value, no) ? 0 : -1;
}

static ort_status *add_word(ep *e, const char *format, const char *name, const char *value) {
  char word[1024];
  int n = snprintf(word, sizeof word, format, name, value);
  if (n < 0 || n >= (int)sizeof word || e->n_words == PLUGIN_WORDS)
    return plugin_error(e->ort, ORT_INVALID_ARGUMENT, "cytoc: option %s: its value is too long", name);
  return set_text(e, &e->words[e->n_words++], word);
}

/* ---- provider options ---- */

/* --name=value */
static ort_status *set_word(ep *e, const char *name, const char *value) {
  return *value ? add_word(e, "--%s=%s", name, value) : NULL;
}

/* --name, or nothing */
static ort_status *set_switch(ep *e, const char *name, const char *value) {
  int on = switch_of(value);
  if (on < 0)
    return invalid(e, name, "1 or 0", value);
  return on ? add_word(e, "--%s%s", name, "") : NULL;
}

/* The command line's --int8, --int8=dynamic, --int8=static */
static ort_status *set_int8(ep *e, const char *name, const char *value) {
  return switch_of(value) < 0 ? set_word(e, name, value) : set_switch(e, name, value);
}

static ort_status *set_threads(ep *e, const char *name, const char *value) {
  char *end;
  long n = strtol(value, &end, 10);
  if (end == value || *end || n < 0 || n > CYTO_MAX_THREADS)
    return invalid(e, name, "a number from 0 (those of the session) to 256", value);
  e->threads = (int32_t)n;
  return NULL;
}

static ort_status *set_calibrate(ep *e, const char *name, const char *value) {
  char path[CACHE_PATH];
  if (!path_expand(path, value))
    return invalid(e, name, "a path that is not so long", value);
  e->samples = key_of_files(path);
  return set_word(e, name, path);
}

static ort_status *set_cache_dir(ep *e, const char *name, const char *value) {
  char path[CACHE_PATH];
  if (!path_expand(path, value))
    return invalid(e, name, "a path that is not so long", value);
  return *path ? set_text(e, &e->cache_dir, path) : NULL;
}

static const struct option {
  const char *name;
  ort_status *(*set)(ep *e, const char *name, const char *value);
} options[] = {{"target", set_word},          {"int8", set_int8},       {"calibrate", set_calibrate},
               {"bf16", set_switch},          {"fp16", set_switch},     {"weights", set_word},
               {"fast-algorithms", set_word}, {"threads", set_threads}, {"cache_dir", set_cache_dir}};

static const struct option *option_find(const char *name) {
  for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
    if (!strcmp(options[i].name, name))
      return &options[i];
  return NULL;
}

static ort_status *unknown(const ep *e, const char *name) {
  char text[CY_NEAREST_TEXT], all[256] = "";
  cy_nearest nearest = cy_nearest_of(name, strlen(name));
  for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
    cy_nearest_try(&nearest, options[i].name, strlen(options[i].name));
    strcat(strcat(all, i ? ", " : ""), options[i].name);
  }
  return plugin_error(e->ort, ORT_INVALID_ARGUMENT, "cytoc: there is no provider option '%s'%s (there are %s)", name,
                      cy_nearest_say(&nearest, text), all);
}

/* ---- the session ---- */

#define PREFIX "ep." PLUGIN_NAME "."

static ort_status *read_entry(ep *e, const char *key, const char *value) {
  if (!strncmp(key, PREFIX, strlen(PREFIX))) {
    const char *name = key + strlen(PREFIX);
    const struct option *o = option_find(name);
    return o ? o->set(e, name, value) : unknown(e, name);
  }
  if (!strcmp(key, "ep.context_enable"))
    e->context_enable = !strcmp(value, "1");
  else if (!strcmp(key, "ep.context_embed_mode"))
    e->context_embed = !strcmp(value, "1");
  else if (!strcmp(key, "ep.context_file_path"))
    return set_text(e, &e->context_path, value);
  return NULL;
}

static ort_status *read_session(ep *e, const ort_session_options *session) {
  ort_pairs *pairs = NULL;
  const char *const *keys, *const *values;
  size_t n = 0;
  ort_status *status = e->ort->GetSessionOptionsConfigEntries(session, &pairs);
  if (status)
    return status;
  e->ort->GetKeyValuePairs(pairs, &keys, &values, &n);
  for (size_t i = 0; !status && i < n; i++)
    status = read_entry(e, keys[i], values[i]);
  e->ort->ReleaseKeyValuePairs(pairs);
  return status;
}

static const char *get_name(const ort_ep *self) {
  (void)self;
  return PLUGIN_NAME;
}

ort_status *ep_create(const factory *f, const ort_session_options *session, const ort_logger *logger, ep **out) {
  ep *e = *out = calloc(1, sizeof *e);
  if (!e)
    return plugin_error(&f->ort, ORT_FAIL, "cytoc: out of memory");
  *e = (ep){.base = {.version = ORT_OLDEST,
                     .get_name = get_name,
                     .get_capability = capability,
                     .compile = compile,
                     .release_computes = release_computes,
                     .get_compatibility = ep_compatibility},
            .made_by = f,
            .ort = &f->ort,
            .logger = logger};
  ort_status *status = read_session(e, session);
  if (!status && !(e->helpers = helpers_create()))
    status = plugin_error(e->ort, ORT_FAIL, "cytoc: out of memory");
  if (!status && e->n_words)
    status = options_check(e);
  if (status) {
    ep_release(e);
    *out = NULL;
  }
  return status;
}

void ep_release(ep *e) {
  if (!e)
    return;
  while (e->units) {
    unit *u = e->units;
    e->units = u->next;
    unit_release(u);
  }
  for (size_t i = 0; i < e->n_words; i++)
    free(e->words[i]);
  free(e->helpers);
  free(e->cache_dir);
  free(e->context_path);
  free(e);
}
