/* lz4.c - bytes to an LZ4 block, as short as the format allows in reasonable time.
 *
 * A block is a row of sequences: a token, literal bytes, and a copy of 4 bytes or more from up to 64 KB before. At
 * every place the longest earlier match is looked up (chains of places with equal first four bytes); then, from the end
 * backwards, each place learns what the rest costs at least, as a literal or as a copy of some length; then the
 * cheapest way is written. The format wants the last five bytes to be literals and no copy to begin in the last twelve.
 */
#include "codegen/cuda/cuda_int.h"

#include <stdlib.h>
#include <string.h>

enum {
  LEAST = 4,
  WINDOW = 65535,
  LAST_LITERALS = 5,
  LAST_BEGIN = 12,
  HASH_BITS = 16,
  TRIES = 128,      /* places looked at */
  ENOUGH = 1 << 10, /* a match so long is not improved on */
  MOST = 1 << 12    /* longer ones become several copies */
};

typedef struct place {
  uint32_t length, distance; /* longest copy that begins here; length 0: none */
  uint32_t cost;             /* bytes from here to the end, at least */
  uint32_t take;             /* of the copy on the cheapest way; 0: a literal */
} place;

static uint32_t hash_of(const uint8_t *p) {
  uint32_t word;
  memcpy(&word, p, 4);
  return (word * 2654435761u) >> (32 - HASH_BITS);
}

/* ---- the longest match at every place ---- */

static size_t match_length(const uint8_t *a, const uint8_t *b, const uint8_t *end) {
  const uint8_t *start = b;
  end = end - b > MOST ? b + MOST : end;
  while (b < end && *a == *b)
    a++, b++;
  return (size_t)(b - start);
}

static void find_matches(const uint8_t *bytes, size_t size, place *places) {
  int32_t *head = malloc(sizeof *head << HASH_BITS), *before = malloc((size + 1) * sizeof *before);
  if (!head || !before)
    abort();
  memset(head, 0xff, sizeof *head << HASH_BITS);
  for (size_t i = 0; i + LAST_BEGIN <= size; i++) {
    uint32_t h = hash_of(bytes + i);
    int tries = TRIES;
    for (int32_t j = head[h]; j >= 0 && i - (size_t)j <= WINDOW && tries-- > 0 && places[i].length < ENOUGH;
         j = before[j]) {
      size_t n = match_length(bytes + j, bytes + i, bytes + size - LAST_LITERALS);
      if (n >= LEAST && n > places[i].length) {
        places[i].length = (uint32_t)n;
        places[i].distance = (uint32_t)(i - (size_t)j);
      }
    }
    before[i] = head[h];
    head[h] = (int32_t)i;
  }
  free(head);
  free(before);
}

/* ---- the cheapest way ---- */

static uint32_t copy_cost(uint32_t length) { return length < LEAST + 15 ? 3 : 4 + (length - LEAST - 15) / 255; }

static void choose(place *places, size_t size) {
  places[size].cost = 0;
  for (size_t i = size; i-- > 0;) {
    place *p = &places[i];
    p->cost = places[i + 1].cost + 1;
    p->take = 0;
    for (uint32_t n = p->length; n >= LEAST; n = n > 64 ? 64 : n - 1) {
      uint32_t cost = places[i + n].cost + copy_cost(n);
      if (cost < p->cost) {
        p->cost = cost;
        p->take = n;
      }
    }
  }
}

/* ---- writing ---- */

static uint8_t *put_length(uint8_t *out, size_t n) { /* what is beyond the token's 15 */
  for (; n >= 255; n -= 255)
    *out++ = 255;
  *out++ = (uint8_t)n;
  return out;
}

static uint8_t *put_sequence(uint8_t *out, const uint8_t *literals, size_t n, uint32_t copy, uint32_t distance) {
  size_t more = copy ? copy - LEAST : 0;
  *out++ = (uint8_t)((n < 15 ? n : 15) << 4 | (more < 15 ? more : 15));
  if (n >= 15)
    out = put_length(out, n - 15);
  memcpy(out, literals, n);
  out += n;
  if (!copy)
    return out;
  *out++ = (uint8_t)distance;
  *out++ = (uint8_t)(distance >> 8);
  return more >= 15 ? put_length(out, more - 15) : out;
}

char *cy_lz4_pack(const char *text, size_t size, size_t *out_size) {
  const uint8_t *bytes = (const uint8_t *)text;
  place *places = calloc(size + 1, sizeof *places);
  uint8_t *block = malloc(size + size / 255 + 16), *out = block;
  if (!places || !block || size > INT32_MAX)
    abort();
  find_matches(bytes, size, places);
  choose(places, size);
  size_t literals = 0;
  for (size_t i = 0; i < size;) {
    if (!places[i].take) {
      i++;
      continue;
    }
    out = put_sequence(out, bytes + literals, i - literals, places[i].take, places[i].distance);
    i += places[i].take;
    literals = i;
  }
  out = put_sequence(out, bytes + literals, size - literals, 0, 0);
  free(places);
  *out_size = (size_t)(out - block);
  return (char *)block;
}
