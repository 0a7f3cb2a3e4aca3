/* SPDX-License-Identifier: Apache-2.0 */
/* test_tuned.c - cyto_tuned_read(): a file as cyto-tune writes it, every beginning of it, and what else may stand there. */
#define _GNU_SOURCE
#include "../check.h"
#include "cyto.h"

#include <stdlib.h>
#include <unistd.h>

extern const cyrt_model rt_model;

/* As the C library's is where the locale writes 2,5: a file of cyto-tune is read the same everywhere. */
double strtod(const char *text, char **end) {
  long long whole = strtoll(text, end, 10);
  return (double)whole;
}

static char path[] = "/tmp/test_tuned.XXXXXX";

static const char good[] = "{\n \"cyto-tune\": 1, \"model\": \"a \\\"b\\\"\", \"target\": \"t\", \"more\": [1, "
                           "[-2.5e3, {\"x\": null}], \"]}\", true],\n"
                           " \"cpus\": 8, \"symbol\": \"batch\",\n \"choice\": {\"threads\": 4, \"p95_ms\": 0.5, "
                           "\"contexts\": 2, \"batch\": 16}}\n";

static int read_text(const char *text, size_t n, cyto_tuned *out, cyto_error *error) {
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(text, 1, n, f) != n || fclose(f))
    return -1;
  memset(out, 0x55, sizeof *out);
  return cyto_tuned_read(path, NULL, out, error);
}

static void test_good(void) {
  cyto_tuned t;
  cyto_error error;
  CHECK_INT_EQ(read_text(good, strlen(good), &t, &error), CYTO_OK);
  CHECK_INT_EQ(t.threads, 4);
  CHECK_INT_EQ(t.contexts, 2);
  CHECK_INT_EQ(t.batch, 16);
  CHECK_INT_EQ(t.cpus, 8);
  CHECK_STR_EQ(t.symbol, "batch");
  static const char fractions[] = "{\"cyto-tune\": 1, \"seconds\": 12.5, \"least\": -2.5e-3, \"cpus\": 2.0, "
                                  "\"choice\": {\"threads\": 1, \"contexts\": 1, \"batch\": 3}}";
  CHECK_INT_EQ(read_text(fractions, sizeof fractions - 1, &t, &error), CYTO_OK);
  CHECK_INT_EQ(t.cpus, 2);
  CHECK_INT_EQ(t.batch, 3);
}

/* A file that is cut off says so, on its line; nothing of it is taken. */
static void test_cut_off(void) {
  cyto_error error;
  cyto_tuned t, zeros = {0};
  for (size_t n = 0; n + 2 < strlen(good); n++) {
    CHECK_INT_EQ(read_text(good, n, &t, &error), CYTO_INVALID_ARGUMENT);
    CHECK(strstr(error.message, path) && strstr(error.message, "run cyto-tune again") &&
          strstr(error.message, ", line "));
    CHECK(!memcmp(&t, &zeros, sizeof t));
  }
}

static void test_bad(void) {
  static const struct {
    const char *text, *said;
  } rows[] = {
      {"hello", "line 1: expected an object"},
      {"{\"cyto-tune\": 1,\n\"cpus\": \"8\"}", "line 2: expected a number"},
      {"{\"a\": nothing}", "expected a value"},
      {"{\"a\": 1} {", "expected the end of the file"},
      {"{}", "no file of cyto-tune, or of another version"},
      {"{\"cyto-tune\": 2}", "no file of cyto-tune, or of another version"},
      {"{\"cyto-tune\": 1, \"cpus\": 2, \"measured\": []}", "it has no choice"},
      {"{\"cyto-tune\": 1, \"cpus\": 2, \"choice\": {\"threads\": 0, \"contexts\": 1, \"batch\": 0}}",
       "threads and contexts from 1"},
      {"{\"cyto-tune\": 1, \"cpus\": 2, \"choice\": {\"threads\": 1, \"contexts\": 1, \"batch\": -1}}",
       "a batch from 0"},
      {"{\"cyto-tune\": 1, \"cpus\": 2, \"choice\": {\"threads\": 1e300}}", "expected a number"},
      {"{\"cyto-tune\": 1, \"cpus\": 99999999999999999999}", "expected a number"},
      {"{\"cyto-tune\": 1, \"cpus\": -1000000000000001}", "expected a number"},
      {"{\"cyto-tune\": 1, \"cpus\": -}", "expected a number"},
      {"{\"cyto-tune\": 1, \"seconds\": .}", "expected a value"},
  };
  cyto_error error;
  cyto_tuned t;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    CHECK_INT_EQ(read_text(rows[i].text, strlen(rows[i].text), &t, &error), CYTO_INVALID_ARGUMENT);
    CHECK_STR_HAS(error.message, rows[i].said);
  }
  char deep[200];
  memset(deep, '[', sizeof deep);
  memcpy(deep, "{\"a\": ", 6);
  CHECK_INT_EQ(read_text(deep, sizeof deep, &t, &error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_HAS(error.message, "fewer objects");
}

static void test_arguments(void) {
  cyto_error error;
  cyto_tuned t;
  cyto_model *model;
  CHECK_INT_EQ(cyto_tuned_read(NULL, NULL, &t, &error), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_tuned_read(path, NULL, NULL, NULL), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_tuned_read("/tmp", NULL, &t, &error), CYTO_NOT_FOUND);
  CHECK_INT_EQ(cyto_tuned_read("/none/tuned.json", NULL, &t, NULL), CYTO_NOT_FOUND);
  CHECK_REQUIRE(!cyto_model_from_linked(&rt_model, &model, &error));
  CHECK_INT_EQ(read_text(good, strlen(good), &t, &error), CYTO_OK);
  CHECK_INT_EQ(cyto_tuned_read(path, model, &t, &error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_HAS(error.message, "of the model 'a \"b\"' for t, and this one is");
  char text[600];
  int n = snprintf(text, sizeof text,
                   "{\"cyto-tune\": 1, \"model\": \"%s\", \"target\": \"%s\", \"cpus\": 1, \"choice\": {\"threads\": "
                   "1, \"contexts\": 1}}",
                   cyto_model_name(model), cyto_model_target(model));
  CHECK_INT_EQ(read_text(text, (size_t)n, &t, &error), CYTO_OK);
  CHECK_INT_EQ(cyto_tuned_read(path, model, &t, &error), CYTO_OK);
  CHECK_INT_EQ(t.batch, 0);
  cyto_model_unload(model);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"good", test_good}, {"cut_off", test_cut_off}, {"bad", test_bad}, {"arguments", test_arguments}};
  int f = mkstemp(path);
  if (f < 0)
    return 1;
  close(f);
  int status = check_main(argc, argv, tests, CHECK_COUNT(tests));
  unlink(path);
  return status;
}
