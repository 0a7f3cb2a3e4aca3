/* numbers.h - numbers as texts by the rules of C, also in a program whose setlocale() asked for decimal commas.
 *
 * For the calling thread, from cyrt_numbers_begin() to cyrt_numbers_end().
 */
#ifndef CYRT_NUMBERS_H
#define CYRT_NUMBERS_H

#include <locale.h>

/* What to give to cyrt_numbers_end(). The C locale is always there: neither call takes or leaves memory. */
static inline locale_t cyrt_numbers_begin(void) {
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return plain ? uselocale(plain) : (locale_t)0;
}

static inline void cyrt_numbers_end(locale_t theirs) {
  if (theirs)
    uselocale(theirs);
}

#endif
