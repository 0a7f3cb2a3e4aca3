/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - compiled libraries, kept from one process to the next.
 *
 * In:  a folder, a key. Out: the path of the library of that key, made where it is missing or damaged.
 *
 * The folder is laid out as the Python package has it (python/cytoc/_cache.py): a folder per key; in it the library, what
 * was written beside it, `lock`, and `ok`, which is written last and holds names, sizes and CRCs of the files. Who wants a
 * key holds the lock, so that processes wait for the one that compiles; the system releases the lock of one that dies. What
 * was not used for longest goes when the whole is larger than CYTOC_CACHE_SIZE (4G).
 */
#include "integrations/shared/shared.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define LIBRARY "model.so"
#define STAMP "ok"
#define LOCK "lock"

enum { NAME_BYTES = 256, STAMP_BYTES = 4096, MAX_FILES = 16 };

/* false: it is too long. */
static bool path_of(char out[CACHE_PATH], const char *folder, const char *name) {
  int n = snprintf(out, CACHE_PATH, "%s/%s", folder, name);
  return n > 0 && n < CACHE_PATH;
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

/* Names of the files in a folder, in order; -1: there are too many, or it cannot be read. */
static int list(const char *folder, char names[MAX_FILES][NAME_BYTES]) {
  DIR *d = opendir(folder);
  int n = 0;
  for (struct dirent *entry; d && n >= 0 && (entry = readdir(d));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
      continue;
    if (n == MAX_FILES)
      n = -2;
    else
      memcpy(names[n], entry->d_name, strlen(entry->d_name) + 1);
    n++;
  }
  if (!d)
    return -1;
  closedir(d);
  if (n > 0)
    qsort(names, (size_t)n, sizeof *names, by_name);
  return n;
}

/* ---- whether an entry is whole ---- */

static bool add_file(const char *path, const char *name, char text[STAMP_BYTES]) {
  uint8_t block[1 << 16];
  unsigned long crc = crc32(0, NULL, 0);
  unsigned long long size = 0;
  FILE *f = fopen(path, "rb");
  if (!f)
    return false;
  for (size_t n; (n = fread(block, 1, sizeof block, f)); size += n)
    crc = crc32(crc, block, (unsigned)n);
  bool whole = !ferror(f);
  fclose(f);
  size_t used = strlen(text);
  int n = snprintf(text + used, STAMP_BYTES - used, "%s%s %llu %08lx", used ? "\n" : "", name, size, crc);
  return whole && n > 0 && (size_t)n < STAMP_BYTES - used;
}

static bool describe(const char *place, char text[STAMP_BYTES]) {
  char names[MAX_FILES][NAME_BYTES], path[CACHE_PATH];
  int n = list(place, names);
  text[0] = 0;
  for (int i = 0; i < n; i++)
    if (strcmp(names[i], STAMP) && strcmp(names[i], LOCK) &&
        !(path_of(path, place, names[i]) && add_file(path, names[i], text)))
      return false;
  return n >= 0;
}

static bool is_intact(const char *place) {
  char path[CACHE_PATH], found[STAMP_BYTES], expected[STAMP_BYTES];
  if (!path_of(path, place, LIBRARY) || access(path, R_OK) || !path_of(path, place, STAMP))
    return false;
  FILE *f = fopen(path, "rb");
  if (!f)
    return false;
  size_t n = fread(found, 1, sizeof found - 1, f);
  fclose(f);
  found[n] = 0;
  return describe(place, expected) && !strcmp(found, expected);
}

static bool write_stamp(const char *place) {
  char text[STAMP_BYTES], path[CACHE_PATH], written[CACHE_PATH];
  if (!describe(place, text) || !path_of(path, place, STAMP) || !path_of(written, place, STAMP ".new"))
    return false;
  FILE *f = fopen(written, "wb");
  bool done = f && fputs(text, f) >= 0;
  if (f)
    done = !fclose(f) && done;
  return done && !rename(written, path);
}

/* ---- removing ---- */

/* A folder of files, and of folders of files. */
static void remove_all(const char *folder) {
  DIR *d = opendir(folder);
  char path[CACHE_PATH];
  for (struct dirent *entry; d && (entry = readdir(d));)
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && path_of(path, folder, entry->d_name) &&
        unlink(path))
      remove_all(path);
  if (d)
    closedir(d);
  rmdir(folder);
}

static void remove_leftovers(const char *place) {
  DIR *d = opendir(place);
  char path[CACHE_PATH];
  for (struct dirent *entry; d && (entry = readdir(d));)
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && strcmp(entry->d_name, LOCK) &&
        path_of(path, place, entry->d_name) && unlink(path))
      remove_all(path);
  if (d)
    closedir(d);
}

typedef struct entry {
  char *place;
  struct timespec used;
  int64_t bytes;
} entry;

static int by_age(const void *a, const void *b) {
  const struct timespec *x = &((const entry *)a)->used, *y = &((const entry *)b)->used;
  return x->tv_sec != y->tv_sec ? (x->tv_sec > y->tv_sec) - (x->tv_sec < y->tv_sec)
                                : (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* false: it is being written, or somebody else has removed it. */
static bool entry_read(const char *place, entry *e) {
  char path[CACHE_PATH];
  struct stat st;
  if (!path_of(path, place, STAMP) || stat(path, &st))
    return false;
  *e = (entry){.place = strdup(place), .used = st.st_mtim};
  DIR *d = e->place ? opendir(place) : NULL;
  for (struct dirent *file; d && (file = readdir(d));)
    if (path_of(path, place, file->d_name) && !stat(path, &st) && S_ISREG(st.st_mode))
      e->bytes += st.st_size;
  if (d)
    closedir(d);
  return e->place;
}

static int64_t limit(void) {
  const char *text = getenv("CYTOC_CACHE_SIZE"), *units = "KMGT";
  char *end = NULL;
  double size = strtod(text && *text ? text : "4G", &end);
  const char *unit = *end ? strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end) : NULL;
  for (; unit && unit >= units; unit--)
    size *= 1024;
  return size >= 0 && size < 9e18 ? (int64_t)size : (int64_t)4 << 30;
}

static void trim(const char *folder, const char *keep) {
  entry *all = NULL;
  size_t n = 0, room = 0;
  int64_t total = 0;
  char place[CACHE_PATH];
  DIR *d = opendir(folder);
  for (struct dirent *file; d && (file = readdir(d));) {
    if (n == room) {
      entry *grown = realloc(all, (room = room ? 2 * room : 64) * sizeof *all);
      if (!grown)
        break;
      all = grown;
    }
    if (file->d_name[0] != '.' && path_of(place, folder, file->d_name) && entry_read(place, &all[n]))
      total += all[n++].bytes;
  }
  if (d)
    closedir(d);
  if (n && total > limit())
    qsort(all, n, sizeof *all, by_age);
  for (size_t i = 0; i < n; i++) {
    if (total > limit() && strcmp(all[i].place, keep)) {
      remove_all(all[i].place);
      total -= all[i].bytes;
    }
    free(all[i].place);
  }
  free(all);
}

/* ---- making ---- */

static bool make_folders(char *path) {
  for (char *p = path + 1; *p; p++)
    if (*p == '/') {
      *p = 0;
      mkdir(path, 0777);
      *p = '/';
    }
  struct stat st;
  return (!mkdir(path, 0777) || errno == EEXIST) && !stat(path, &st) && S_ISDIR(st.st_mode);
}

static bool move_files(const char *from, const char *to) {
  char names[MAX_FILES][NAME_BYTES], old[CACHE_PATH], new[CACHE_PATH];
  int n = list(from, names);
  for (int i = 0; i < n; i++)
    if (!path_of(old, from, names[i]) || !path_of(new, to, names[i]) || rename(old, new))
      return false;
  return n >= 0;
}

/* With the lock held. */
static bool make(const char *place, int (*build)(void *ctx, const char *path), void *ctx, char why[256]) {
  char work[CACHE_PATH], path[CACHE_PATH];
  remove_leftovers(place);
  if (!path_of(work, place, "new-XXXXXX") || !mkdtemp(work) || !path_of(path, work, LIBRARY)) {
    snprintf(why, 256, "%s", strerror(errno));
    return false;
  }
  bool built = !build(ctx, path), kept = built && move_files(work, place);
  int reason = errno;
  remove_all(work);
  if (kept && !(kept = write_stamp(place)))
    reason = errno;
  if (built && !kept)
    snprintf(why, 256, "%s", strerror(reason));
  return kept;
}

/* A folder that was removed while its lock was waited for is made again. */
static int lock_place(char place[CACHE_PATH], char why[256]) {
  char lock[CACHE_PATH];
  for (int tries = 0; tries < 16; tries++) {
    struct stat held, there;
    int fd = make_folders(place) && path_of(lock, place, LOCK) ? open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd < 0 || flock(fd, LOCK_EX)) {
      snprintf(why, 256, "%s", strerror(errno));
      if (fd >= 0)
        close(fd);
      return -1;
    }
    if (!fstat(fd, &held) && !stat(lock, &there) && held.st_ino == there.st_ino)
      return fd;
    close(fd);
  }
  snprintf(why, 256, "its lock cannot be held");
  return -1;
}

bool path_expand(char out[CACHE_PATH], const char *path) {
  const char *home = path[0] == '~' && (!path[1] || path[1] == '/') ? getenv("HOME") : NULL;
  int n = snprintf(out, CACHE_PATH, "%s%s", home ? home : "", path + (home != NULL));
  return n >= 0 && n < CACHE_PATH;
}

static bool default_folder(char out[CACHE_PATH]) {
  const char *own = getenv("CYTOC_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (own && *own)
    return path_expand(out, own);
  int n = xdg && *xdg ? snprintf(out, CACHE_PATH, "%s/cytoc/models", xdg)
                      : snprintf(out, CACHE_PATH, "%s/.cache/cytoc/models", home ? home : "");
  return n > 0 && n < CACHE_PATH;
}

bool cache_library(const char *folder, const char *key, int (*build)(void *ctx, const char *path), void *ctx,
                   char path[CACHE_PATH], char why[256]) {
  char base[CACHE_PATH], place[CACHE_PATH], stamp[CACHE_PATH];
  why[0] = 0;
  if (folder ? snprintf(base, sizeof base, "%s", folder) >= CACHE_PATH : !default_folder(base)) {
    snprintf(why, 256, "its path is too long");
    return false;
  }
  if (!path_of(place, base, key) || !path_of(path, place, LIBRARY) || !path_of(stamp, place, STAMP)) {
    snprintf(why, 256, "its path is too long");
    return false;
  }
  if (is_intact(place)) {                /* which needs no lock, and no permission to write */
    utimensat(AT_FDCWD, stamp, NULL, 0); /* used now */
    return true;
  }
  int lock = lock_place(place, why);
  if (lock < 0)
    return false;
  bool there = is_intact(place); /* another process has made it meanwhile */
  bool made = !there && make(place, build, ctx, why);
  close(lock);
  if (made)
    trim(base, place);
  return there || made;
}
