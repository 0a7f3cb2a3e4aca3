/* SPDX-License-Identifier: Apache-2.0 */
/* loop_share.c - kernels that differ by numbers alone become one.
 *
 * In: a program, its kernels as lowering left them. Out: the same results by fewer kernels. Quantised layers of equal
 * shape have zero points, bounds and scales of their own; so have clips, leaky rectifiers and normalisations. The first
 * of such kernels reads what differs from arguments at its end (`param`), one for each dtype, numbers that differ in
 * the same way being one; launches of all of them bind a constant there. To know before editing: everything
 * that is not such a number (sizes, strides, which arguments there are) has to be equal, and numbers that would change
 * the code are left alone (is_hole in loop_equal.c).
 */
#include "loop_int.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMS = 24, MAX_CLASSES = 8 };

/* A kernel, and the others that are equal to it but for numbers. */
typedef struct member {
  cy_kernel *k;
  cy_words words;
  uint64_t hash, key;
  bool has_key, gone; /* gone: another one is launched instead */
  uint32_t first;      /* index of the first one equal to it */
} member;

/* What differs: of each hole the parameter that stands for it, or -1. */
typedef struct params {
  member **m; /* [n], the first one being what is kept */
  uint32_t n;
  int32_t *of_hole;
  struct param {
    size_t hole; /* the first that it stands for */
    int cls, index;
  } param[MAX_PARAMS];
  int nparams;
  /* an argument for each dtype, and for whole numbers apart */
  struct cls {
    cy_dtype dtype;
    bool whole;
    cy_karg arg;
    int count;
  } cls[MAX_CLASSES];
  int nclasses;
} params;

static const cy_expr_info *value_at(const member *m, size_t hole) {
  return cy_expr_of(m->k, m->words.hole[hole].constant);
}

/* ---- which numbers differ ---- */

static bool differs(const params *q, size_t hole) {
  for (uint32_t i = 1; i < q->n; i++)
    if (value_at(q->m[i], hole)->c.u != value_at(q->m[0], hole)->c.u)
      return true;
  return false;
}

static bool same_in_all(const params *q, size_t a, size_t b) {
  if (value_at(q->m[0], a)->dtype != value_at(q->m[0], b)->dtype)
    return false;
  for (uint32_t i = 0; i < q->n; i++)
    if (value_at(q->m[i], a)->c.u != value_at(q->m[i], b)->c.u)
      return false;
  return true;
}

static int class_of(params *q, size_t hole) {
  const cy_expr_info *x = value_at(q->m[0], hole);
  bool whole = true;
  int i = 0;
  for (uint32_t j = 0; j < q->n; j++)
    whole &= cy_param_whole(value_at(q->m[j], hole));
  while (i < q->nclasses && (q->cls[i].dtype != x->dtype || q->cls[i].whole != whole))
    i++;
  if (i == q->nclasses && i < MAX_CLASSES)
    q->cls[q->nclasses++] = (struct cls){.dtype = x->dtype, .whole = whole};
  return i;
}

/* False: there is more than is worth it. */
static bool find_params(params *q) {
  for (size_t h = 0; h < q->m[0]->words.nholes; h++) {
    q->of_hole[h] = -1;
    if (!differs(q, h))
      continue;
    int i = 0;
    while (i < q->nparams && !same_in_all(q, q->param[i].hole, h))
      i++;
    q->of_hole[h] = i;
    if (i < q->nparams)
      continue;
    int cls = class_of(q, h);
    if (i == MAX_PARAMS || cls == MAX_CLASSES)
      return false;
    q->param[q->nparams++] = (struct param){h, cls, q->cls[cls].count++};
  }
  return true;
}

/* ---- the kernel that is kept ---- */

typedef struct rebuilder {
  const params *q;
  cy_kernel *k;
  cy_expr *memo; /* of expressions before */
} rebuilder;

static cy_expr load_param(const rebuilder *r, size_t hole) {
  const struct param *p = &r->q->param[r->q->of_hole[hole]];
  return cy_x_load(r->k, r->q->cls[p->cls].arg, cy_x_index(r->k, p->index));
}

/* What stands for the operand; 0: what stood there. */
static cy_expr param_at(const rebuilder *r, const cy_stmt *s, cy_expr user, int operand) {
  const cy_words *w = &r->q->m[0]->words;
  for (size_t h = 0; h < w->nholes; h++)
    if (r->q->of_hole[h] >= 0 && w->hole[h].user == user && w->hole[h].operand == operand &&
        (user || w->hole[h].stmt == s))
      return load_param(r, h);
  return 0;
}

/* As it stands but for the parameters: nothing is simplified, since all kernels of the group have this shape. */
static cy_expr rebuild(rebuilder *r, cy_expr e) {
  cy_expr_info x = *cy_expr_of(r->k, e);
  if (!x.n || r->memo[e])
    return x.n ? r->memo[e] : e;
  for (int i = 0; i < x.n; i++) {
    cy_expr by = param_at(r, NULL, e, i);
    x.arg[i] = by ? by : rebuild(r, x.arg[i]);
  }
  return r->memo[e] = cy_expr_intern(r->k, &x);
}

static void rebuild_list(rebuilder *r, cy_stmt *s) {
  for (; s; s = s->next) {
    if (s->offset)
      s->offset = rebuild(r, s->offset);
    cy_expr by = s->value ? param_at(r, s, 0, 0) : 0;
    if (s->value)
      s->value = by ? by : rebuild(r, s->value);
    rebuild_list(r, s->body);
  }
}

static void rebuild_kernel(params *q) {
  cy_kernel *k = q->m[0]->k;
  for (int i = 0; i < q->nclasses; i++) {
    q->cls[i].arg = cy_kernel_add_arg(k, CY_ARG_READ, q->cls[i].dtype, 0);
    k->args[q->cls[i].arg].param = true;
    k->args[q->cls[i].arg].whole = q->cls[i].whole;
  }
  rebuilder r = {q, k, CY_NEW_ARRAY(cy_graph_arena(k->g), cy_expr, cy_expr_count(k) + 1)};
  rebuild_list(&r, k->body);
}

/* ---- launches ---- */

/* The parameters of one class that kernel m has, as a buffer of the program. */
static uint32_t block_of(cy_program *p, const params *q, const member *m, int cls) {
  int64_t count = q->cls[cls].count, bytes = count * cy_dtype_of(q->cls[cls].dtype)->bits / 8;
  cy_type type = {.dtype = q->cls[cls].dtype, .rank = 1, .dim = {cy_dim_const(p->g, count)}};
  void *data = CY_NEW_ARRAY(cy_graph_arena(p->g), char, bytes);
  for (int i = 0; i < q->nparams; i++)
    if (q->param[i].cls == cls)
      cy_scalar_store(data, q->cls[cls].dtype, (uint64_t)q->param[i].index, value_at(m, q->param[i].hole)->c);
  cy_val v = cy_build_const(p->g, &type, data, (uint64_t)bytes);
  uint32_t constant = cy_program_add_constant(p, v, (uint64_t)bytes, "", NULL, NULL, 1);
  return cy_program_add_buffer(p, CY_BUF_CONST, constant, cy_dim_const(p->g, bytes));
}

static void launch_instead(cy_program *p, cy_step *s, const cy_kernel *old, cy_kernel *k, const uint32_t *blocks,
                           int n) {
  for (; s; s = s->next) {
    if (s->kind == CY_STEP_LAUNCH && s->kernel == old) {
      cy_bind *bind = CY_NEW_ARRAY(cy_graph_arena(p->g), cy_bind, s->nbind + (uint32_t)n);
      memcpy(bind, s->bind, s->nbind * sizeof *bind);
      for (int i = 0; i < n; i++)
        bind[s->nbind + (uint32_t)i] = (cy_bind){blocks[i], 0};
      s->bind = bind;
      s->nbind += (uint32_t)n;
      s->kernel = k;
    }
    launch_instead(p, s->then_steps, old, k, blocks, n);
    launch_instead(p, s->else_steps, old, k, blocks, n);
  }
}

static bool share(cy_program *p, params *q) {
  uint32_t blocks[MAX_CLASSES];
  if (!find_params(q))
    return false;
  for (uint32_t i = 0; i < q->n; i++) { /* first the one kept: later its launches are those of others, too */
    for (int c = 0; c < q->nclasses; c++)
      blocks[c] = block_of(p, q, q->m[i], c);
    launch_instead(p, p->steps, q->m[i]->k, q->m[0]->k, blocks, q->nclasses);
  }
  rebuild_kernel(q);
  return true;
}

/* ---- groups ---- */

typedef struct sharer {
  uint64_t (*share_key)(void *ctx, cy_kernel *k);
  void *ctx;
} sharer;

static uint64_t key_of(const sharer *s, member *m) {
  if (!m->has_key)
    m->key = s->share_key(s->ctx, m->k);
  m->has_key = true;
  return m->key;
}

static bool alike(const sharer *s, member *a, member *b) {
  return a->hash == b->hash && a->words.n == b->words.n && a->words.nholes == b->words.nholes &&
         memcmp(a->words.v, b->words.v, a->words.n * sizeof *a->words.v) == 0 && key_of(s, a) == key_of(s, b);
}

/* The first kernel that all[i] is equal to but for numbers; itself, if there is none. */
static uint32_t first_alike(const sharer *s, member *all, uint32_t i) {
  for (uint32_t j = 0; j < i; j++)
    if (all[j].first == j && alike(s, &all[j], &all[i]))
      return j;
  return i;
}

static void share_group(cy_program *p, member *all, uint32_t n, uint32_t first, member **group) {
  params q = {.m = group};
  for (uint32_t i = first; i < n; i++)
    if (all[i].first == first)
      group[q.n++] = &all[i];
  if (q.n < 2)
    return;
  q.of_hole = CY_NEW_ARRAY(cy_graph_arena(p->g), int32_t, all[first].words.nholes);
  bool done = share(p, &q);
  for (uint32_t i = 1; i < q.n; i++)
    group[i]->gone = done;
}

void cy_program_share_kernels(cy_program *p, uint64_t (*share_key)(void *ctx, cy_kernel *k), void *ctx) {
  sharer s = {share_key, ctx};
  uint32_t n = p->nkernels;
  member *all = calloc(n + 1, sizeof *all), **group = calloc(n + 1, sizeof *group);
  if (!all || !group)
    cy_no_memory();
  for (uint32_t i = 0; i < n; i++) {
    all[i].k = p->kernels[i];
    all[i].words = cy_kernel_words(all[i].k, true);
    all[i].hash = cy_words_hash(&all[i].words);
    all[i].first = first_alike(&s, all, i);
  }
  p->nkernels = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (all[i].first == i)
      share_group(p, all, n, i, group);
    if (!all[i].gone)
      p->kernels[p->nkernels++] = all[i].k;
  }
  for (uint32_t i = 0; i < n; i++)
    cy_words_free(&all[i].words);
  free(all);
  free(group);
}
