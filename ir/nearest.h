/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.h - "did you mean ..": of the names that there are, the one that a name which is not there was meant for.
 *
 * In: the name that was asked for, then one candidate after the other. Out: the nearest by edit distance (insert,
 * delete, replace, swap two neighbours; the case of letters does not count), if it is near: a third of the name may
 * differ. Long names are compared by their beginnings.
 */
#ifndef CY_NEAREST_H
#define CY_NEAREST_H

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { CY_NEAREST_LENGTH = 96, CY_NEAREST_TEXT = 2 * CY_NEAREST_LENGTH };

typedef struct cy_nearest {
  const char *wanted;
  size_t length;    /* of it: it may be a part of a text */
  const char *best; /* NULL: none is near */
  size_t best_length, distance;
} cy_nearest;

static inline cy_nearest cy_nearest_of(const char *wanted, size_t length) {
  return (cy_nearest){.wanted = wanted, .length = length < CY_NEAREST_LENGTH ? length : CY_NEAREST_LENGTH};
}

static inline size_t cy_edit_distance(const char *a, size_t n, const char *b, size_t m) {
  size_t rows[3][CY_NEAREST_LENGTH + 1], *last = rows[0], *row = rows[1], *before = rows[2];
  for (size_t j = 0; j <= m; j++)
    row[j] = j;
  for (size_t i = 1; i <= n; i++) {
    size_t *free_row = before;
    before = last, last = row, row = free_row;
    row[0] = i;
    for (size_t j = 1; j <= m; j++) {
      int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
      size_t best = last[j - 1] + (x != y);
      best = last[j] + 1 < best ? last[j] + 1 : best;
      best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
      if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]) &&
          before[j - 2] + 1 < best)
        best = before[j - 2] + 1;
      row[j] = best;
    }
  }
  return row[m];
}

/* candidate: need not end with a zero; stays the caller's. */
static inline void cy_nearest_try(cy_nearest *n, const char *candidate, size_t length) {
  size_t compared = length < CY_NEAREST_LENGTH ? length : CY_NEAREST_LENGTH;
  size_t d = cy_edit_distance(n->wanted, n->length, candidate, compared);
  if (3 * d > n->length + 2 || d >= compared || (n->best && d >= n->distance))
    return;
  n->best = candidate;
  n->best_length = length;
  n->distance = d;
}

/* "; did you mean 'batch'?", or nothing. Returns text. */
static inline const char *cy_nearest_say(const cy_nearest *n, char text[CY_NEAREST_TEXT]) {
  text[0] = 0;
  if (n->best)
    snprintf(text, CY_NEAREST_TEXT, "; did you mean '%.*s'?", (int)(n->best_length < 150 ? n->best_length : 150),
             n->best);
  return text;
}

#endif
