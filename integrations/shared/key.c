/* SPDX-License-Identifier: Apache-2.0 */
/* key.c - sums that tell compiled libraries apart.
 *
 * In:  bytes, or a path. Out: sums for a key of the cache, not against who wants two models to have one.
 */
#include "integrations/shared/shared.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t mix(uint64_t h, uint64_t word, uint64_t factor) {
  h = (h ^ word) * factor;
  return h ^ (h >> 29);
}

void key_add(key_sum *s, const void *data, size_t bytes) {
  const uint8_t *p = data;
  key_sum lane[4];
  for (int k = 0; k < 4; k++) /* lanes that do not wait for each other */
    lane[k] = (key_sum){s->a + (uint64_t)k, s->b ^ (uint64_t)k << 32};
  size_t i = 0;
  for (; i + 32 <= bytes; i += 32)
    for (int k = 0; k < 4; k++) {
      uint64_t word;
      memcpy(&word, p + i + 8 * k, sizeof word);
      lane[k].a = mix(lane[k].a, word, 0x9e3779b97f4a7c15u);
      lane[k].b = mix(lane[k].b, word, 0xd6e8feb86659fd93u);
    }
  for (; i < bytes; i += 8) {
    uint64_t word = 0;
    memcpy(&word, p + i, bytes - i < 8 ? bytes - i : 8);
    lane[i / 8 % 4].a = mix(lane[i / 8 % 4].a, word, 0x9e3779b97f4a7c15u);
    lane[i / 8 % 4].b = mix(lane[i / 8 % 4].b, word, 0xd6e8feb86659fd93u);
  }
  for (int k = 0; k < 4; k++) {
    s->a = mix(s->a, lane[k].a, 0xc2b2ae3d27d4eb4fu);
    s->b = mix(s->b, lane[k].b, 0x165667b19e3779f9u);
  }
  s->a = mix(s->a, bytes, 0xc2b2ae3d27d4eb4fu);
  s->b = mix(s->b, bytes, 0x165667b19e3779f9u);
}

/* ---- files ---- */

#define FNV_BASIS 14695981039346656037u
#define FNV_PRIME 1099511628211u

static uint64_t sum_of(uint64_t sum, const char *path, int depth) {
  struct stat st;
  if (stat(path, &st) || depth > 8)
    return sum;
  const int64_t parts[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
  for (int i = 0; i < 3; i++)
    sum = (sum ^ (uint64_t)parts[i]) * FNV_PRIME;
  for (const char *p = path; *p; p++)
    sum = (sum ^ (unsigned char)*p) * FNV_PRIME;
  DIR *d = S_ISDIR(st.st_mode) ? opendir(path) : NULL;
  uint64_t files = 0;
  for (struct dirent *entry; d && (entry = readdir(d));) {
    char below[CACHE_PATH];
    int n = snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
    if (entry->d_name[0] != '.' && n > 0 && n < (int)sizeof below)
      files += sum_of(FNV_BASIS, below, depth + 1);
  }
  if (d)
    closedir(d);
  return sum ^ files;
}

uint64_t key_of_files(const char *path) { return sum_of(FNV_BASIS, path, 0); }
