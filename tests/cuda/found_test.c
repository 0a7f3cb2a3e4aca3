/* SPDX-License-Identifier: Apache-2.0 */
/* found_test.c - where cytoc finds NVRTC: trees of links to the mock, laid out like toolkits and Python's wheels.
 *
 * The mock says that it is of a version that does not exist: that cytoc refuses this version shows that it opened the
 * mock, and not what the machine may have elsewhere.
 */
#include "tests/check.h"

#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

#define MOCK_SAYS "libnvrtc is version 3.0: install version 12 or 13"

static char build[PATH_MAX], dir[CHECK_PATH];

/* What the command prints; it must succeed or not. */
static const char *output_of(const char *command, bool succeeds) {
  static char said[8000];
  FILE *f = popen(command, "r");
  said[0] = 0;
  if (f)
    said[fread(said, 1, sizeof said - 1, f)] = 0;
  if (!f || (pclose(f) == 0) != succeeds)
    CHECK_FAIL("%s: %s", command, said);
  return said;
}

/* cytoc's words for a model for CUDA, with these settings of the environment. */
static const char *compile(const char *environment) {
  char command[6 * PATH_MAX];
  snprintf(command, sizeof command,
           "env -u CUDA_HOME -u CUDA_PATH -u VIRTUAL_ENV -u CYTO_NVRTC CY_MOCK_NVRTC_MAJOR=3 %s %s/cytoc "
           "examples/digits/digits.onnx -o %s/none.so --target=sm_80 2>&1",
           environment, build, dir);
  return output_of(command, false);
}

/* A link to the mock under the name `library` in the folder `at` of the test's. */
static void lay_out(const char *at, const char *library) {
  char command[4 * PATH_MAX];
  snprintf(command, sizeof command, "mkdir -p '%s/%s' && ln -sf %s/tests/cuda/mock/lib64/libnvrtc.so.13 '%s/%s/%s'",
           dir, at, build, dir, at, library);
  CHECK_INT_EQ(system(command), 0);
}

static void test_layouts(void) {
  static const struct {
    const char *folder, *library, *variable, *root;
  } rows[] = {
      {"a/lib64", "libnvrtc.so.13", "CUDA_HOME", "a"},
      {"b/lib", "libnvrtc.so.13", "CUDA_HOME", "b"},
      {"usr/local/cuda-13.0/targets/x86_64-linux/lib", "libnvrtc.so.13", "CUDA_HOME", "usr/local/cuda-13.0"},
      {"usr/local/cuda-12.8/lib64", "libnvrtc.so.12", "CUDA_HOME", "usr/local/cuda-12.8"},
      {"c/lib64", "libnvrtc.so.12", "CUDA_PATH", "c"},
      {"d/lib/python3.12/site-packages/nvidia/cu13/lib", "libnvrtc.so.13", "VIRTUAL_ENV", "d"},
      {"e/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib", "libnvrtc.so.12", "VIRTUAL_ENV", "e"},
      {"f/lib/python3/dist-packages/nvidia/cuda_nvrtc/lib", "libnvrtc.so.12", "VIRTUAL_ENV", "f"},
      {"g", "libnvrtc.so.13", "CYTO_NVRTC", "g"},
  };
  char setting[2 * PATH_MAX];
  for (int i = 0; i < CHECK_COUNT(rows); i++) {
    lay_out(rows[i].folder, rows[i].library);
    snprintf(setting, sizeof setting, "%s=%s/%s", rows[i].variable, dir, rows[i].root);
    const char *said = compile(setting);
    if (!strstr(said, MOCK_SAYS))
      CHECK_FAIL("%s with %s: %s", setting, rows[i].folder, said);
  }
}

/* CUDA_HOME comes before the environment of Python, and CYTO_NVRTC is the only place where it is set. */
static void test_order(void) {
  char setting[4 * PATH_MAX];
  lay_out("first/lib64", "libnvrtc.so.13");
  snprintf(setting, sizeof setting, "cd '%s' && mkdir -p second/lib64 empty && touch second/lib64/libnvrtc.so.13", dir);
  CHECK_INT_EQ(system(setting), 0);
  snprintf(setting, sizeof setting, "CUDA_HOME=%s/second CUDA_PATH=%s/first", dir, dir); /* no library: it goes on */
  CHECK_STR_HAS(compile(setting), MOCK_SAYS);
  snprintf(setting, sizeof setting, "CYTO_NVRTC=%s/empty CUDA_HOME=%s/first", dir, dir);
  const char *said = compile(setting);
  CHECK_STR_HAS(said, "pip install nvidia-cuda-nvrtc");
  CHECK_STR_HAS(said, "install the package");
}

/* Which one it was is shown by -v, --stats (text and JSON) and the library; a model for a CPU, and one that is printed
 * only, have none. */
static void test_told(void) {
  char command[6 * PATH_MAX], path[2 * PATH_MAX], wanted[3 * PATH_MAX];
  lay_out("told", "libnvrtc.so.13");
  snprintf(command, sizeof command,
           "CYTO_NVRTC=%s/told %s/cytoc examples/digits/digits.onnx -o %s/told.so --target=sm_80 -v --stats 2>&1", dir,
           build, dir);
  const char *said = output_of(command, true);
  snprintf(path, sizeof path, "NVRTC 13.0, %s/told/libnvrtc.so.13\n", dir);
  snprintf(wanted, sizeof wanted, "cytoc: kernels are compiled by %s", path);
  CHECK_STR_HAS(said, wanted);
  snprintf(wanted, sizeof wanted, "\nkernels compiled by %s", path);
  CHECK_STR_HAS(said, wanted);
  snprintf(command, sizeof command, "%s/cyto-run %s/told.so --info", build, dir);
  CHECK_STR_HAS(output_of(command, true), ", NVRTC 13.0\n");
  snprintf(command, sizeof command,
           "CYTO_NVRTC=%s/told %s/cytoc examples/digits/digits.onnx -o %s/told.so --target=sm_80 --stats=%s/told.json "
           "&& cat %s/told.json",
           dir, build, dir, dir, dir);
  CHECK_STR_HAS(output_of(command, true), "\"kernels_compiled_by\": {\n    \"name\": \"NVRTC 13.0\",");
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, i ? "-o %s/none.cu --emit=cu --target=sm_80" : "-o %s/none.so", dir);
    snprintf(command, sizeof command, "%s/cytoc examples/digits/digits.onnx -v --stats %s 2>&1", build, path);
    if (strstr(output_of(command, true), "NVRTC"))
      CHECK_FAIL("%s tells of NVRTC", command);
  }
  snprintf(command, sizeof command, "%s/cyto-run %s/none.so --info", build, dir);
  CHECK(!strstr(output_of(command, true), "NVRTC"));
}

static const check_test tests[] = {{"layouts", test_layouts}, {"order", test_order}, {"told", test_told}};

int main(int argc, char **argv) {
  char self[PATH_MAX], command[PATH_MAX];
  if (!realpath(argv[0], self) || !check_folder("cyto-cuda", dir))
    return 1;
  snprintf(build, sizeof build, "%s", dirname(dirname(dirname(self))));
  int rc = check_main(argc, argv, tests, CHECK_COUNT(tests));
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  return system(command) ? 1 : rc;
}
