/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - the few lines a test program needs.
 *
 * A program lists its tests in a table and ends with `return check_main(argc, argv, tests, CHECK_COUNT(tests));`. A
 * failing CHECK prints file and line and goes on with the next statement; CHECK_REQUIRE leaves the test function.
 * Arguments are regular expressions of the names to run (POSIX extended; none: all). Rows whose names begin with '*' make ready what others need,
 * and run in any case. The last line is "N passed, N failed, N skipped"; exit 1 when any failed. Checks may be used from
 * several threads. check_folder makes a folder for temporary files, check_threads counts threads, check_long tells whether all
 * cases are wanted, as `make check-long` does.
 */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct check_test {
  const char *name;
  void (*run)(void);
} check_test;

static int check_failures;        /* of the running test */
static const char *check_skipped; /* why, or NULL */

#define CHECK_COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

#define CHECK_FAIL(...)                                                                                                \
  do {                                                                                                                 \
    fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                                    \
    fprintf(stderr, __VA_ARGS__);                                                                                      \
    fputc('\n', stderr);                                                                                               \
    __atomic_fetch_add(&check_failures, 1, __ATOMIC_RELAXED);                                                          \
  } while (0)

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition))                                                                                                  \
      CHECK_FAIL("failed: %s", #condition);                                                                            \
  } while (0)

#define CHECK_REQUIRE(condition)                                                                                       \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      CHECK_FAIL("failed: %s", #condition);                                                                            \
      return;                                                                                                          \
    }                                                                                                                  \
  } while (0)

#define CHECK_INT_EQ(found, expected)                                                                                  \
  do {                                                                                                                 \
    long long check_f = (long long)(found), check_e = (long long)(expected);                                           \
    if (check_f != check_e)                                                                                            \
      CHECK_FAIL("%s: expected %lld, found %lld", #found, check_e, check_f);                                           \
  } while (0)

#define CHECK_STR_EQ(found, expected)                                                                                  \
  do {                                                                                                                 \
    const char *check_f = (found), *check_e = (expected);                                                              \
    if (!check_f || strcmp(check_f, check_e))                                                                          \
      CHECK_FAIL("%s: expected \"%s\", found \"%s\"", #found, check_e, check_f ? check_f : "(null)");                  \
  } while (0)

#define CHECK_STR_HAS(text, part)                                                                                      \
  do {                                                                                                                 \
    const char *check_t = (text), *check_p = (part);                                                                   \
    if (!strstr(check_t, check_p))                                                                                     \
      CHECK_FAIL("%s: expected something with \"%s\", found \"%s\"", #text, check_p, check_t);                         \
  } while (0)

/* |found - expected| <= tolerance * max(1, |expected|); NaN equals NaN. */
#define CHECK_CLOSE(found, expected, tolerance)                                                                        \
  do {                                                                                                                 \
    double check_f = (double)(found), check_e = (double)(expected), check_m = fabs(check_e) > 1 ? fabs(check_e) : 1;   \
    if (!(check_f == check_e || (isnan(check_f) && isnan(check_e)) || fabs(check_f - check_e) <= (tolerance)*check_m)) \
      CHECK_FAIL("%s: expected %.9g, found %.9g", #found, check_e, check_f);                                           \
  } while (0)

/* Leaves the test as skipped. */
#define CHECK_SKIP(reason)                                                                                             \
  do {                                                                                                                 \
    check_skipped = (reason);                                                                                          \
    return;                                                                                                            \
  } while (0)

enum { CHECK_PATH = 256 };

/* A new folder under TMPDIR, its name beginning with `name`; NULL: cannot be made. Removing it is the caller's part. */
static inline const char *check_folder(const char *name, char out_path[CHECK_PATH]) {
  const char *base = getenv("TMPDIR");
  int n = snprintf(out_path, CHECK_PATH, "%s/%s-XXXXXX", base && *base ? base : "/tmp", name);
  return n < CHECK_PATH ? mkdtemp(out_path) : NULL;
}

/* How many threads this process has. */
static inline int check_threads(void) {
  int count = 0;
  DIR *dir = opendir("/proc/self/task");
  for (struct dirent *entry; dir && (entry = readdir(dir));)
    count += entry->d_name[0] != '.';
  if (dir)
    closedir(dir);
  return count;
}

static inline int check_long(void) { return getenv("CYTO_CHECK_LONG") != NULL; }

static inline int check_matches(const char *name, const char *pattern) {
  regex_t re;
  if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB)) {
    fprintf(stderr, "not a regular expression: %s\n", pattern);
    exit(1);
  }
  int found = !regexec(&re, name, 0, NULL, 0);
  regfree(&re);
  return found;
}

static inline int check_main(int argc, char **argv, const check_test *tests, int count) {
  int passed = 0, failed = 0, skipped = 0;
  for (int i = 0; i < count; i++) {
    int wanted = argc < 2 || *tests[i].name == '*';
    for (int a = 1; a < argc; a++)
      wanted |= check_matches(tests[i].name, argv[a]);
    if (!wanted)
      continue;
    check_failures = 0;
    check_skipped = NULL;
    tests[i].run();
    if (check_failures) {
      failed++;
      fprintf(stderr, "FAILED %s\n", tests[i].name);
    } else if (check_skipped) {
      skipped++;
      printf("skipped %s: %s\n", tests[i].name, check_skipped);
    } else {
      passed++;
    }
  }
  printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed != 0;
}

#endif
