/* check.h - the few macros a C unit test needs.
 *
 * A test program is one file under tests/ir, tests/passes, tests/codegen, tests/frontend or tests/rt (NAME_test.c): the
 * Makefile finds and builds it by itself. Its main() calls functions made of CHECK lines and ends with
 * `return check_done();`, which prints the line "N passed, N failed, N skipped" that the suite runner adds up. A failed
 * CHECK prints where and what and the program goes on, so that one run shows everything that is wrong.
 */
#ifndef CY_TESTS_CHECK_H
#define CY_TESTS_CHECK_H

#include <stdio.h>
#include <string.h>

static int check_passed, check_failed, check_skipped;

#define CHECK(cond)                                                                                                    \
  ((cond) ? (void)check_passed++                                                                                       \
          : (void)(check_failed++, fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond)))

#define CHECK_INT(got, want)                                                                                           \
  do {                                                                                                                 \
    long long got_ = (long long)(got), want_ = (long long)(want);                                                      \
    got_ == want_ ? (void)check_passed++                                                                               \
                  : (void)(check_failed++, fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got,  \
                                                   got_, want_));                                                      \
  } while (0)

#define CHECK_STR(got, want)                                                                                           \
  do {                                                                                                                 \
    const char *got_ = (got), *want_ = (want);                                                                         \
    (got_ && want_ ? strcmp(got_, want_) == 0 : got_ == want_)                                                         \
        ? (void)check_passed++                                                                                         \
        : (void)(check_failed++, fprintf(stderr, "%s:%d: %s is '%s', not '%s'\n", __FILE__, __LINE__, #got,            \
                                         got_ ? got_ : "(null)", want_ ? want_ : "(null)"));                           \
  } while (0)

/* For a test that cannot run here: says why, counts as skipped. */
#define CHECK_SKIP(why) ((void)check_skipped++, (void)printf("skipped: %s\n", (why)))

static inline int check_done(void) {
  printf("%d passed, %d failed, %d skipped\n", check_passed, check_failed, check_skipped);
  return check_failed != 0;
}

#endif
