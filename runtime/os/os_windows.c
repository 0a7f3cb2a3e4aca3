/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* os_windows.c - what the runtime asks of Windows. See os.h.
 *
 * Functions of kernel32 and of the C library, of the latter only what both of Windows' own have under one name (ucrtbase,
 * msvcrt), so that objects can be linked by MinGW and by Microsoft's tools: printf and its kin are not among these, hence
 * cyrt_vsnprintf().
 */
#define _WIN32_WINNT 0x0602
#define WIN32_LEAN_AND_MEAN
#include "cyrt.h"
#include "numbers.h"
#include "os.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

/* ---- time, threads ---- */

int64_t cyrt_os_now_ns(void) {
  static int64_t frequency; /* the same in every thread */
  LARGE_INTEGER now, rate;
  if (!frequency && QueryPerformanceFrequency(&rate))
    frequency = rate.QuadPart;
  QueryPerformanceCounter(&now);
  return now.QuadPart / frequency * 1000000000 + now.QuadPart % frequency * 1000000000 / frequency;
}

int64_t cyrt_os_ran_ns(void) { return -1; } /* it counts by ticks of 15 ms */

uint64_t cyrt_os_thread_number(void) { return GetCurrentThreadId(); }

void cyrt_os_sleep(int64_t ns) { Sleep((DWORD)(ns / 1000000)); }

/* WaitOnAddress() would do, but is in no library that programs are linked with as a rule. Sleeping is rare. */
static SRWLOCK sleep_lock = SRWLOCK_INIT;
static CONDITION_VARIABLE sleep_over = CONDITION_VARIABLE_INIT;

static void wait_ms(atomic_uint *word, uint32_t value, DWORD ms) {
  AcquireSRWLockExclusive(&sleep_lock);
  if (atomic_load(word) == value)
    SleepConditionVariableSRW(&sleep_over, &sleep_lock, ms, 0);
  ReleaseSRWLockExclusive(&sleep_lock);
}

void cyrt_os_wait(atomic_uint *word, uint32_t value) { wait_ms(word, value, INFINITE); }

void cyrt_os_wait_for(atomic_uint *word, uint32_t value, int64_t ns) {
  int64_t ms = ns / 1000000 + (ns % 1000000 > 0);
  wait_ms(word, value, (DWORD)(ms < 60000 ? ms : 60000));
}

void cyrt_os_wake(atomic_uint *word) {
  (void)word;
  AcquireSRWLockExclusive(&sleep_lock); /* whoever has just found the old value sleeps by now */
  ReleaseSRWLockExclusive(&sleep_lock);
  WakeAllConditionVariable(&sleep_over);
}

typedef struct thread_start {
  void (*main)(void *);
  void *data;
} thread_start;

static DWORD WINAPI thread_main(void *data) {
  thread_start start = *(thread_start *)data;
  free(data);
  start.main(start.data);
  return 0;
}

int cyrt_os_thread(void (*main)(void *), void *data) {
  thread_start *start = malloc(sizeof *start);
  HANDLE thread = NULL;
  if (start) {
    *start = (thread_start){main, data};
    thread = CreateThread(NULL, 0, thread_main, start, 0, NULL);
  }
  if (!thread) {
    free(start);
    return 0;
  }
  CloseHandle(thread);
  return 1;
}

void cyrt_os_pin(void (*code)(void *)) {
  HMODULE module;
  LPCWSTR address;
  memcpy(&address, &code, sizeof address);
  GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, address, &module);
}

/* There is no fork(). */
atomic_int *cyrt_os_fork_word(void) { return malloc(sizeof(atomic_int)); }
void cyrt_os_fork_word_free(atomic_int *word) { free(word); }

/* Memory by a name that has the process's number: libraries do not see each other's data here. Never given back. */
_Atomic(struct cyrt_pool *) *cyrt_os_pool(void) {
  static _Atomic(_Atomic(struct cyrt_pool *) *) place;
  _Atomic(struct cyrt_pool *) *at = atomic_load(&place);
  if (at)
    return at;
  wchar_t name[40] = L"Local\\cyto-pool-";
  size_t n = wcslen(name);
  for (int shift = 28; shift >= 0; shift -= 4)
    name[n++] = L"0123456789abcdef"[GetCurrentProcessId() >> shift & 15];
  name[n++] = L'-';
  name[n++] = (wchar_t)(L'A' + CYTO_ABI_VERSION);
  name[n] = 0;
  HANDLE shared = CreateFileMappingW(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE, 0, sizeof *at, name);
  at = shared ? MapViewOfFile(shared, FILE_MAP_ALL_ACCESS, 0, 0, sizeof *at) : NULL;
  if (!at && shared)
    CloseHandle(shared);
  if (at)
    atomic_store(&place, at);
  return at;
}

/* ---- CPUs ---- */

/* Of the group of processors that this process is in; more than 64 are several groups. */
int32_t cyrt_os_cpus(void) {
  DWORD_PTR mask = 0, all = 0;
  int32_t n = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &mask, &all))
    for (; mask; mask &= mask - 1)
      n++;
  if (!n)
    n = (int32_t)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS); /* all are allowed, of several groups */
  return n > 0 ? n : 1;
}

/* Windows 11 and Server 2022 have the function: without it there are no tiles. */
int cyrt_os_amx_granted(void) {
  const DWORD64 tiles = (DWORD64)1 << 18;
  BOOL(WINAPI * enable)(DWORD64);
  FARPROC found = GetProcAddress(GetModuleHandleW(L"kernel32.dll"), "EnableProcessOptionalXStateFeatures");
  memcpy(&enable, &found, sizeof enable);
  return enable && enable(tiles);
}

/* ---- memory ---- */

void *cyrt_os_alloc(size_t bytes, size_t alignment) { return _aligned_malloc(bytes, alignment); }
void cyrt_os_free(void *ptr) { _aligned_free(ptr); }

/* ---- files, libraries ---- */

static void last_error(char *why) {
  DWORD error = GetLastError();
  switch (error) {
  case ERROR_FILE_NOT_FOUND:
  case ERROR_PATH_NOT_FOUND:
  case ERROR_INVALID_NAME:
    cyrt_snprintf(why, CYRT_WHY, "No such file or directory");
    break;
  case ERROR_ACCESS_DENIED:
  case ERROR_SHARING_VIOLATION:
    cyrt_snprintf(why, CYRT_WHY, "Permission denied");
    break;
  case ERROR_BAD_EXE_FORMAT:
    cyrt_snprintf(why, CYRT_WHY, "it is no library for 64-bit Windows on this kind of machine, or it is damaged");
    break;
  case ERROR_MOD_NOT_FOUND:
    cyrt_snprintf(why, CYRT_WHY, "a library that it needs was not found: ucrtbase.dll comes with Windows 10");
    break;
  default:
    cyrt_snprintf(why, CYRT_WHY, "error %u of Windows", (unsigned)error);
  }
}

const char *cyrt_os_path_base(const char *path) {
  const char *base = path;
  for (; *path; path++)
    if (*path == '/' || *path == '\\' || *path == ':')
      base = path + 1;
  return base;
}

/* The whole path: LoadLibrary() looks for a part of one in folders of its own choice. */
static int wide_path(const char *path, wchar_t wide[CYRT_PATH]) {
  wchar_t given[CYRT_PATH];
  if (!MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, given, CYRT_PATH))
    return 0;
  DWORD n = GetFullPathNameW(given, CYRT_PATH, wide, NULL);
  return n > 0 && n < CYRT_PATH;
}

static HANDLE file_open(const char *path, char *why) {
  wchar_t wide[CYRT_PATH];
  HANDLE file = INVALID_HANDLE_VALUE;
  if (wide_path(path, wide))
    file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL, OPEN_EXISTING, 0, NULL);
  if (file == INVALID_HANDLE_VALUE)
    last_error(why);
  return file;
}

int cyrt_os_readable(const char *path, char *why) {
  HANDLE file = file_open(path, why);
  if (file == INVALID_HANDLE_VALUE)
    return 0;
  CloseHandle(file);
  return 1;
}

int64_t cyrt_os_file_create(const char *path, char *why) {
  wchar_t wide[CYRT_PATH];
  HANDLE file = INVALID_HANDLE_VALUE;
  if (wide_path(path, wide))
    file = CreateFileW(wide, GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
  if (file == INVALID_HANDLE_VALUE)
    last_error(why);
  return file == INVALID_HANDLE_VALUE ? -1 : (int64_t)(intptr_t)file;
}

int cyrt_os_file_write(int64_t file, const void *bytes, size_t n, char *why) {
  const char *at = bytes;
  for (DWORD written = 0; n; at += written, n -= written)
    if (!WriteFile((HANDLE)(intptr_t)file, at, n < 1 << 30 ? (DWORD)n : 1 << 30, &written, NULL)) {
      last_error(why);
      return 0;
    }
  return 1;
}

int cyrt_os_file_close(int64_t file, char *why) {
  int closed = CloseHandle((HANDLE)(intptr_t)file);
  if (!closed)
    last_error(why);
  return closed;
}

void cyrt_os_file_remove(const char *path) {
  wchar_t wide[CYRT_PATH];
  if (wide_path(path, wide))
    DeleteFileW(wide);
}

void *cyrt_os_map(const char *path, uint64_t bytes, int last, int64_t *out_size, char *why) {
  void *mapping = NULL;
  LARGE_INTEGER size;
  HANDLE file = file_open(path, why);
  *out_size = -1;
  if (file == INVALID_HANDLE_VALUE)
    return NULL;
  *out_size = GetFileSizeEx(file, &size) ? size.QuadPart : 0;
  if ((uint64_t)*out_size >= bytes) {
    uint64_t from = last ? (uint64_t)*out_size - bytes : 0;
    HANDLE section = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
    mapping = section ? MapViewOfFile(section, FILE_MAP_READ, (DWORD)(from >> 32), (DWORD)from, bytes) : NULL;
    if (!mapping)
      last_error(why);
    if (section)
      CloseHandle(section);
  }
  CloseHandle(file);
  return mapping;
}

void cyrt_os_unmap(void *mapping, uint64_t bytes) {
  (void)bytes;
  UnmapViewOfFile(mapping);
}

void *cyrt_os_library_open(const char *path, char *why) {
  wchar_t wide[CYRT_PATH];
  HMODULE library = wide_path(path, wide) ? LoadLibraryExW(wide, NULL, LOAD_WITH_ALTERED_SEARCH_PATH) : NULL;
  if (!library)
    last_error(why);
  return library;
}

int cyrt_os_memory_file(const void *bytes, uint64_t size, char path[CYRT_PATH], char *why) {
  (void)bytes, (void)size, (void)path;
  snprintf(why, CYRT_WHY, "Windows loads libraries from files alone; write it to one");
  return -1;
}

void cyrt_os_memory_file_close(int file) { (void)file; }

void *cyrt_os_library_symbol(void *library, const char *name) {
  FARPROC found = GetProcAddress(library, name);
  void *symbol;
  memcpy(&symbol, &found, sizeof symbol);
  return symbol;
}

void cyrt_os_library_close(void *library) { FreeLibrary(library); }

int cyrt_os_library_of(const void *address, char path[CYRT_PATH]) {
  const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  wchar_t wide[CYRT_PATH];
  HMODULE module;
  if (!GetModuleHandleExW(flags, address, &module))
    return 0;
  DWORD n = GetModuleFileNameW(module, wide, CYRT_PATH);
  return n > 0 && n < CYRT_PATH && WideCharToMultiByte(CP_UTF8, 0, wide, -1, path, CYRT_PATH, NULL, NULL);
}

/* ---- texts ---- */

void *cyrt_os_letters_begin(void) { return NULL; }
void cyrt_os_letters_end(void *letters) { (void)letters; }

uint32_t cyrt_os_letter(void *letters, uint32_t ch, int to_lower) {
  wchar_t from[2] = {(wchar_t)ch}, to[2];
  int n = 1;
  (void)letters;
  if (ch >= 0x10000) {
    from[0] = (wchar_t)(0xd7c0 + (ch >> 10));
    from[n++] = (wchar_t)(0xdc00 | (ch & 0x3ff));
  }
  if (LCMapStringEx(L"", to_lower ? LCMAP_LOWERCASE : LCMAP_UPPERCASE, from, n, to, 2, NULL, NULL, 0) != n)
    return ch;
  return n == 1 ? to[0] : ((uint32_t)(to[0] - 0xd7c0) << 10) + (to[1] & 0x3ff);
}

/* Writes where there is room, counts what it would have written. */
typedef struct output {
  char *text;
  size_t room, n;
} output;

static void put(output *o, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++, o->n++)
    if (o->n + 1 < o->room)
      o->text[o->n] = text[i];
}

static void put_integer(output *o, uint64_t v, int negative) {
  char digits[24];
  int at = sizeof digits;
  do
    digits[--at] = (char)('0' + v % 10);
  while (v /= 10);
  if (negative)
    digits[--at] = '-';
  put(o, digits + at, sizeof digits - (size_t)at);
}

int cyrt_vsnprintf(char *text, size_t room, const char *format, va_list args) {
  output o = {text, room, 0};
  for (const char *at = format; *at;) {
    size_t plain = strcspn(at, "%");
    put(&o, at, plain);
    at += plain;
    if (!*at++)
      break;
    int cut = !strncmp(at, ".*", 2), max = cut ? va_arg(args, int) : 0, wide;
    at += 2 * cut;
    wide = !strncmp(at, "ll", 2);
    at += 2 * wide;
    char kind = *at++;
    if (kind == 's') {
      const char *s = va_arg(args, const char *), *end = cut ? memchr(s, 0, (size_t)max) : NULL;
      put(&o, s, end ? (size_t)(end - s) : cut ? (size_t)max : strlen(s));
    } else if (kind == 'd') {
      int64_t v = wide ? va_arg(args, int64_t) : va_arg(args, int);
      put_integer(&o, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0);
    } else if (kind == 'u') {
      put_integer(&o, wide ? va_arg(args, uint64_t) : va_arg(args, unsigned), 0);
    } else {
      put(&o, &kind, 1);
    }
  }
  if (room)
    text[o.n < room ? o.n : room - 1] = 0;
  return (int)o.n;
}

int cyrt_snprintf(char *text, size_t room, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = cyrt_vsnprintf(text, room, format, args);
  va_end(args);
  return n;
}

/* By the rules of %.*g. */
int cyrt_number_put(char *text, size_t room, int digits, double v) {
  char list[32];
  int point, negative, n = digits;
  output o = {text, room, 0};
  if (_ecvt_s(list, sizeof list, v, digits, &point, &negative))
    return 0;
  while (n > 1 && list[n - 1] == '0')
    n--;
  put(&o, "-", (size_t)(negative != 0));
  if (v == 0)
    point = 1;
  if (point < -3 || point > digits) {
    put(&o, list, 1);
    put(&o, ".", n > 1);
    put(&o, list + 1, (size_t)(n - 1));
    int e = point - 1, size = e < 0 ? -e : e;
    put(&o, e < 0 ? "e-0" : "e+0", size < 10 ? 3 : 2);
    put_integer(&o, (uint64_t)size, 0);
  } else {
    put(&o, "0.000", point > 0 ? 0 : (size_t)(2 - point));
    for (int i = 0; i < (point > n ? point : n); i++) {
      put(&o, ".", i == point && point > 0);
      put(&o, i < n ? list + i : "0", 1);
    }
  }
  text[o.n] = 0;
  return (int)o.n;
}

/* The C library's own: MinGW's header has another in its place, which Microsoft's libraries lack. */
extern double crt_strtod(const char *text, char **end) __asm__("strtod");
double cyrt_number_get(const char *text, char **end) { return crt_strtod(text, end); }

cyrt_numbers cyrt_numbers_begin(void) {
  cyrt_numbers theirs = {.threads = _configthreadlocale(_ENABLE_PER_THREAD_LOCALE)};
  const char *name = setlocale(LC_NUMERIC, NULL);
  if (name && strcmp(name, "C") && (theirs.name = malloc(strlen(name) + 1))) {
    strcpy(theirs.name, name);
    setlocale(LC_NUMERIC, "C");
  }
  return theirs;
}

void cyrt_numbers_end(cyrt_numbers theirs) {
  if (theirs.name)
    setlocale(LC_NUMERIC, theirs.name);
  free(theirs.name);
  _configthreadlocale(theirs.threads);
}
