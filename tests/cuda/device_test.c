/* SPDX-License-Identifier: Apache-2.0 */
/* device_test.c - every kernel of kernel_cases.h on a real device against the interpreter: each instruction that the
 * shim emulates is compared with the device's.
 *
 *   device_test              compiles by NVRTC for the device that is there; skips where there is no driver or device
 *   device_test --save DIR   compiles for the usual architectures into DIR, on a machine without a GPU; --arch 90: for
 *                            one of them. Images of some kernels each, by a process each, as many at once as there are
 *                            processors; what is there of the same text by the same NVRTC stays
 *   device_test --load DIR   runs what was saved: the machine with the GPU needs no NVRTC
 *   --only TEXT              kernels whose names begin so
 *   --shard K/N              each N'th kernel from the K'th on: NVRTC takes minutes for all of them on one core
 *   --trace FROM             says which kernel is about to run and how it ended, begins with the FROM'th, and ends at
 *                            once where the driver reports an error. A kernel that breaks the context or never ends
 *                            costs its own result only when the caller goes on behind it (carried.py)
 *
 * The runtime's own table of driver functions is used, so a wrong symbol or signature shows here, too.
 */
#define _GNU_SOURCE
#include "runtime/cuda/cyrt_cuda.h"
#include "tests/cuda/cases/case_run.h"

#include <sys/wait.h>
#include <unistd.h>

enum { PARTS = 16 }; /* images: kernel i is in the one at i % PARTS */
static const cy_cuda_arch archs[] = {{75, 0}, {80, 0}, {86, 0}, {89, 0}, {90, 'a'}, {100, 0}, {120, 0}};

static cuda_driver driver;
static void *context, *modules[PARTS];
static int capability;
static const char *folder;
static const char *only = ""; /* --only */
static int shard, shards = 1; /* --shard */
static bool trace;            /* --trace, */
static int first;             /* .. from this kernel on */
static int number;            /* of the next one */
static bool broken;           /* the driver reported an error: those that follow would fail by it, too */

/* ---- kernels as device code ---- */

static bool stack_allowed(void *ctx, const char *function) {
  (void)ctx;
  (void)function;
  return true;
}

/* Kernels that the architecture can have, and whose inputs may be any: search_test.c runs those that sort and search. */
static bool fits(const kernel_case *c, int arch) {
  return c->schedule->min_arch <= arch && strncmp(c->what, "search ", 7) && !strncmp(c->what, only, strlen(only)) &&
         (c - cases) % shards == shard;
}

/* NULL: no kernel of this part is wanted. */
static char *source_for(int arch, int part) {
  char *text = NULL;
  size_t size = 0;
  int n = 0;
  FILE *f = open_memstream(&text, &size);
  fprintf(f, "%s%s", cy_cuda_prelude, cy_cuda_prelude_matrix);
  for (int i = part; i < ncases; i += PARTS)
    if (fits(&cases[i], arch)) {
      print_case(f, i);
      n++;
    }
  fclose(f);
  if (n)
    return text;
  free(text);
  return NULL;
}

static bool compile_image(cy_nvrtc *nvrtc, cy_cuda_arch arch, const char *text, cy_cuda_image *out) {
  char *error = NULL;
  cy_nvrtc_check check = {stack_allowed, NULL, NULL, NULL};
  if (cy_nvrtc_compile(nvrtc, text, arch, false, &check, out, &error))
    fprintf(stderr, "sm_%d: %s\n", arch.number, error);
  free(error);
  return out->bytes != NULL;
}

static const char *image_path(cy_cuda_arch arch, int part, const char *end) {
  static char path[400];
  snprintf(path, sizeof path, "%s/cases_%d%.*s_%d.%s", folder, arch.number, arch.suffix ? 1 : 0, &arch.suffix, part,
           end);
  return path;
}

static bool write_file(const char *path, const char *bytes, size_t size) {
  FILE *f = fopen(path, "wb");
  bool ok = f && fwrite(bytes, 1, size, f) == size;
  if (f)
    ok &= !fclose(f);
  return ok;
}

/* What an image is made of and by, as a number. */
static uint64_t key_of(const cy_nvrtc *nvrtc, const char *text) {
  uint64_t hash = 14695981039346656037u ^ (uint64_t)cy_nvrtc_version(nvrtc);
  for (; *text; text++)
    hash = (hash ^ (unsigned char)*text) * 1099511628211u;
  return hash;
}

static bool is_saved(cy_cuda_arch arch, int part, uint64_t key) {
  FILE *f = fopen(image_path(arch, part, "key"), "r");
  unsigned long long there = 0;
  bool same = f && fscanf(f, "%llx", &there) == 1 && there == key;
  if (f)
    fclose(f);
  return same && !access(image_path(arch, part, "cubin"), R_OK);
}

/* The key is written last: what was interrupted is made again. */
static bool save_image(cy_nvrtc *nvrtc, cy_cuda_arch arch, int part) {
  char *text = source_for(arch.number, part), key[20];
  cy_cuda_image image = {.bytes = NULL};
  uint64_t own = text ? key_of(nvrtc, text) : 0;
  bool ok = !text || is_saved(arch, part, own);
  if (!ok) {
    snprintf(key, sizeof key, "%016llx", (unsigned long long)own);
    unlink(image_path(arch, part, "key"));
    ok = compile_image(nvrtc, arch, text, &image) &&
         write_file(image_path(arch, part, "cubin"), image.bytes, image.size) &&
         write_file(image_path(arch, part, "key"), key, strlen(key));
  }
  free(image.bytes);
  free(text);
  return ok;
}

static bool child_failed(void) {
  int status = -1;
  return wait(&status) < 0 || status != 0;
}

static int save_images(int arch) {
  char *missing = NULL;
  cy_nvrtc *nvrtc = cy_nvrtc_open(&missing);
  int running = 0, max = (int)sysconf(_SC_NPROCESSORS_ONLN);
  bool failed = !nvrtc;
  if (failed)
    fprintf(stderr, "%s\n", missing);
  for (int job = 0; nvrtc && job < CHECK_COUNT(archs) * PARTS; job++) {
    const cy_cuda_arch own = archs[job / PARTS];
    if (arch && own.number != arch)
      continue;
    for (; running && running >= max; running--)
      failed |= child_failed();
    pid_t child = fork();
    if (child == 0)
      _exit(!save_image(nvrtc, own, job % PARTS));
    failed |= child < 0;
    running += child > 0;
  }
  for (; running; running--)
    failed |= child_failed();
  cy_nvrtc_close(nvrtc);
  free(missing);
  return failed;
}

/* The architecture of `archs` that runs on the device, the newest; its own special one first. */
static const cy_cuda_arch *arch_of_device(void) {
  const cy_cuda_arch *best = NULL;
  for (int a = 0; a < CHECK_COUNT(archs); a++)
    if (archs[a].number == capability ||
        (!archs[a].suffix && archs[a].number / 10 == capability / 10 && archs[a].number <= capability))
      best = &archs[a];
  return best;
}

static char *load_image(const cy_cuda_arch *arch, int part) {
  FILE *f = fopen(image_path(*arch, part, "cubin"), "rb");
  char *bytes = NULL;
  long size;
  if (f && !fseek(f, 0, SEEK_END) && (size = ftell(f)) > 0 && !fseek(f, 0, SEEK_SET)) {
    bytes = calloc((size_t)size + 1, 1);
    if (fread(bytes, 1, (size_t)size, f) != (size_t)size)
      bytes[0] = 0;
  }
  if (f)
    fclose(f);
  return bytes;
}

/* ---- the device ---- */

static bool said(cuda_code code, const char *call) {
  cyto_error error = {0};
  if (!cyrt_cuda_check(&driver, code, call, &error))
    return true;
  fprintf(stderr, "%s\n", error.message);
  broken = true;
  return false;
}

/* NULL, or why nothing can be run here. */
static const char *open_device(void) {
  static cyto_error error;
  static const cyrt_model none = {.target = "test"};
  int32_t count = 0, device = 0, major = 0, minor = 0;
  char name[100] = "?";
  if (cyrt_cuda_driver_open(&driver, &none, &error))
    return error.message;
  if (driver.device_count(&count) || count < 1 || driver.device_get(&device, 0))
    return "no CUDA device is visible";
  driver.device_attribute(&major, 75, device);
  driver.device_attribute(&minor, 76, device);
  driver.device_name(name, sizeof name, device);
  capability = major * 10 + minor;
  if (!said(driver.context_retain(&context, device), "cuDevicePrimaryCtxRetain") ||
      !said(driver.context_push(context), "cuCtxPushCurrent"))
    return "the device's context cannot be made";
  printf("  device: %s, sm_%d\n", name, capability);
  return NULL;
}

/* A part that no kernel is wanted of needs none. */
static bool open_part(cy_nvrtc *nvrtc, const cy_cuda_arch *arch, int part) {
  cy_cuda_image image = {.bytes = NULL};
  char *text = source_for(arch->number, part);
  bool ok = !text;
  if (text && nvrtc)
    compile_image(nvrtc, *arch, text, &image);
  else if (text)
    image.bytes = load_image(arch, part);
  if (image.bytes)
    ok = said(driver.module_load(&modules[part], image.bytes, 0, NULL, NULL), "cuModuleLoadDataEx");
  free(image.bytes);
  free(text);
  return ok;
}

static const char *open_kernels(void) {
  const cy_cuda_arch *arch = arch_of_device();
  static char *missing;
  cy_nvrtc *nvrtc = NULL;
  bool ok = true;
  if (!arch)
    return "the device is of an architecture that this test does not compile for";
  if (!folder && !(nvrtc = cy_nvrtc_open(&missing)))
    return missing;
  for (int part = 0; part < PARTS && ok; part++)
    ok = open_part(nvrtc, arch, part);
  cy_nvrtc_close(nvrtc);
  return ok ? NULL : "the kernels could not be loaded";
}

/* ---- running ---- */

static bool tensors; /* the kernels with tensor maps run in place of those beside them */

static bool launch_kernel(const char *symbol, const char *suffix, int threads, int64_t blocks, int shared,
                          void **params) {
  char name[64];
  void *function;
  snprintf(name, sizeof name, "%s%s", symbol, suffix);
  return said(driver.module_function(&function, modules[atoi(symbol + strlen("case")) % PARTS], name), name) &&
         (shared < 48 << 10 || said(driver.function_attribute(function, 8, shared), "cuFuncSetAttribute")) &&
         said(driver.launch(function, (uint32_t)blocks, 1, 1, (uint32_t)threads, 1, 1, (uint32_t)shared, NULL, params,
                            NULL),
              name);
}

static bool launch_tensors(const kernel_case *c, const char *symbol, int turn, const uint64_t *slots, int n,
                           void **params) {
  static uint64_t maps[2][16] __attribute__((aligned(64)));
  bool ok = true;
  for (int b = 0; b < 2 && ok; b++) {
    cy_cuda_tensor t;
    uint64_t extent[CY_CUDA_TMA_RANK], stride[CY_CUDA_TMA_RANK];
    uint32_t box[CY_CUDA_TMA_RANK], steps[CY_CUDA_TMA_RANK];
    case_tensor(c, b, &t, extent, stride);
    for (int i = 0; i < CY_CUDA_TMA_RANK; i++) {
      steps[i] = (uint32_t)t.step[i];
      box[i] = (uint32_t)(t.box[i] * t.step[i]);
    }
    ok = said(driver.tensor_map(maps[b],
                                t.type == CY_BF16  ? 9
                                : t.type == CY_F16 ? 6
                                                   : 0,
                                (uint32_t)t.rank, (void *)(uintptr_t)slots[t.arg], extent, stride, box, steps, 0, 3, 2,
                                0),
              "cuTensorMapEncodeTiled");
    params[n + b] = maps[b];
  }
  return ok &&
         launch_kernel(symbol, "_tma", CY_CUDA_TMA_THREADS, case_tensor_blocks(c, turn), CY_CUDA_TMA_SHARED, params);
}

/* A case_launch: arguments go to the device and back. */
static bool launch_on_device(const kernel_case *c, const char *symbol, int turn, case_memory *memory, int64_t blocks,
                             const uint64_t *sizes, int nsizes) {
  void *params[50];
  uint64_t slots[48];
  int n = 0;
  bool ok = true;
  for (; n < memory->n; n++) {
    slots[n] = 0;
    ok = ok && said(driver.mem_alloc(&slots[n], memory->bytes[n] + 1), "cuMemAlloc") &&
         said(driver.copy_in_async(slots[n], memory->got[n], memory->bytes[n], NULL), "cuMemcpyHtoDAsync");
  }
  for (int i = 0; i < nsizes; i++)
    slots[n + i] = sizes[i];
  for (int i = 0; i < n + nsizes; i++)
    params[i] = &slots[i];
  if (tensors && case_by_tensors(c))
    ok = ok && launch_tensors(c, symbol, turn, slots, n + nsizes, params);
  else
    ok = ok &&
         launch_kernel(symbol, "", c->schedule->threads, blocks, cy_cuda_shared_bytes(c->schedule, *arch_of_device()), params);
  if (ok && case_combine_blocks(c))
    ok = launch_kernel(symbol, "_combine", CY_CUDA_COMBINE_THREADS, case_combine_blocks(c), 0, params);
  ok = ok && said(driver.stream_wait(NULL), c->what); /* what is copied in lies where results go */
  for (int i = 0; i < n; i++) {
    ok = ok && said(driver.copy_out_async(memory->got[i], slots[i], memory->bytes[i], NULL), "cuMemcpyDtoHAsync");
    ok = ok && said(driver.stream_wait(NULL), c->what);
    driver.mem_free(slots[i]);
  }
  return ok;
}

static void run_one(const kernel_case *c, int i) {
  char symbol[32];
  snprintf(symbol, sizeof symbol, "case%d", i);
  if (trace)
    printf("case %d %s%s\n", number, c->what, tensors ? ", by tensor maps" : "");
  fflush(NULL);
  int bad = case_run(c, symbol, 1, launch_on_device);
  if (bad)
    CHECK_FAIL("%s (kernel %s%s): %d wrong", c->what, symbol, tensors ? "_tma" : "", bad);
  if (trace)
    printf("%s %d\n", bad ? "wrong" : "right", number);
  fflush(NULL);
  if (trace && broken)
    _exit(3);
}

static void run_cases(bool matrix) {
  for (int i = 0; i < ncases && !broken; i++) {
    if (!fits(&cases[i], capability) || (cases[i].schedule->stages > 0) != matrix ||
        (tensors && !cases[i].schedule->tma_blocks))
      continue;
    if (number >= first)
      run_one(&cases[i], i);
    number++;
  }
}

static const char *skipped;
static void test_loops(void) {
  if (skipped)
    CHECK_SKIP(skipped);
  run_cases(false);
}
static void test_matrix(void) {
  if (skipped)
    CHECK_SKIP(skipped);
  run_cases(true);
}

static void test_tensors(void) {
  if (skipped || capability != 90)
    CHECK_SKIP(skipped ? skipped : "the device has no tensor maps: only sm_90a's kernels use them");
  tensors = true;
  run_cases(true);
  tensors = false;
}

/* What is known from documents alone comes first: a run that is cut short has told most (docs/cuda.md). */
static const check_test tests[] = {{"tensors", test_tensors}, {"matrix", test_matrix}, {"kernels", test_loops}};

typedef struct arguments {
  bool save;
  int arch; /* 0: all */
  int rest; /* the first word that is no option */
} arguments;

static arguments read_arguments(int argc, char **argv) {
  arguments a = {.rest = 1};
  for (; a.rest + 1 < argc && !strncmp(argv[a.rest], "--", 2); a.rest += 2) {
    const char *name = argv[a.rest], *value = argv[a.rest + 1];
    a.save |= !strcmp(name, "--save");
    if (!strcmp(name, "--save") || !strcmp(name, "--load"))
      folder = value;
    else if (!strcmp(name, "--arch"))
      a.arch = atoi(value);
    else if (!strcmp(name, "--only"))
      only = value;
    else if (!strcmp(name, "--shard") && sscanf(value, "%d/%d", &shard, &shards) == 2)
      shards = shards < 1 ? 1 : shards;
    else if ((trace = !strcmp(name, "--trace")))
      first = atoi(value);
  }
  return a;
}

int main(int argc, char **argv) {
  cy_diag_sink *diag = cy_diag_create();
  arguments a = read_arguments(argc, argv);
  g = cy_graph_create(diag, "test");
  add_all_cases();
  schedule_cases();
  int rc;
  if (a.save) {
    rc = save_images(a.arch);
  } else {
    skipped = open_device();
    if (!skipped)
      skipped = open_kernels();
    rc = check_main(argc - a.rest + 1, argv + a.rest - 1, tests, CHECK_COUNT(tests));
  }
  for (int part = 0; part < PARTS; part++)
    if (modules[part])
      driver.module_unload(modules[part]);
  cyrt_cuda_driver_close(&driver);
  free_cases();
  cy_graph_destroy(g);
  cy_diag_destroy(diag);
  return rc;
}
