/* SPDX-License-Identifier: Apache-2.0 */
/* compile_test.c - cytoc_compile(): what goes in, what comes out, what is said meanwhile.
 *
 * Beside: the command line's files, byte for byte; and what models of memory compute when they are loaded from memory.
 */
#include "jobs.h"

#include "runtime/cyto.h"
#include "version.h"

#include <stdarg.h>
#include <sys/stat.h>

#define DIGITS "examples/digits/digits.onnx"

static char cytoc[CHECK_PATH]; /* the command line */

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...) {
  char line[2000];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  return system(line);
}

/* ---- results ---- */

static void check_beside_command_line(const char *options, const char *const *list, size_t n) {
  const char *folder = own_tmpdir();
  heard h = {0};
  cytoc_result r;
  char path[CHECK_PATH + 20], header[CHECK_PATH + 20];
  snprintf(path, sizeof path, "%s/digits.so", folder);
  snprintf(header, sizeof header, "%s/digits.h", folder);
  CHECK_REQUIRE(!shell("%s %s -o %s %s", cytoc, DIGITS, path, options));
  bytes library = file_bytes(path), text = file_bytes(header), model = file_bytes(DIGITS);
  remove(path);
  remove(header);
  /* from memory to memory */
  cytoc_job job = job_of(&h);
  job.model = model.data;
  job.model_size = model.size;
  job.model_path = DIGITS;
  job.options = list;
  job.option_count = n;
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_OK);
  CHECK_STR_EQ(r.message, "");
  CHECK(same_bytes(library, r.library, r.library_size));
  CHECK_STR_EQ(r.header, (char *)text.data);
  CHECK_STR_EQ(r.report, "");
  cytoc_result_free(&r);
  cytoc_result_free(&r);
  /* from a file to a file */
  job.model = NULL;
  job.output_path = path;
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_OK);
  CHECK(!r.library && !r.header);
  cytoc_result_free(&r);
  bytes again = file_bytes(path), text_again = file_bytes(header);
  CHECK(again.data && same_bytes(library, again.data, again.size));
  CHECK(text_again.data && same_bytes(text, text_again.data, text_again.size));
  remove(path);
  remove(header);
  CHECK_INT_EQ(entries_of(folder), 0);
  CHECK_INT_EQ(h.errors + h.wrong_thread, 0);
  free(library.data);
  free(text.data);
  free(model.data);
  free(again.data);
  free(text_again.data);
}

static void as_command_line(void) { check_beside_command_line("", NULL, 0); }

static void as_command_line_options(void) {
  static const char *const list[] = {"-O1", "--dim", "batch=2", "--int8=dynamic", "-j", "1", "--target=x86-64-v3"};
  check_beside_command_line("-O1 --dim batch=2 --int8=dynamic -j 1 --target=x86-64-v3", list, 7);
}

/* A library without a name from its file is called "model". */
static void run_from_memory(void) {
  heard h = {0};
  cytoc_result r;
  bytes model = product_bytes((product){.columns_declared = JOBS_ROWS});
  cytoc_job job = job_of(&h);
  job.model = model.data;
  job.model_size = model.size;
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_OK);
  CHECK_REQUIRE(r.library);
  CHECK_STR_HAS(r.header, "model_run(");
  cyto_error error;
  cyto_model *loaded, *second;
  cyto_context *context;
  CHECK_INT_EQ(cyto_model_load_memory(r.library, r.library_size, &loaded, &error), CYTO_OK);
  CHECK_STR_EQ(error.message, "");
  CHECK_INT_EQ(cyto_model_load_memory(r.library, r.library_size, &second, &error), CYTO_OK);
  cytoc_result_free(&r); /* the model has a copy */
  CHECK_REQUIRE(loaded && !cyto_context_create(loaded, NULL, &context, &error));
  const float x[2 * JOBS_ROWS] = {1, 0, 0, 0, 1, 1, 1, 1};
  const int64_t dims[] = {2, JOBS_ROWS};
  cyto_tensor y;
  CHECK_INT_EQ(cyto_bind_input(context, 0, CYTO_F32, 2, dims, x, &error), CYTO_OK);
  CHECK_INT_EQ(cyto_run(context, &error), CYTO_OK);
  CHECK_REQUIRE(!cyto_output(context, 0, &y, &error));
  for (int i = 0; i < JOBS_COLUMNS; i++) {
    CHECK_CLOSE(((float *)y.data)[i], jobs_weights[i], 0);
    CHECK_CLOSE(((float *)y.data)[JOBS_COLUMNS + i], 4 * jobs_weights[i] + 18, 0);
  }
  cyto_model_unload(second);
  cyto_context_destroy(context);
  cyto_model_unload(loaded);
  free(model.data);
}

static void other_kinds(void) {
  const char *folder = own_tmpdir();
  static const char *const endings[] = {"a", "o", "h", "ll", "asm"};
  for (int i = 0; i < 5; i++) {
    heard h = {0};
    cytoc_result r;
    char path[CHECK_PATH + 20], beside[CHECK_PATH + 20];
    snprintf(path, sizeof path, "%s/x.%s", folder, endings[i]);
    cytoc_job job = job_of(&h);
    job.model_path = DIGITS;
    job.output_path = path;
    CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_OK);
    cytoc_result_free(&r);
    bytes found = file_bytes(path);
    CHECK(found.size > 100);
    free(found.data);
    snprintf(beside, sizeof beside, "%s/x.h", folder);
    remove(path);
    remove(beside);
  }
  CHECK_INT_EQ(entries_of(folder), 0);
}

static void report(void) {
  static const char *const list[] = {"--explain", "--stats", "-v"};
  heard h = {0};
  cytoc_result r;
  cytoc_job job = job_of(&h);
  job.model_path = DIGITS;
  job.options = list;
  job.option_count = 3;
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_OK);
  CHECK_STR_HAS(r.report, "peak memory");
  CHECK_STR_HAS(r.report, "passes took");
  CHECK(strstr(r.report, "peak memory") < strstr(r.report, "passes took"));
  cytoc_result_free(&r);
}

/* ---- external data ---- */

static void compile_external(cytoc_job *job, bytes model, cytoc_result *out) {
  job->model = model.data;
  job->model_size = model.size;
  cytoc_compile(job, out);
}

static void external_data(void) {
  const char *folder = own_tmpdir();
  bytes model = product_bytes((product){.external = true, .columns_declared = JOBS_ROWS});
  bytes whole = product_bytes((product){.columns_declared = JOBS_ROWS});
  heard h = {0};
  cytoc_result inside, asked, read;
  cytoc_job job = job_of(&h);
  compile_external(&job, whole, &inside);
  CHECK_INT_EQ(inside.status, CYTOC_OK);
  job.external = give_weights;
  compile_external(&job, model, &asked);
  CHECK_INT_EQ(asked.status, CYTOC_OK);
  CHECK_INT_EQ(h.external_calls, 1);
  CHECK_INT_EQ(h.wrong_thread, 0);
  char path[CHECK_PATH + 20];
  snprintf(path, sizeof path, "%s/w.bin", folder);
  FILE *f = fopen(path, "wb");
  fwrite("0123456789abcdef", 1, 16, f);
  fwrite(jobs_weights, 1, sizeof jobs_weights, f);
  fclose(f);
  job.external = NULL;
  job.model_dir = folder;
  compile_external(&job, model, &read);
  CHECK_INT_EQ(read.status, CYTOC_OK);
  remove(path);
  bytes expected = {(uint8_t *)inside.library, inside.library_size};
  CHECK(same_bytes(expected, asked.library, asked.library_size));
  CHECK(same_bytes(expected, read.library, read.library_size));
  cytoc_result_free(&inside);
  cytoc_result_free(&asked);
  cytoc_result_free(&read);
  free(model.data);
  free(whole.data);
}

static void external_data_refused(void) {
  bytes model = product_bytes((product){.external = true, .columns_declared = JOBS_ROWS});
  bytes larger = product_bytes((product){.external = true, .columns_declared = JOBS_ROWS + 1});
  static const struct {
    bool asks, larger;
    int code;
    uint64_t missing;
    const char *text;
  } rows[] = {{false, false, 0, 0, "the model comes from memory and so has no folder"},
              {true, false, 5, 0, "error 5 of the callback"},
              {true, true, 0, 0, "error 99 of the callback"},
              {true, false, 0, 4, "expected 48 bytes from 16 on, found 44"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    heard h = {.external_code = rows[i].code, .external_short = rows[i].missing};
    cytoc_result r;
    cytoc_job job = job_of(&h);
    job.external = rows[i].asks ? give_weights : NULL;
    compile_external(&job, rows[i].larger ? larger : model, &r);
    CHECK_INT_EQ(r.status, CYTOC_INVALID_MODEL);
    CHECK_STR_HAS(r.message, rows[i].text);
    CHECK_STR_EQ(h.last.item, "initializer 'w'");
    cytoc_result_free(&r);
  }
  free(model.data);
  free(larger.data);
}

/* ---- what is wrong ---- */

static void bad_options(void) {
  static const struct {
    const char *option, *value, *text;
  } rows[] = {{"--no-such", NULL, "unknown option '--no-such'"},
              {"-O7", NULL, "'-O'"},
              {"--dim=x", NULL, "'--dim'"},
              {"--target", "z80", "unknown target 'z80'"},
              {"--target", NULL, "'--target'"},
              {"--int8=static", NULL, "--calibrate"},
              {"--fp16", "--bf16", "exclude each other"},
              {"--weights=int5", NULL, "expects int8 or int4"},
              {"--disable=no-such-pass", NULL, "no-such-pass"},
              {"--help", NULL, "command line"},
              {"--version", NULL, "command line"},
              {"--passes=help", NULL, "command line"},
              {"--batch=list", NULL, "command line"},
              {"-o", "x.so", "fields of the job"},
              {"model.onnx", NULL, "fields of the job"},
              {"quantize", NULL, ""},
              {"--emit=ll", NULL, "needs output_path"},
              {"--stop-after=fold", NULL, "--emit=graph"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const char *const list[] = {rows[i].option, rows[i].value};
    heard h = {0};
    cytoc_result r;
    cytoc_job job = job_of(&h);
    job.model_path = DIGITS;
    job.options = list;
    job.option_count = rows[i].value ? 2 : 1;
    CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_INVALID_OPTION);
    CHECK_INT_EQ(r.status, CYTOC_INVALID_OPTION);
    CHECK_INT_EQ(h.errors, 1);
    CHECK_STR_HAS(r.message, rows[i].text);
    CHECK_STR_EQ(r.message, h.last.line);
    CHECK(!r.library && !r.header);
    cytoc_result_free(&r);
  }
}

static void bad_jobs(void) {
  heard h = {0};
  cytoc_result r;
  cytoc_job good = job_of(&h), job = good;
  CHECK_INT_EQ(cytoc_compile(NULL, &r), CYTOC_INVALID_OPTION);
  cytoc_result_free(&r);
  CHECK_INT_EQ(cytoc_compile(&good, NULL), CYTOC_INVALID_OPTION);
  job.struct_size = 0;
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_INVALID_OPTION);
  cytoc_result_free(&r);
  CHECK_INT_EQ(cytoc_compile(&good, &r), CYTOC_INVALID_OPTION);
  CHECK_STR_HAS(r.message, "the job has no model");
  cytoc_result_free(&r);
  job = good;
  job.model = "";
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_INVALID_OPTION);
  CHECK_STR_HAS(r.message, "0 bytes");
  cytoc_result_free(&r);
  job = good;
  job.model_path = DIGITS;
  job.option_count = 1;
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_INVALID_OPTION);
  cytoc_result_free(&r);
  job.option_count = 0;
  job.output_path = "/no/such/folder/x.so";
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_IO_FAILURE);
  CHECK_STR_HAS(r.message, "/no/such/folder/x.so");
  cytoc_result_free(&r);
  job.output_path = "x.unknown";
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_INVALID_OPTION);
  cytoc_result_free(&r);
  cytoc_result_free(NULL);
}

/* A job of an older interface, which ends before the callbacks. */
static void short_job(void) {
  heard h = {0};
  cytoc_result r;
  cytoc_job job = job_of(&h);
  job.struct_size = offsetof(cytoc_job, ctx);
  job.model_path = DIGITS;
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_OK);
  CHECK_INT_EQ(h.n_progress, 0);
  cytoc_result_free(&r);
}

static void bad_models(void) {
  bytes good = file_bytes(DIGITS);
  static const char *const texts[] = {"cannot open", "not a valid ONNX model", "not a valid ONNX model"};
  for (int i = 0; i < 3; i++) {
    heard h = {0};
    cytoc_result r;
    cytoc_job job = job_of(&h);
    job.model_path = i ? "folder/cut.onnx" : "/no/such/model.onnx";
    job.model = !i ? NULL : i == 1 ? good.data : (const void *)"this is no model";
    job.model_size = !i ? 0 : i == 1 ? good.size / 2 : 16;
    CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_INVALID_MODEL);
    CHECK_STR_HAS(r.message, texts[i]);
    CHECK_STR_EQ(h.last.file, job.model_path);
    CHECK_INT_EQ(h.last.node_index, -1);
    cytoc_result_free(&r);
  }
  free(good.data);
}

static void diagnostic_fields(void) {
  bytes model = product_bytes((product){.columns_declared = JOBS_ROWS - 1});
  heard h = {0};
  cytoc_result r;
  cytoc_job job = job_of(&h);
  job.model = model.data;
  job.model_size = model.size;
  job.model_path = "some.onnx";
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_INVALID_MODEL);
  CHECK_INT_EQ(h.errors, 1);
  CHECK_INT_EQ(h.last.struct_size, sizeof h.last);
  CHECK_INT_EQ(h.last.severity, CYTOC_ERROR);
  CHECK_STR_EQ(h.last.file, "some.onnx");
  CHECK_STR_EQ(h.last.graph, "main");
  CHECK_STR_EQ(h.last.node, "product");
  CHECK_STR_EQ(h.last.op, "MatMul");
  CHECK_INT_EQ(h.last.node_index, 0);
  CHECK(*h.last.text && !strstr(h.last.text, "product"));
  CHECK_STR_HAS(h.last.line, "some.onnx: error: graph 'main': node 'product' (#0, MatMul): ");
  CHECK_STR_HAS(h.last.line, h.last.text);
  CHECK_STR_EQ(r.message, h.last.line);
  cytoc_result_free(&r);
  free(model.data);
}

static void warnings(void) {
  static const char *const list[] = {"--weights=int8"};
  bytes model = product_bytes((product){.columns_declared = JOBS_ROWS});
  heard h = {0};
  cytoc_result r;
  cytoc_job job = job_of(&h);
  job.model = model.data;
  job.model_size = model.size;
  job.options = list;
  job.option_count = 1;
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_OK);
  CHECK(h.warnings > 0 && !h.errors);
  CHECK_STR_HAS(h.last.line, ": warning: ");
  CHECK_STR_EQ(r.message, "");
  cytoc_result_free(&r);
  free(model.data);
}

/* ---- progress ---- */

static int place_of_stage(const char *stage) {
  static const char *const stages[] = {"import", "passes", "kernels", "link"};
  for (int i = 0; i < 4; i++)
    if (!strcmp(stage, stages[i]))
      return i;
  return -1;
}

static void progress(void) {
  heard h = {0};
  cytoc_result r;
  cytoc_job job = job_of(&h);
  job.model_path = DIGITS;
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_OK);
  cytoc_result_free(&r);
  int seen = 0, kernels_done = 0;
  for (int i = 0; i < h.n_progress; i++) {
    int place = place_of_stage(h.progress[i].stage);
    CHECK_REQUIRE(place >= 0);
    seen |= 1 << place;
    CHECK(h.progress[i].done >= 0 && h.progress[i].done <= h.progress[i].total);
    kernels_done += place == 2 && h.progress[i].total > 0 && h.progress[i].done == h.progress[i].total;
    if (!i)
      continue;
    int before = place_of_stage(h.progress[i - 1].stage);
    CHECK(before <= place);
    CHECK(before < place ||
          (h.progress[i].done >= h.progress[i - 1].done && h.progress[i].total >= h.progress[i - 1].total));
  }
  CHECK_INT_EQ(seen, 1 | 2 | 4 | 8);
  CHECK(kernels_done > 0);
  CHECK_INT_EQ(h.wrong_thread, 0);
}

/* Kernels are counted one by one, though a process compiles several: in order, and not by as many as a process has. */
static void progress_by_kernel(void) {
  heard h = {0};
  cytoc_result r;
  cytoc_job job = job_of(&h);
  const char *words[] = {"-j1"};
  job.options = words;
  job.option_count = 1;
  job.model_path = "examples/decode/decode.onnx";
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_OK);
  cytoc_result_free(&r);
  int64_t steps = 0, total = 0, before = 0;
  for (int i = 0; i < h.n_progress; i++) {
    if (place_of_stage(h.progress[i].stage) != 2)
      continue;
    steps += h.progress[i].done > before;
    before = h.progress[i].done;
    total = h.progress[i].total;
  }
  CHECK(before == total && 3 * steps >= total); /* it is looked at a hundred times a second */
}

static void cancelled(void) {
  const char *folder = own_tmpdir();
  static const char *const stages[] = {"import", "passes", "kernels", "link"};
  for (int i = 0; i < 8; i++) {
    heard h = {.cancel_at = stages[i / 2]};
    cytoc_result r;
    char path[CHECK_PATH + 20];
    snprintf(path, sizeof path, "%s/x.so", folder);
    cytoc_job job = job_of(&h);
    job.model_path = DIGITS;
    job.output_path = i % 2 ? path : NULL;
    int files = open_files();
    CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_CANCELLED);
    CHECK_STR_HAS(r.message, "cancelled");
    CHECK_STR_EQ(h.progress[h.n_progress - 1].stage, stages[i / 2]); /* it is not asked again */
    CHECK(!r.library);
    cytoc_result_free(&r);
    CHECK_INT_EQ(entries_of(folder), 0);
    CHECK_INT_EQ(open_files(), files);
    CHECK(!has_children());
  }
}

/* ---- the rest ---- */

static void about(void) {
  CHECK_STR_EQ(cytoc_version(), CYTO_VERSION);
  CHECK_STR_HAS(cytoc_build_id(), CYTO_VERSION);
  CHECK_STR_HAS(cytoc_build_id(), "llvm ");
  CHECK(*cytoc_native_target());
  CHECK_STR_EQ(cytoc_status_name(CYTOC_NO_LINKER), "no linker");
  CHECK_STR_EQ(cytoc_status_name(99), "unknown status");
  char option[100];
  snprintf(option, sizeof option, "--target=%s", cytoc_native_target());
  const char *const list[] = {option};
  heard h = {0};
  cytoc_result r;
  cytoc_job job = job_of(&h);
  job.model_path = DIGITS;
  job.options = list;
  job.option_count = 1;
  CHECK_INT_EQ(cytoc_compile(&job, &r), CYTOC_OK);
  cytoc_result_free(&r);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"as_command_line", as_command_line},
                                     {"as_command_line_options", as_command_line_options},
                                     {"run_from_memory", run_from_memory},
                                     {"other_kinds", other_kinds},
                                     {"report", report},
                                     {"external_data", external_data},
                                     {"external_data_refused", external_data_refused},
                                     {"bad_options", bad_options},
                                     {"bad_jobs", bad_jobs},
                                     {"short_job", short_job},
                                     {"bad_models", bad_models},
                                     {"diagnostic_fields", diagnostic_fields},
                                     {"warnings", warnings},
                                     {"progress", progress},
                                     {"progress_by_kernel", progress_by_kernel},
                                     {"cancelled", cancelled},
                                     {"about", about}};
  const char *slash = strrchr(argv[0], '/');
  snprintf(cytoc, sizeof cytoc, "%.*s../../cytoc", (int)(slash ? slash + 1 - argv[0] : 0), argv[0]);
  const char *folder = own_tmpdir();
  int failed = check_main(argc, argv, tests, CHECK_COUNT(tests));
  return rmdir(folder) || failed;
}
