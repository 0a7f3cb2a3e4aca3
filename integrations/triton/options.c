/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - what a model's configuration asks for: parameters { key: "int8" value: { string_value: "dynamic" } }.
 *
 * In:  the map `parameters`. Those of the compiler are its command line's, and it says what is wrong with their values.
 * Out: options; an error for a parameter that there is not. Keys with a dot ("triton.x") are others'.
 */
#include "integrations/triton/backend.h"

#include "ir/nearest.h"

#include <stdlib.h>
#include <string.h>

static triton_error *set_text(char **to, const char *value) {
  free(*to);
  *to = strdup(value);
  return *to ? NULL : out_of_memory();
}

static triton_error *invalid(const char *name, const char *expected, const char *value) {
  return error_of(TRITON_INVALID_ARG, "parameter '%s': expected %s, found '%s'", name, expected, value);
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

triton_error *options_add(options *o, const char *name, const char *value) {
  char word[1024];
  int n = snprintf(word, sizeof word, *value ? "--%s=%s" : "--%s", name, value);
  if (n < 0 || n >= (int)sizeof word || o->n_words == OPTION_WORDS)
    return error_of(TRITON_INVALID_ARG, "parameter '%s': its value is too long", name);
  return set_text(&o->words[o->n_words++], word);
}

/* --name=value */
static triton_error *set_word(options *o, const char *name, const char *value) {
  return *value ? options_add(o, name, value) : NULL;
}

/* --name, or nothing */
static triton_error *set_switch(options *o, const char *name, const char *value) {
  int on = switch_of(value);
  if (on < 0)
    return invalid(name, "1 or 0", value);
  return on ? options_add(o, name, "") : NULL;
}

/* The command line's --int8, --int8=dynamic, --int8=static */
static triton_error *set_int8(options *o, const char *name, const char *value) {
  return switch_of(value) < 0 ? set_word(o, name, value) : set_switch(o, name, value);
}

static triton_error *set_target(options *o, const char *name, const char *value) {
  o->has_target = *value && strcmp(value, "native");
  return set_word(o, name, value);
}

static triton_error *set_threads(options *o, const char *name, const char *value) {
  char *end;
  long n = strtol(value, &end, 10);
  if (end == value || *end || n < 0 || n > CYTO_MAX_THREADS)
    return invalid(name, "a number from 0 (all CPUs, shared by the instances) to 256", value);
  o->threads = (int32_t)n;
  return NULL;
}

static triton_error *set_calibrate(options *o, const char *name, const char *value) {
  o->samples = key_of_files(value);
  return set_word(o, name, value);
}

static triton_error *set_cache(options *o, const char *name, const char *value) {
  (void)name;
  return *value ? set_text(&o->cache, value) : NULL;
}

static triton_error *set_sequences(options *o, const char *name, const char *value) {
  o->direct = !strcmp(value, "direct");
  o->oldest = !strcmp(value, "oldest");
  return o->direct || o->oldest || switch_of(value) == 0 ? NULL : invalid(name, "direct, oldest or 0", value);
}

static triton_error *set_layers(options *o, const char *name, const char *value) {
  int on = switch_of(value);
  if (on < 0)
    return invalid(name, "1 or 0", value);
  o->layers = on;
  return on ? options_add(o, "profile", "") : NULL;
}

static const struct row {
  const char *name;
  triton_error *(*set)(options *o, const char *name, const char *value);
} rows[] = {{"target", set_target},        {"int8", set_int8},           {"calibrate", set_calibrate},
            {"bf16", set_switch},          {"fp16", set_switch},         {"weights", set_word},
            {"fast-algorithms", set_word}, {"threads", set_threads},     {"cache", set_cache},
            {"sequences", set_sequences},  {"layer_metrics", set_layers}};
enum { ROWS = sizeof rows / sizeof rows[0] };

static triton_error *unknown(const char *name) {
  char text[CY_NEAREST_TEXT], all[256] = "";
  cy_nearest nearest = cy_nearest_of(name, strlen(name));
  for (int i = 0; i < ROWS; i++) {
    cy_nearest_try(&nearest, rows[i].name, strlen(rows[i].name));
    strcat(strcat(all, i ? ", " : ""), rows[i].name);
  }
  return error_of(TRITON_INVALID_ARG, "there is no parameter '%s'%s (there are %s)", name,
                  cy_nearest_say(&nearest, text), all);
}

static triton_error *set(options *o, const char *name, const char *value) {
  for (int i = 0; i < ROWS; i++)
    if (!strcmp(rows[i].name, name))
      return rows[i].set(o, name, value);
  return strchr(name, '.') ? NULL : unknown(name);
}

triton_error *options_read(options *o, const json_t *parameters) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)parameters, name, value) {
    const char *text = json_string_value(json_object_get(value, "string_value"));
    TRY(set(o, name, text ? text : ""));
  }
  return NULL;
}

void options_free(options *o) {
  for (size_t i = 0; i < o->n_words; i++)
    free(o->words[i]);
  free(o->cache);
}
