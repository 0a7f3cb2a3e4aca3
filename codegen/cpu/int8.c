/* int8.c - matrix products and convolutions of 8-bit integers: the plan and the tasks; the forms are told in int8.h.
 *
 * Comes in: a cy_int8_desc. Goes out: one phase, or two where b has to be packed at run time first. A task is (matrix
 * or group of channels, block of rows, block of panels): it copies its rows of a to scratch (int8_rows.c), then, by
 * groups of panels that stay in cache, tile by tile, runs micro-kernels over all of k and the epilogue over long runs
 * of each row. A row of a convolution is an output pixel; its k are the taps, padding included. Sums are exact, so
 * blocks need no care about the order of adding.
 */
#include "int8.h"

#include <stdio.h>

typedef struct plan {
  const cy_int8_desc *d;
  const char *name;
  int a_slot, b_slot, scratch_slot, shared_slot;
  bool packed;
  cy_int8_form form;
  cy_tile tile;
  int64_t nr, mb, nb;
  cy_axis axis[3];
  int64_t c, taps, groups; /* convolution: channels of a group, taps */
  int64_t n, k;            /* 0: not known */
  int64_t rows;
  bool dense; /* rows follow each other without gaps, as do their k */
} plan;

static int64_t known(cy_csize s) { return s.slot < 0 ? s.value : 0; }
static bool is_const(cy_csize s, int64_t v) { return s.slot < 0 && s.value == v; }

/* ---- the plan ---- */

/* Does the output of a convolution of one tap lie on the input pixel by pixel? */
static bool pixels_coincide(const plan *p) {
  int64_t stride = p->c;
  for (int i = 2; i >= 0; i--) {
    const cy_axis *a = &p->axis[i];
    if (a->count != 1 || a->step != 1 || a->start != 0 || !known(a->in) || known(a->in) != known(a->out) ||
        (known(a->in) > 1 && !is_const(a->in_stride, stride)))
      return false;
    stride *= known(a->in);
  }
  return p->groups == 1 && (is_const(p->d->window.batch, 1) || is_const(p->d->window.in_n, stride));
}

static void plan_conv(plan *p) {
  const cy_conv_desc *w = &p->d->window;
  cy_conv_axes(w, 0, p->axis);
  p->groups = w->groups;
  p->c = w->cin / w->groups;
  p->n = w->cout / w->groups;
  p->taps = p->axis[0].count * p->axis[1].count * p->axis[2].count;
  p->k = p->taps * p->c;
  p->rows = known(w->batch);
  for (int i = 0; i < 3; i++)
    p->rows *= known(p->axis[i].out);
  p->dense = pixels_coincide(p);
}

static void plan_gemm(plan *p) {
  const cy_gemm_desc *g = &p->d->gemm;
  p->groups = 1;
  for (int i = 0; i < g->n_batch; i++)
    p->groups *= known(g->batch[i]) ? known(g->batch[i]) : 1;
  p->n = known(g->n);
  p->k = p->c = known(g->k);
  p->taps = 1;
  p->rows = known(g->m);
  p->dense = p->k && is_const(g->ak, 1) && is_const(g->am, p->k);
}

/* What a step of k takes a tile of mr rows. Pairs on vectors of 256 bits, two of them a row, are measured on Zen 3: six
 * rows keep so many registers busy that their multiplications wait for each other. */
static double step_cost(const cy_cg *cg, const plan *p, unsigned mr) {
  bool uneven = !p->form.fours && !cg->avx512 && p->tile.nv == 2 && mr == 6;
  return uneven ? 8.4 : mr + (p->tile.nv == 2 ? 1.3 : 0.5);
}

/* The tile's rows that take the least time, those of the last tile that idle included. */
static unsigned tile_rows(const cy_cg *cg, const plan *p) {
  unsigned best = p->tile.mr;
  double least = 0;
  for (unsigned mr = p->tile.mr; mr + 2 >= p->tile.mr && mr > 1; mr--) {
    double tiles = p->rows ? (double)((p->rows + mr - 1) / mr) : 1.0 / mr, cost = tiles * step_cost(cg, p, mr);
    if (least == 0 || cost < least * 0.98) {
      least = cost;
      best = mr;
    }
  }
  return best;
}

static plan plan_of(const cy_cg *cg, const cy_int8_desc *d) {
  plan p = {.d = d, .name = d->conv ? d->window.name : d->gemm.name};
  p.a_slot = d->conv ? d->window.a_slot : d->gemm.a_slot;
  p.b_slot = d->conv ? d->window.b_slot : d->gemm.b_slot;
  p.scratch_slot = d->conv ? d->window.scratch_slot : d->gemm.scratch_slot;
  p.shared_slot = d->conv ? d->window.shared_slot : d->gemm.shared_slot;
  p.packed = d->conv || d->gemm.b_packed;
  bool narrow = p.packed && d->b_bits == 8 && d->b_signed;
  p.form.fours = narrow && (cg->vnni || cg->vnni_spelled);
  p.form.wide = !narrow;
  p.form.step = p.form.fours ? 4 : 2;
  if (d->conv)
    plan_conv(&p);
  else
    plan_gemm(&p);
  p.tile = cy_tile_choose(cg, p.rows, p.n);
  if (p.rows != 1)
    p.tile.mr = tile_rows(cg, &p);
  p.nr = (int64_t)p.tile.nv * cg->W;
  int64_t k = p.k ? p.k : 512, most = 192 * 1024 / (k * 2) / p.tile.mr * p.tile.mr;
  cy_blocks b = cy_blocks_choose(cg, p.tile, p.groups, p.rows, p.n ? (p.n + p.nr - 1) / p.nr : 0, (k + 1) / 2);
  p.nb = b.nb;
  p.mb = b.mb <= most ? b.mb : most > p.tile.mr ? most : p.tile.mr;
  return p;
}

cy_int8_layout cy_int8_layout_of(const cy_cg *cg, const cy_int8_desc *d, int64_t matrices) {
  if (cy_int8_depthwise_possible(d))
    return cy_int8_depthwise_layout(cg, d);
  plan p = plan_of(cg, d);
  cy_int8_layout l = {.matrices = matrices,
                      .n = p.n,
                      .taps = p.taps,
                      .c = p.c,
                      .nr = (unsigned)p.nr,
                      .step = p.form.step,
                      .wide = p.form.wide,
                      .sums = p.form.fours};
  int64_t panels = (l.n + p.nr - 1) / p.nr, groups = (p.k + l.step - 1) / l.step;
  l.matrix_bytes = panels * groups * cy_int8_group_bytes(p.form, p.nr);
  l.bytes = matrices * (l.matrix_bytes + (l.sums ? l.n * 4 : 0));
  return l;
}

const char *cy_int8_algorithm(const cy_cg *cg, const cy_int8_desc *d) {
  if (cy_int8_depthwise_possible(d))
    return "conv int8 depthwise";
  plan p = plan_of(cg, d);
  if (d->conv)
    return p.form.fours ? "conv int8 fours" : "conv int8 pairs";
  return p.form.fours ? "gemm int8 fours" : p.packed ? "gemm int8 pairs" : "gemm int8";
}

/* ---- sizes ---- */

static V k_size(cy_cg *cg, const plan *p) { return p->d->conv ? cy_i64(cg, p->k) : cy_size(cg, p->d->gemm.k); }
static V k_groups(cy_cg *cg, const plan *p) { return cy_ceil_div(cg, k_size(cg, p), cy_i64(cg, p->form.step)); }
static V row_bytes(cy_cg *cg, const plan *p) { return cy_mulc(cg, k_groups(cg, p), 4); }
static V columns(cy_cg *cg, const plan *p) { return p->d->conv ? cy_i64(cg, p->n) : cy_size(cg, p->d->gemm.n); }
static V panels(cy_cg *cg, const plan *p) { return cy_ceil_div(cg, columns(cg, p), cy_i64(cg, p->nr)); }

static V rows(cy_cg *cg, const plan *p) {
  if (!p->d->conv)
    return cy_size(cg, p->d->gemm.m);
  V n = cy_size(cg, p->d->window.batch);
  for (int i = 0; i < 3; i++)
    n = cy_mul(cg, n, cy_size(cg, p->axis[i].out));
  return n;
}

/* How many products there are, of all batch axes or groups. */
static V products(cy_cg *cg, const plan *p) {
  V n = cy_i64(cg, p->d->conv ? p->groups : 1);
  for (int i = 0; !p->d->conv && i < p->d->gemm.n_batch; i++)
    n = cy_mul(cg, n, cy_size(cg, p->d->gemm.batch[i]));
  return n;
}

static V b_matrices(cy_cg *cg, const plan *p) {
  V n = cy_i64(cg, 1);
  for (int i = 0; i < p->d->gemm.n_batch; i++)
    if (!is_const(p->d->gemm.b_batch[i], 0))
      n = cy_mul(cg, n, cy_size(cg, p->d->gemm.batch[i]));
  return n;
}

static V panel_bytes(cy_cg *cg, const plan *p) {
  return cy_mulc(cg, k_groups(cg, p), cy_int8_group_bytes(p->form, p->nr));
}
static V matrix_bytes(cy_cg *cg, const plan *p) { return cy_mul(cg, panels(cg, p), panel_bytes(cg, p)); }
static V row_blocks(cy_cg *cg, const plan *p) { return cy_ceil_div(cg, rows(cg, p), cy_i64(cg, p->mb)); }
static V column_blocks(cy_cg *cg, const plan *p) { return cy_ceil_div(cg, panels(cg, p), cy_i64(cg, p->nb)); }

static V task_count(cy_cg *cg, void *ctx) {
  return cy_mul(cg, products(cg, ctx), cy_mul(cg, row_blocks(cg, ctx), column_blocks(cg, ctx)));
}
static V worker_bytes(cy_cg *cg, void *ctx) {
  const plan *p = ctx;
  return cy_round64(cg, cy_mulc(cg, row_bytes(cg, p), p->mb));
}
static V pack_count(cy_cg *cg, void *ctx) { return cy_mul(cg, b_matrices(cg, ctx), panels(cg, ctx)); }
static V shared_bytes(cy_cg *cg, void *ctx) {
  return ((plan *)ctx)->packed ? cy_i64(cg, 0) : cy_mul(cg, b_matrices(cg, ctx), matrix_bytes(cg, ctx));
}

/* ---- packing b at run time: i16, less its zero points ---- */

static V widened(cy_cg *cg, const cy_int8_desc *d, V v, unsigned lanes) {
  LLVMTypeRef type = lanes ? LLVMVectorType(cg->i16, lanes) : cg->i16;
  if (d->b_bits == 16)
    return v;
  return d->b_signed ? LLVMBuildSExt(cg->b, v, type, "") : LLVMBuildZExt(cg->b, v, type, "");
}

/* `lanes` elements of b, or of its zero points, at element `at`. */
static V load_wide(cy_cg *cg, const cy_int8_desc *d, V p, V at, unsigned lanes) {
  LLVMTypeRef element = d->b_bits == 16 ? cg->i16 : cg->i8;
  V v = cy_load(cg, lanes ? LLVMVectorType(element, lanes) : element, cy_gep(cg, p, cy_mulc(cg, at, d->b_bits / 8)), 1);
  return widened(cg, d, v, lanes);
}

static V zeros_of(cy_cg *cg, const plan *p, V col, unsigned lanes) {
  const cy_int8_desc *d = p->d;
  if (d->b_zero_slot < 0)
    return LLVMConstNull(lanes ? LLVMVectorType(cg->i16, lanes) : cg->i16);
  V at = cy_mulc(cg, col, d->b_zero_step), slot = cy_arg_ptr(cg, d->b_zero_slot);
  if (d->b_zero_step || !lanes)
    return load_wide(cg, d, slot, at, lanes);
  return cy_splat(cg, load_wide(cg, d, slot, at, 0), lanes);
}

typedef struct packer {
  const plan *p;
  V src, dst;      /* of the panel's first column; of the panel */
  V col, valid, k; /* first column, columns */
  V bk, bn;
} packer;

/* Pair g of k for `lanes` columns (0: one column) from j on; the second k is absent in the last pair of an odd k. */
static void emit_pack_pair(cy_cg *cg, const packer *q, V g, V j, unsigned lanes) {
  const plan *p = q->p;
  V k0 = cy_mulc(cg, g, 2), k1 = cy_addc(cg, k0, 1), absent = cy_icmp(cg, LLVMIntSGE, k1, q->k);
  V zeros = zeros_of(cg, p, cy_add(cg, q->col, j), lanes), v[2];
  for (int i = 0; i < 2; i++) {
    V at = cy_add(cg, cy_mul(cg, i ? cy_select(cg, absent, k0, k1) : k0, q->bk), cy_mul(cg, j, q->bn));
    v[i] = LLVMBuildSub(cg->b, load_wide(cg, p->d, q->src, at, lanes), zeros, "");
  }
  v[1] = cy_select(cg, absent, LLVMConstNull(LLVMTypeOf(v[1])), v[1]);
  V to = cy_gep(cg, q->dst, cy_mulc(cg, cy_add(cg, cy_mulc(cg, g, p->nr), j), 4));
  if (!lanes) {
    cy_store(cg, v[0], to, 2);
    cy_store(cg, v[1], cy_gepc(cg, to, 2), 2);
    return;
  }
  int mix[128];
  for (unsigned i = 0; i < lanes; i++) {
    mix[2 * i] = (int)i;
    mix[2 * i + 1] = (int)(lanes + i);
  }
  cy_store(cg, cy_shuffle(cg, v[0], v[1], mix, 2 * lanes), to, 2);
}

static void emit_pack_panel(cy_cg *cg, const packer *q) {
  const plan *p = q->p;
  int64_t unit = 0;
  bool rows_dense = cy_is_const(q->bn, &unit) && unit == 1;
  V NR = cy_i64(cg, p->nr), zero = cy_i64(cg, 0);
  cy_loop g, j;
  cy_loop_begin(cg, &g, zero, cy_ceil_div(cg, q->k, cy_i64(cg, 2)), cy_i64(cg, 1), NULL, 0);
  V from = zero;
  for (unsigned lanes = 2 * cg->W; rows_dense && lanes >= cg->W; lanes /= 2) {
    V end = cy_add(cg, from, cy_mulc(cg, cy_div(cg, cy_sub(cg, q->valid, from), cy_i64(cg, lanes)), lanes));
    cy_loop_begin(cg, &j, from, end, cy_i64(cg, lanes), NULL, 0);
    emit_pack_pair(cg, q, g.iv, j.iv, lanes);
    cy_loop_end(cg, &j, NULL);
    from = end;
  }
  cy_loop_begin(cg, &j, from, q->valid, cy_i64(cg, 1), NULL, 0);
  emit_pack_pair(cg, q, g.iv, j.iv, 0);
  cy_loop_end(cg, &j, NULL);
  cy_loop_begin(cg, &j, q->valid, NR, cy_i64(cg, 1), NULL, 0);
  V to = cy_gep(cg, q->dst, cy_mulc(cg, cy_add(cg, cy_mulc(cg, g.iv, p->nr), j.iv), 4));
  cy_store(cg, LLVMConstNull(cg->i32), to, 4);
  cy_loop_end(cg, &j, NULL);
  cy_loop_end(cg, &g, NULL);
}

/* Element offset of the matrix with this number; broadcast axes do not count. */
static V matrix_offset(cy_cg *cg, const plan *p, V number) {
  const cy_gemm_desc *g = &p->d->gemm;
  V offset = cy_i64(cg, 0);
  for (int i = g->n_batch - 1; i >= 0; i--) {
    if (is_const(g->b_batch[i], 0))
      continue;
    V size = cy_size(cg, g->batch[i]);
    offset = cy_add(cg, offset, cy_mul(cg, cy_mod(cg, number, size), cy_size(cg, g->b_batch[i])));
    number = cy_div(cg, number, size);
  }
  return offset;
}

static void emit_pack(cy_cg *cg, const plan *p, const char *name) {
  const cy_gemm_desc *g = &p->d->gemm;
  cy_kernel_begin(cg, name, 0);
  V np = panels(cg, p);
  cy_loop t;
  cy_loop_begin(cg, &t, cg->begin, cg->end, cy_i64(cg, 1), NULL, 0);
  V matrix = cy_div(cg, t.iv, np), panel = cy_mod(cg, t.iv, np), col = cy_mulc(cg, panel, p->nr);
  packer q = {.p = p, .col = col, .k = k_size(cg, p), .bk = cy_size(cg, g->bk), .bn = cy_size(cg, g->bn)};
  V from = cy_add(cg, matrix_offset(cg, p, matrix), cy_mul(cg, col, q.bn));
  q.src = cy_gep(cg, cy_arg_ptr(cg, p->b_slot), cy_mulc(cg, from, p->d->b_bits / 8));
  q.dst = cy_gep(cg, cy_arg_ptr(cg, p->shared_slot),
                 cy_add(cg, cy_mul(cg, matrix, matrix_bytes(cg, p)), cy_mul(cg, panel, panel_bytes(cg, p))));
  q.valid = cy_imin(cg, cy_i64(cg, p->nr), cy_sub(cg, columns(cg, p), col));
  emit_pack_panel(cg, &q);
  cy_loop_end(cg, &t, NULL);
  cy_fn_end(cg, NULL);
}

/* ---- one task's place ---- */

typedef struct frame {
  const plan *p;
  cy_int8_rows convert;
  V scratch, row_bytes, row_table, panel_bytes;
  /* of the task */
  V row0, product, a, b, sums, col0;
  V idx[CY_GEMM_BATCH];
} frame;

/* Output pixel `flat` of a convolution: image, then the axes. */
static void split_pixel(cy_cg *cg, const plan *p, V flat, V *image, V *o) {
  for (int i = 2; i >= 0; i--) {
    V size = cy_size(cg, p->axis[i].out);
    bool whole = is_const(p->axis[i].out, 1);
    o[i] = whole ? cy_i64(cg, 0) : cy_mod(cg, flat, size);
    flat = whole ? flat : cy_div(cg, flat, size);
  }
  *image = is_const(p->d->window.batch, 1) ? cy_i64(cg, 0) : flat;
}

static void row_index(void *ctx, cy_cg *cg, V row, V *idx) {
  const frame *f = ctx;
  const plan *p = f->p;
  row = cy_add(cg, f->row0, row);
  if (p->d->conv) {
    V o[3];
    split_pixel(cg, p, row, &idx[0], o);
    for (int i = 0; i < p->d->window.n_spatial; i++)
      idx[1 + i] = o[3 - p->d->window.n_spatial + i];
    return;
  }
  int n = p->d->gemm.n_batch;
  for (int i = 0; i < n; i++)
    idx[i] = f->idx[i];
  idx[n] = row;
}

static V dot_strides(cy_cg *cg, const frame *f, const cy_csize *strides) {
  V sum = cy_i64(cg, 0);
  for (int i = 0; i < f->p->d->gemm.n_batch; i++)
    sum = cy_add(cg, sum, cy_mul(cg, f->idx[i], cy_size(cg, strides[i])));
  return sum;
}

/* Which of the packed matrices. */
static V matrix_number(cy_cg *cg, const frame *f) {
  const cy_gemm_desc *g = &f->p->d->gemm;
  if (f->p->d->conv)
    return f->product;
  if (f->p->packed)
    return dot_strides(cg, f, g->b_batch);
  V number = cy_i64(cg, 0);
  for (int i = 0; i < g->n_batch; i++)
    if (!is_const(g->b_batch[i], 0))
      number = cy_add(cg, cy_mul(cg, number, cy_size(cg, g->batch[i])), f->idx[i]);
  return number;
}

static void find_operands(cy_cg *cg, frame *f) {
  const plan *p = f->p;
  V flat = f->product, a = cy_arg_ptr(cg, p->a_slot);
  for (int i = p->d->gemm.n_batch - 1; !p->d->conv && i >= 0; i--) {
    V size = cy_size(cg, p->d->gemm.batch[i]);
    f->idx[i] = i ? cy_mod(cg, flat, size) : flat;
    flat = i ? cy_div(cg, flat, size) : flat;
  }
  f->a = cy_gep(cg, a, p->d->conv ? cy_mulc(cg, f->product, p->c) : dot_strides(cg, f, p->d->gemm.a_batch));
  V number = matrix_number(cg, f), all = cy_arg_ptr(cg, p->packed ? p->b_slot : p->shared_slot);
  f->b = cy_gep(cg, all, cy_mul(cg, number, matrix_bytes(cg, p)));
  f->col0 = p->d->conv ? cy_mulc(cg, f->product, p->n) : cy_i64(cg, 0);
  if (p->form.fours) { /* column sums lie behind all matrices; those of a convolution are indexed by the absolute
                          channel */
    V matrices = p->d->conv ? cy_i64(cg, p->groups) : b_matrices(cg, p);
    V first = p->d->conv ? cy_i64(cg, 0) : cy_mul(cg, number, columns(cg, p));
    f->sums = cy_gep(cg, all, cy_add(cg, cy_mul(cg, matrices, matrix_bytes(cg, p)), cy_mulc(cg, first, 4)));
  }
}

/* ---- rows of a ---- */

static void emit_gemm_row(cy_cg *cg, const frame *f, V row, V dst) {
  const cy_gemm_desc *g = &f->p->d->gemm;
  V src = cy_gep(cg, f->a, cy_mul(cg, cy_add(cg, f->row0, row), cy_size(cg, g->am)));
  if (is_const(g->ak, 1) || is_const(g->k, 1))
    cy_int8_run(cg, &f->convert, dst, src, k_size(cg, f->p));
  else
    cy_int8_gather(cg, &f->convert, dst, src, k_size(cg, f->p), cy_size(cg, g->ak));
}

static V inside(cy_cg *cg, V i, const cy_axis *a) { return cy_icmp(cg, LLVMIntULT, i, cy_size(cg, a->in)); }

/* The taps of one kernel row, one by one. line: the input row; x: input column of the first tap; ok: the row exists. */
static void emit_taps(cy_cg *cg, const frame *f, V dst, V line, V ok, V x) {
  const plan *p = f->p;
  const cy_axis *w = &p->axis[2];
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), cy_i64(cg, w->count), cy_i64(cg, 1), NULL, 0);
  V column = cy_add(cg, x, cy_mulc(cg, l.iv, w->inc)), c = cy_i64(cg, p->c);
  V to = cy_gep(cg, dst, cy_int8_bytes(cg, p->form, cy_mulc(cg, l.iv, p->c)));
  cy_if s;
  cy_if_begin(cg, &s, LLVMBuildAnd(cg->b, ok, inside(cg, column, w), ""));
  cy_int8_run(cg, &f->convert, to, cy_gep(cg, line, cy_mul(cg, column, cy_size(cg, w->in_stride))), c);
  cy_if_else(cg, &s);
  cy_int8_blank(cg, &f->convert, to, c);
  cy_if_end(cg, &s);
  cy_loop_end(cg, &l, NULL);
}

static void emit_kernel_row(cy_cg *cg, const frame *f, V dst, V line, V ok, V x) {
  const plan *p = f->p;
  const cy_axis *w = &p->axis[2];
  if (w->count == 1 || w->inc != 1 || !is_const(w->in_stride, p->c)) {
    emit_taps(cg, f, dst, line, ok, x);
    return;
  }
  V left = cy_icmp(cg, LLVMIntSGE, x, cy_i64(cg, 0));
  V right = cy_icmp(cg, LLVMIntSLE, cy_addc(cg, x, w->count), cy_size(cg, w->in));
  cy_if s;
  cy_if_begin(cg, &s, LLVMBuildAnd(cg->b, ok, LLVMBuildAnd(cg->b, left, right, ""), ""));
  cy_int8_run(cg, &f->convert, dst, cy_gep(cg, line, cy_mulc(cg, x, p->c)), cy_i64(cg, w->count * p->c));
  cy_if_else(cg, &s);
  emit_taps(cg, f, dst, line, ok, x);
  cy_if_end(cg, &s);
}

static void emit_pixel(cy_cg *cg, const frame *f, V row, V dst) {
  const plan *p = f->p;
  V image, o[3], ok = LLVMConstInt(cg->i1, 1, 0), number = cy_i64(cg, 0);
  split_pixel(cg, p, cy_add(cg, f->row0, row), &image, o);
  V line = cy_gep(cg, f->a, cy_mul(cg, image, cy_size(cg, p->d->window.in_n)));
  cy_loop l[2];
  for (int i = 0; i < 2; i++) {
    const cy_axis *a = &p->axis[i];
    cy_loop_begin(cg, &l[i], cy_i64(cg, 0), cy_i64(cg, a->count), cy_i64(cg, 1), NULL, 0);
    V at = cy_add(cg, cy_mulc(cg, o[i], a->step), cy_addc(cg, cy_mulc(cg, l[i].iv, a->inc), a->start));
    ok = LLVMBuildAnd(cg->b, ok, inside(cg, at, a), "");
    line = cy_gep(cg, line, cy_mul(cg, at, cy_size(cg, a->in_stride)));
    number = cy_add(cg, cy_mulc(cg, number, a->count), l[i].iv);
  }
  const cy_axis *w = &p->axis[2];
  V to = cy_gep(cg, dst, cy_int8_bytes(cg, p->form, cy_mulc(cg, number, w->count * p->c)));
  emit_kernel_row(cg, f, to, line, ok, cy_addc(cg, cy_mulc(cg, o[2], w->step), w->start));
  cy_loop_end(cg, &l[1], NULL);
  cy_loop_end(cg, &l[0], NULL);
}

static void emit_rows(cy_cg *cg, const frame *f, V count) {
  const plan *p = f->p;
  if (p->dense && p->k % p->form.step == 0) {
    V src = cy_gep(cg, f->a, cy_mulc(cg, f->row0, p->k));
    cy_int8_run(cg, &f->convert, f->scratch, src, cy_mulc(cg, count, p->k));
    return;
  }
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), count, cy_i64(cg, 1), NULL, 0);
  V dst = cy_gep(cg, f->scratch, cy_mul(cg, r.iv, f->row_bytes));
  if (p->d->conv)
    emit_pixel(cg, f, r.iv, dst);
  else
    emit_gemm_row(cg, f, r.iv, dst);
  cy_loop_end(cg, &r, NULL);
}

/* ---- the product of a task ---- */

/* The epilogue on i32 sums; for fours, less what zero point and shift have added. */
typedef struct finish {
  const cy_epilogue *inner;
  const frame *f;
} finish;

static void finish_emit(void *ctx, cy_cg *cg, V acc, unsigned lanes, const V *idx) {
  const finish *q = ctx;
  const plan *p = q->f->p;
  LLVMTypeRef type = LLVMVectorType(cg->i32, lanes);
  V v = LLVMBuildBitCast(cg->b, acc, type, "");
  if (p->form.fours) {
    V col = idx[p->d->conv ? 1 + p->d->window.n_spatial : p->d->gemm.n_batch + 1];
    V sums = cy_load(cg, type, cy_gep(cg, q->f->sums, cy_mulc(cg, col, 4)), 4);
    V zero = cy_splat(cg, LLVMBuildZExt(cg->b, q->f->convert.zero, cg->i32, ""), lanes);
    v = LLVMBuildSub(cg->b, v, LLVMBuildMul(cg->b, zero, sums, ""), "");
  }
  q->inner->emit(q->inner->ctx, cg, v, lanes, idx);
}

static const cy_epilogue *epilogue_of(const plan *p) {
  return p->d->conv ? &p->d->window.epilogue : &p->d->gemm.epilogue;
}

/* Panels done for a tile of rows before the next: their weights stay in the second-level cache. */
static int64_t group_choose(const plan *p) {
  int64_t bytes = (p->k ? p->k : 512) * p->nr * (p->form.wide ? 2 : 1), group = 160 * 1024 / bytes, most = 256 / p->nr;
  group = group < most ? group : most;
  group = group < p->nb ? group : p->nb;
  return group < 1 ? 1 : group;
}

/* Panel q for a tile of rows; the last one has a kernel of its own where fewer vectors do. */
static void emit_panel(cy_cg *cg, const frame *f, V q, V a, V c, V ldc) {
  const plan *p = f->p;
  V fn = cy_int8_kernel(cg, p->form, p->tile.mr, p->tile.nv, p->nr);
  unsigned last = p->n ? (unsigned)((p->n % p->nr + cg->W - 1) / cg->W) : 0;
  if (last && last < p->tile.nv) {
    V narrow = cy_icmp(cg, LLVMIntEQ, q, cy_i64(cg, p->n / p->nr));
    fn = cy_select(cg, narrow, cy_int8_kernel(cg, p->form, p->tile.mr, last, p->nr), fn);
  }
  V args[6] = {a, f->row_table, cy_gep(cg, f->b, cy_mul(cg, q, f->panel_bytes)), c, ldc, k_groups(cg, p)};
  LLVMTypeRef type = LLVMGlobalGetValueType(cy_int8_kernel(cg, p->form, p->tile.mr, p->tile.nv, p->nr));
  LLVMBuildCall2(cg->b, type, fn, args, 6, "");
}

static void emit_product(cy_cg *cg, const frame *f, V count, V p0, V p1) {
  const plan *p = f->p;
  int64_t group = group_choose(p);
  V ldc = cy_i64(cg, group * p->nr * 4), sums = cy_alloca(cg, p->tile.mr * group * p->nr * 4),
    MR = cy_i64(cg, p->tile.mr);
  finish fin = {epilogue_of(p), f};
  cy_epilogue epilogue = {.emit = finish_emit, .ctx = &fin, .wide = p->n >= 4 * (int64_t)cg->W ? 4 : 0};
  cy_rows index = {row_index, (void *)f,
                   p->d->conv ? 1 + (unsigned)p->d->window.n_spatial : (unsigned)p->d->gemm.n_batch + 1};
  unsigned tail = p->n ? (unsigned)(p->n % cg->W) : cg->W;
  cy_loop g, r, q;
  cy_loop_begin(cg, &g, p0, p1, cy_i64(cg, group), NULL, 0);
  V end = cy_imin(cg, p1, cy_addc(cg, g.iv, group)), col = cy_mulc(cg, g.iv, p->nr);
  V cols = cy_sub(cg, cy_imin(cg, columns(cg, p), cy_mulc(cg, end, p->nr)), col);
  cy_loop_begin(cg, &r, cy_i64(cg, 0), count, MR, NULL, 0);
  V a = cy_gep(cg, f->scratch, cy_mul(cg, r.iv, f->row_bytes));
  cy_loop_begin(cg, &q, g.iv, end, cy_i64(cg, 1), NULL, 0);
  emit_panel(cg, f, q.iv, a, cy_gep(cg, sums, cy_mulc(cg, cy_sub(cg, q.iv, g.iv), p->nr * 4)), ldc);
  cy_loop_end(cg, &q, NULL);
  cy_epilogue_tile(cg, &epilogue, &index, sums, ldc, cy_imin(cg, MR, cy_sub(cg, count, r.iv)), r.iv, cols,
                   cy_add(cg, f->col0, col), tail);
  cy_loop_end(cg, &r, NULL);
  cy_loop_end(cg, &g, NULL);
}

static void emit_task(cy_cg *cg, frame *f, V task) {
  const plan *p = f->p;
  V rb = row_blocks(cg, p), cb = column_blocks(cg, p), both = cy_mul(cg, rb, cb), np = panels(cg, p);
  bool columns_outer = p->n && p->rows ? p->n > p->rows : p->n >= 256;
  V t = cy_mod(cg, task, both), inner = columns_outer ? rb : cb, slow = cy_div(cg, t, inner),
    fast = cy_mod(cg, t, inner);
  f->product = cy_div(cg, task, both);
  f->row0 = cy_mulc(cg, columns_outer ? fast : slow, p->mb);
  find_operands(cg, f);
  V count = cy_imin(cg, cy_i64(cg, p->mb), cy_sub(cg, rows(cg, p), f->row0));
  emit_rows(cg, f, count);
  V p0 = cy_mulc(cg, columns_outer ? slow : fast, p->nb);
  emit_product(cg, f, count, p0, cy_imin(cg, np, cy_addc(cg, p0, p->nb)));
}

void cy_int8_emit(cy_cg *cg, const cy_int8_desc *d, cy_contract_info *info) {
  if (cy_int8_depthwise_possible(d)) {
    cy_int8_depthwise_emit(cg, d, info);
    return;
  }
  plan p = plan_of(cg, d);
  const cy_epilogue *e = epilogue_of(&p);
  info->n_phases = 0;
  if (!p.packed) {
    char name[120];
    snprintf(name, sizeof name, "%s_pack", p.name);
    emit_pack(cg, &p, name);
    cy_phase_add(info, name, cy_size_fn(cg, name, "_tasks", pack_count, &p));
  }
  cy_kernel_begin(cg, p.name, 0);
  if (e->begin)
    e->begin(e->ctx, cg);
  frame f = {.p = &p, .convert = cy_int8_rows_begin(cg, p.form, d), .row_bytes = row_bytes(cg, &p)};
  f.scratch = cy_scratch(cg, p.scratch_slot, worker_bytes(cg, &p));
  f.row_table = cy_row_table(cg, p.tile.mr, f.row_bytes);
  f.panel_bytes = panel_bytes(cg, &p);
  cy_loop t;
  cy_loop_begin(cg, &t, cg->begin, cg->end, cy_i64(cg, 1), NULL, 0);
  emit_task(cg, &f, t.iv);
  cy_loop_end(cg, &t, NULL);
  cy_fn_end(cg, NULL);
  cy_phase_add(info, p.name, cy_size_fn(cg, p.name, "_tasks", task_count, &p));
  info->worker_bytes = cy_size_fn(cg, p.name, "_worker_bytes", worker_bytes, &p);
  info->shared_bytes = cy_size_fn(cg, p.name, "_shared_bytes", shared_bytes, &p);
}
