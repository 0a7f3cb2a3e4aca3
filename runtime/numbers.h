/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* numbers.h - numbers as texts by the rules of C, also in a program whose setlocale() asked for decimal commas.
 *
 * For the calling thread, from cyrt_numbers_begin() to cyrt_numbers_end().
 */
#ifndef CYRT_NUMBERS_H
#define CYRT_NUMBERS_H

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef _WIN32
typedef struct
    cyrt_numbers { /* of the thread's locale: its name, if that is not C's, and whether it is the thread's own */
  char *name;
  int threads;
} cyrt_numbers;
cyrt_numbers cyrt_numbers_begin(void); /* os_windows.c */
void cyrt_numbers_end(cyrt_numbers theirs);
int cyrt_number_put(char *text, size_t room, int digits, double v);
double cyrt_number_get(const char *text, char **end);
static inline float cyrt_number_get_float(const char *text) { return (float)cyrt_number_get(text, NULL); }
#else
typedef locale_t cyrt_numbers;

/* What to give to cyrt_numbers_end(). The C locale is always there: neither call takes or leaves memory. */
static inline cyrt_numbers cyrt_numbers_begin(void) {
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return plain ? uselocale(plain) : (locale_t)0;
}

static inline void cyrt_numbers_end(cyrt_numbers theirs) {
  if (theirs)
    uselocale(theirs);
}

/* As %.*g does: the length. */
static inline int cyrt_number_put(char *text, size_t room, int digits, double v) {
  return snprintf(text, room, "%.*g", digits, v);
}
static inline double cyrt_number_get(const char *text, char **end) { return strtod(text, end); }
static inline float cyrt_number_get_float(const char *text) { return strtof(text, NULL); }
#endif

#endif
