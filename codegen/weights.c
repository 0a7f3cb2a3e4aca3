/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - the constants of a program, laid out and written.
 *
 * Every used constant gets a 64-byte aligned place, but for those of a few numbers (zero points, scales, parameters of
 * kernels), which stand behind the others, none across a boundary of 64 bytes. Equal ones share a place. The bytes are
 * produced straight into the mapped output file, by several threads: an object that the linker takes as it is, or,
 * beyond CY_WEIGHTS_SIDE_FILE, a file of its own beside the library (cyrt_model.weights_file), because code reaches only
 * 2 GB around itself. Space is reserved first: running out of it while writing a mapping would kill the process.
 */
#define _GNU_SOURCE
#include "codegen/work.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_COMPARED = 1 << 16 };

/* A power of two, 64 at most. Packed layouts are read in whole vectors. */
static uint64_t alignment(const cy_constant *c) {
  uint64_t align = 8;
  while (align < 64 && (align < c->size || c->write))
    align *= 2;
  return align;
}

static const cy_data *data_of(const cy_work *b, uint32_t i) {
  return &cy_value_of(b->g, b->p->constants[i].value)->data;
}

/* Constants that are stored as they are by their bytes, equal ones in their own order. */
static int by_bytes(const void *x, const void *y, void *work) {
  const uint32_t i = *(const uint32_t *)x, j = *(const uint32_t *)y;
  const cy_data *a = data_of(work, i), *c = data_of(work, j);
  int order = a->size != c->size ? (a->size < c->size ? -1 : 1) : memcmp(a->bytes, c->bytes, a->size);
  return order ? order : i < j ? -1 : 1;
}

/* The same by where their bytes lie: views of one constant. */
static int by_place(const void *x, const void *y, void *work) {
  const uint32_t i = *(const uint32_t *)x, j = *(const uint32_t *)y;
  const cy_data *a = data_of(work, i), *c = data_of(work, j);
  if (a->bytes != c->bytes)
    return (uintptr_t)a->bytes < (uintptr_t)c->bytes ? -1 : 1;
  int order = a->size != c->size ? (a->size < c->size ? -1 : 1) : 0;
  return order ? order : i < j ? -1 : 1;
}

/* Large ones would have to be read to be compared. */
static bool are_equal(const cy_data *a, const cy_data *c) {
  return a->size == c->size &&
         (a->bytes == c->bytes || (a->size <= MAX_COMPARED && memcmp(a->bytes, c->bytes, a->size) == 0));
}

static void join_equal(const cy_work *b, const uint32_t *list, uint32_t n, uint32_t *same) {
  for (uint32_t i = 1; i < n; i++)
    if (are_equal(data_of(b, list[i - 1]), data_of(b, list[i])))
      same[list[i]] = same[list[i - 1]];
}

/* For each constant the first equal one, or itself; malloc'ed. */
static uint32_t *find_equal(cy_work *b) {
  uint32_t n = 0, nlarge = 0, *same = malloc((b->p->nconstants + 1) * sizeof *same),
           *list = malloc((b->p->nconstants + 1) * sizeof *list),
           *large = malloc((b->p->nconstants + 1) * sizeof *large);
  if (!same || !list || !large)
    cy_no_memory();
  for (uint32_t i = 0; i < b->p->nconstants; i++) {
    const cy_constant *c = &b->p->constants[i];
    same[i] = i;
    if (!b->constant_used[i] || c->write || !c->size || c->size != data_of(b, i)->size)
      continue;
    if (c->size <= MAX_COMPARED)
      list[n++] = i;
    else
      large[nlarge++] = i;
  }
  qsort_r(list, n, sizeof *list, by_bytes, b);
  qsort_r(large, nlarge, sizeof *large, by_place, b);
  join_equal(b, list, n, same);
  join_equal(b, large, nlarge, same);
  free(list);
  free(large);
  return same;
}

/* Places what wants this alignment, from `at` on; returns where that ends. */
static uint64_t place(cy_work *b, const uint32_t *same, uint64_t align, uint64_t at) {
  for (uint32_t i = 0; i < b->p->nconstants; i++) {
    cy_constant *c = &b->p->constants[i];
    if (alignment(c) != align)
      continue;
    c->offset = same[i] == i ? at : b->p->constants[same[i]].offset;
    if (b->constant_used[i] && same[i] == i)
      at += (c->size + align - 1) / align * align;
  }
  return at;
}

void cy_weights_layout(cy_work *b) {
  uint64_t at = 0;
  uint32_t *same = find_equal(b);
  for (uint64_t align = 64; align >= 8; align /= 2)
    at = place(b, same, align, at);
  free(same);
  at = (at + 63) / 64 * 64;
  b->p->weights_bytes = at;
  b->has_weights = at > 0;
  if (cy_emit_class_of(b) == CY_EMIT_CLASS_LIBRARY && at > CY_WEIGHTS_SIDE_FILE &&
      asprintf(&b->weights_file, "%s.weights", cy_path_base(b->o->output)) < 0)
    cy_no_memory();
}

/* ---- writing ---- */

typedef struct piece {
  uint32_t constant, number;
} piece;

typedef struct job {
  const cy_work *b;
  uint8_t *out;
  piece *pieces;
  uint32_t n, next; /* next: atomic */
} job;

/* Unmaps whole pages; the file keeps them. Else a compile would need the library's size in memory. */
static void release_pages(uint8_t *from, uint64_t bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)from + page - 1) / page * page,
            end = ((uintptr_t)from + bytes) / page * page;
  if (begin < end)
    madvise((void *)begin, end - begin, MADV_DONTNEED);
}

static void copy_bytes(uint8_t *to, const void *from, uint64_t bytes) {
  const uint64_t chunk = 8 << 20;
  for (uint64_t at = 0; at < bytes; at += chunk) {
    uint64_t n = bytes - at < chunk ? bytes - at : chunk;
    memcpy(to + at, (const uint8_t *)from + at, n);
    release_pages(to, at + n);
  }
}

static void *work(void *arg) {
  job *j = arg;
  cy_program *p = j->b->p;
  for (uint32_t i; (i = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED)) < j->n;) {
    const cy_constant *c = &p->constants[j->pieces[i].constant];
    const cy_data *data = &cy_value_of(j->b->g, c->value)->data;
    if (c->write)
      c->write(j->b->g, c->value, c->layout, j->pieces[i].number, j->out + c->offset);
    else
      copy_bytes(j->out + c->offset, data->bytes, c->size < data->size ? c->size : data->size);
    release_pages(j->out + c->offset, c->size);
  }
  return NULL;
}

static job job_of(const cy_work *b, uint8_t *out) {
  job j = {.b = b, .out = out};
  for (uint32_t i = 0; i < b->p->nconstants; i++)
    j.n += b->constant_used[i] ? b->p->constants[i].pieces : 0;
  j.pieces = malloc((j.n + 1) * sizeof *j.pieces);
  if (!j.pieces)
    cy_no_memory();
  for (uint32_t i = 0, n = 0; i < b->p->nconstants; i++)
    for (uint32_t k = 0; b->constant_used[i] && k < b->p->constants[i].pieces; k++)
      j.pieces[n++] = (piece){i, k};
  return j;
}

static void write_all(cy_work *b, uint8_t *out, int threads) {
  job j = job_of(b, out);
  pthread_t t[16];
  int started = 0;
  for (int n = (threads < 16 ? threads : 16) - 1; started < n && b->p->weights_bytes > 1 << 20; started++)
    if (cy_temps_thread(&t[started], work, &j))
      break;
  work(&j);
  for (int i = 0; i < started; i++)
    pthread_join(t[i], NULL);
  free(j.pieces);
}

/* Creates a file of `bytes` with its space reserved, mapped for writing; NULL after a diagnostic. */
static uint8_t *create_mapped(cy_work *b, const char *path, uint64_t bytes, int *out_fd) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  int error = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
  void *map = error ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (!error && map == MAP_FAILED)
    error = errno;
  if (error) {
    cy_diag_add(b->diag, CY_ERROR, NULL, "cannot write %.1f MB of weights to '%s': %s", (double)bytes / 1e6, path,
                strerror(error));
    cy_diag_blame(b->diag, CY_CAUSE_FILE);
    if (fd >= 0)
      close(fd);
    return NULL;
  }
  *out_fd = fd;
  return map;
}

static int write_side_file(cy_work *b, int threads) {
  char *path = NULL;
  int fd, rc = -1;
  if (asprintf(&path, "%s.weights", b->o->output) < 0)
    cy_no_memory();
  const char *near = cy_temps_near(b->temps, path);
  uint8_t *map = create_mapped(b, near, b->p->weights_bytes, &fd);
  if (map) {
    write_all(b, map, threads);
    munmap(map, b->p->weights_bytes);
    close(fd);
    rc = cy_temps_commit(near, path, b->diag);
  }
  free(path);
  return rc;
}

static int write_object(cy_work *b, int threads) {
  char symbol[160];
  int fd;
  snprintf(symbol, sizeof symbol, "%s_weights", b->name);
  cy_data_image image;
  if (b->machine->arch->format == CY_COFF)
    cy_coff_data_object(b->machine->arch->machine, symbol, b->p->weights_bytes, &image);
  else
    cy_elf_data_object(b->machine->arch->machine, ".cyto_weights", symbol, b->p->weights_bytes, &image);
  const char *path = cy_temps_file(b->temps, "weights.o");
  uint64_t bytes = image.tail_offset + image.tail_bytes;
  uint8_t *map = create_mapped(b, path, bytes, &fd);
  if (!map)
    return -1;
  memcpy(map, image.head, sizeof image.head);
  write_all(b, map + image.data_offset, threads);
  memcpy(map + image.tail_offset, image.tail, image.tail_bytes);
  munmap(map, bytes);
  close(fd);
  cy_work_add_object(b, path);
  return 0;
}

int cy_weights_write(cy_work *b) {
  int threads = b->o->jobs > 0 ? b->o->jobs : (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (!b->has_weights)
    return 0;
  return b->weights_file ? write_side_file(b, threads) : write_object(b, threads);
}
