/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ops_nms.c - non-maximum suppression, as ONNX defines it.
 *
 * For each batch and class, boxes are taken by falling score (ties: the lower index first) and kept unless they overlap
 * a kept one of the same class by more than the threshold. Batches times classes are independent and run in parallel:
 * each leaves its kept boxes in its own stretch of a list, which is then closed up.
 */
#include "runtime/cyrt.h"

#include <stdlib.h>
#include <string.h>

typedef struct box {
  float top, left, bottom, right, area;
} box;

typedef struct candidate {
  float score;
  int32_t index;
} candidate;

typedef struct nms_task {
  const float *boxes, *scores;
  int64_t n, classes, limit; /* boxes, classes, most kept per class */
  int has_score_threshold, centered;
  float iou_threshold, score_threshold;
  uint8_t *scratch;       /* per worker: candidates, then kept boxes */
  uint64_t scratch_bytes; /* of one worker */
  int64_t *kept;          /* [batch * classes][limit] */
  int64_t *counts;        /* [batch * classes] */
} nms_task;

static box box_read(const float *from, int centered) {
  box b;
  if (centered) { /* x, y, width, height */
    b = (box){from[1] - from[3] / 2, from[0] - from[2] / 2, from[1] + from[3] / 2, from[0] + from[2] / 2, 0};
  } else { /* two opposite corners, y first */
    b.top = from[0] < from[2] ? from[0] : from[2];
    b.bottom = from[0] < from[2] ? from[2] : from[0];
    b.left = from[1] < from[3] ? from[1] : from[3];
    b.right = from[1] < from[3] ? from[3] : from[1];
  }
  b.area = (b.bottom - b.top) * (b.right - b.left);
  return b;
}

static int overlaps(const box *a, const box *b, float threshold) {
  float top = a->top > b->top ? a->top : b->top, bottom = a->bottom < b->bottom ? a->bottom : b->bottom;
  float left = a->left > b->left ? a->left : b->left, right = a->right < b->right ? a->right : b->right;
  if (!(bottom > top) || !(right > left))
    return 0;
  float shared = (bottom - top) * (right - left), all = a->area + b->area - shared;
  return a->area > 0 && b->area > 0 && all > 0 && shared / all > threshold;
}

static int candidate_order(const void *left, const void *right) {
  const candidate *a = left, *b = right;
  if (a->score != b->score)
    return a->score > b->score ? -1 : 1;
  return (a->index > b->index) - (a->index < b->index);
}

/* Those above the score threshold; a NaN score is above nothing and would not sort. */
static int64_t gather_candidates(const nms_task *t, const float *scores, candidate *list) {
  int64_t found = 0;
  for (int64_t i = 0; i < t->n; i++)
    if (t->has_score_threshold ? scores[i] > t->score_threshold : scores[i] == scores[i])
      list[found++] = (candidate){scores[i], (int32_t)i};
  return found;
}

static void nms_kernel(const cyrt_slot *args, int64_t begin, int64_t end, int64_t worker) {
  const nms_task *t = args[0].ptr;
  candidate *list = (candidate *)(void *)(t->scratch + (uint64_t)worker * t->scratch_bytes);
  box *kept = (box *)(void *)(list + t->n);
  for (int64_t row = begin; row < end; row++) {
    const float *boxes = t->boxes + row / t->classes * t->n * 4;
    int64_t found = gather_candidates(t, t->scores + row * t->n, list), count = 0;
    qsort(list, (size_t)found, sizeof *list, candidate_order);
    for (int64_t i = 0; i < found && count < t->limit; i++) {
      box next = box_read(boxes + (int64_t)list[i].index * 4, t->centered);
      int64_t k = 0;
      while (k < count && !overlaps(&next, &kept[k], t->iou_threshold))
        k++;
      if (k < count)
        continue;
      kept[count] = next;
      t->kept[row * t->limit + count++] = list[i].index;
    }
    t->counts[row] = count;
  }
}

/* Closes the list up to triples (batch, class, box) in `block`: their number first. */
static void nms_pack(const nms_task *t, int64_t rows, int64_t *block) {
  int64_t *to = block + 1;
  for (int64_t row = 0; row < rows; row++)
    for (int64_t i = 0; i < t->counts[row]; i++) {
      *to++ = row / t->classes;
      *to++ = row % t->classes;
      *to++ = t->kept[row * t->limit + i];
    }
  block[0] = (to - block - 1) / 3;
}

/* Runs everything; the result is scratch: the number of triples, then the triples. */
static int32_t nms_find(cyrt_frame *frame, nms_task *t, int64_t batch, int64_t **out_block, uint64_t *out_bytes) {
  int64_t rows = batch * t->classes, grain = 4096 / (t->n + 1) + 1, kept_total, total = 0;
  uint64_t workers = (uint64_t)(rows <= grain ? 1 : frame->workers);
  if (__builtin_mul_overflow(rows, t->limit + 1, &kept_total) || kept_total > (int64_t)1 << 40)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "NonMaxSuppression: no memory for scratch");
  t->scratch_bytes = (uint64_t)t->n * (sizeof(candidate) + sizeof(box));
  uint64_t kept_bytes = (uint64_t)kept_total * sizeof(int64_t);
  t->scratch = cyrt_scratch_alloc(frame, workers * t->scratch_bytes);
  t->counts = cyrt_scratch_alloc(frame, kept_bytes);
  *out_block = NULL;
  if (t->scratch && t->counts) {
    cyrt_slot args[] = {{.ptr = t}};
    t->kept = t->counts + rows;
    cyrt_parallel_for(frame, nms_kernel, args, rows, grain);
    for (int64_t row = 0; row < rows; row++)
      total += t->counts[row];
    *out_bytes = ((uint64_t)total * 3 + 1) * sizeof(int64_t);
    *out_block = cyrt_scratch_alloc(frame, *out_bytes);
  }
  if (*out_block)
    nms_pack(t, rows, *out_block);
  cyrt_scratch_free(frame, t->scratch, workers * t->scratch_bytes);
  cyrt_scratch_free(frame, t->counts, kept_bytes);
  return *out_block ? CYTO_OK : cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "NonMaxSuppression: no memory for scratch");
}

static int has_input(const cyrt_tensor *in, int32_t n_in, int32_t i) { return i < n_in && in[i].data; }

int32_t cyrt_op_non_max_suppression(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                    const cyrt_attr *attr) {
  static const char tag;
  const cyrt_tensor *boxes = &in[0], *scores = &in[1];
  int64_t *block = NULL;
  uint64_t bytes = 0;
  (void)n_out;
  if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 || boxes->dims[0] != scores->dims[0] ||
      boxes->dims[1] != scores->dims[2] || boxes->dims[1] > INT32_MAX)
    return cyrt_fail(
        frame, CYTO_SHAPE_MISMATCH,
        "NonMaxSuppression: expected boxes [batch,n,4] and scores [batch,class,n], found ranks %lld and %lld",
        (long long)boxes->rank, (long long)scores->rank);
  nms_task t = {.boxes = boxes->data,
                .scores = scores->data,
                .n = boxes->dims[1],
                .classes = scores->dims[1],
                .limit = has_input(in, n_in, 2) ? *(const int64_t *)in[2].data : 0,
                .iou_threshold = has_input(in, n_in, 3) ? *(const float *)in[3].data : 0,
                .has_score_threshold = has_input(in, n_in, 4),
                .centered = attr[0].i != 0};
  if (t.has_score_threshold)
    t.score_threshold = *(const float *)in[4].data;
  t.limit = t.limit < 0 ? 0 : t.limit > t.n ? t.n : t.limit;
  if (out->data)
    block = cyrt_stash_take(frame, &tag, &bytes);
  int32_t status = block ? CYTO_OK : nms_find(frame, &t, boxes->dims[0], &block, &bytes);
  if (status)
    return status;
  if (!out->data) {
    out->rank = 2;
    out->dims[0] = block[0];
    out->dims[1] = 3;
    cyrt_stash_put(frame, &tag, block, bytes);
  } else {
    memcpy(out->data, block + 1, (size_t)block[0] * 3 * sizeof(int64_t));
    cyrt_scratch_free(frame, block, bytes);
  }
  return CYTO_OK;
}
