/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - a program that opens two models without cyto.h, as plug-ins do, and runs them in two threads at once.
 *
 *   pool A.dll B.dll     DLLs that export a_run and b_run: one input, one output of ELEMENTS floats
 *
 * Out: exit code 1 and a line on stderr when results differ between rounds or models, or when each model has started
 *      threads of its own: all of a process share one pool.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#include <tlhelp32.h>

enum { ELEMENTS = 256 * 256, ROUNDS = 100 };

typedef int (*run_function)(void **cache, const float *const *inputs, float *const *outputs, void *error);

static const char *const symbols[2] = {"a_run", "b_run"};
static run_function functions[2];
static float x[ELEMENTS], y[2][ELEMENTS], first[2][ELEMENTS];

static int fail(const char *what) {
  fprintf(stderr, "pool: %s\n", what);
  exit(1);
}

static DWORD WINAPI work(void *data) {
  int k = *(int *)data;
  void *cache = NULL;
  const float *inputs[1] = {x};
  float *outputs[1] = {y[k]};
  for (int i = 0; i < ROUNDS; i++) {
    if (functions[k](&cache, inputs, outputs, NULL))
      fail("a run failed");
    if (!i)
      memcpy(first[k], y[k], sizeof first[k]);
    if (memcmp(first[k], y[k], sizeof first[k]))
      fail("a round has other results");
    if (i % 25 == 24)
      Sleep(2); /* helpers go to sleep meanwhile */
  }
  return 0;
}

static int threads_of_this_process(void) {
  HANDLE all = CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0);
  THREADENTRY32 entry = {.dwSize = sizeof entry};
  int n = 0;
  for (BOOL more = Thread32First(all, &entry); more; more = Thread32Next(all, &entry))
    n += entry.th32OwnerProcessID == GetCurrentProcessId();
  CloseHandle(all);
  return n;
}

int main(int argc, char **argv) {
  int number[2] = {0, 1};
  HANDLE threads[2];
  SYSTEM_INFO info;
  if (argc != 3)
    fail("two models are needed");
  int before = threads_of_this_process();
  for (int i = 0; i < ELEMENTS; i++)
    x[i] = (float)(i * 7 % 31) / 8 - 1;
  for (int k = 0; k < 2; k++) {
    HMODULE library = LoadLibraryA(argv[1 + k]);
    FARPROC found = library ? GetProcAddress(library, symbols[k]) : NULL;
    if (!found)
      fail(argv[1 + k]);
    memcpy(&functions[k], &found, sizeof found);
  }
  for (int k = 0; k < 2; k++)
    threads[k] = CreateThread(NULL, 0, work, &number[k], 0, NULL);
  WaitForMultipleObjects(2, threads, TRUE, INFINITE);
  if (memcmp(y[0], y[1], sizeof y[0]))
    fail("the models differ");
  GetSystemInfo(&info);
  int more = threads_of_this_process() - before, max = (int)info.dwNumberOfProcessors - 1;
  if (more != max)
    fprintf(stderr, "pool: %d threads were started, not %d\n", more, max);
  return more != max;
}
