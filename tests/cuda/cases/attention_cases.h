/* SPDX-License-Identifier: Apache-2.0 */
/* attention_cases.h - attention kernels for the CUDA tests: types, sizes of heads, shared keys, what changes scores.
 *
 * Part of kernel_cases.h. Queries are [batch, heads, m, size], or [batch, m, heads, size] as projections leave them.
 */
#ifndef ATTENTION_CASES_H
#define ATTENTION_CASES_H

enum {
  SOFTCAP = 1,
  BIAS = 2,
  MASK = 4,
  CAUSAL = 8,
  LENGTHS = 16,
  PLAIN_WEIGHT = 32,
  TOKENS = 64,
  TURNED = 128,
  SYMBOLIC = 256,
  TF32 = 512,
  FILLED = 1024,  /* a block or two fill the device: they have many rows */
  HOPPER = 2048,  /* .. which is of sm_90a */
  FOUR = 4096,    /* the device is of sm_90a, and four blocks fill it */
  WIDE = 8192,    /* .. some more than these kernels have; else three */
  ZERO = 16384,   /* rows that see no key are 0, not NaN */
  WIDE_Q = 32768, /* queries are floats, which the kernel rounds to the type */
  WIDE_KV = 65536 /* .. keys and values are */
};

typedef struct attention_row {
  cy_dtype type;
  int64_t batch, heads, share, m, keys, size, columns; /* share: heads of q that have one of k */
  int what;
  int64_t window, past;
} attention_row;

/* Element of [batch, heads, m, keys] that the score is of. */
static cy_expr score_at(cy_kernel *k, const attention_row *r) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_expr at = cy_x_index(k, 0);
  for (int i = 0; i <= c->nbatch; i++)
    at =
        sum(k, cy_x_bin(k, CY_OP_mul, at, cy_x_dim(k, cy_kernel_var(k, c->out_var[i])->extent)), var(k, c->out_var[i]));
  (void)r;
  return sum(k, cy_x_bin(k, CY_OP_mul, at, cy_x_dim(k, c->keys)), var(k, c->key));
}

static cy_expr if_seen(cy_kernel *k, cy_expr seen, cy_expr s) {
  return cy_x_select(k, seen, s, cy_x_const(k, CY_F32, -INFINITY));
}

static cy_expr changed(cy_kernel *k, const attention_row *r, kernel_case *q, cy_expr s) {
  cy_contraction *c = cy_kernel_contraction(k);
  int64_t scores = r->batch * r->heads * r->m * r->keys;
  cy_expr row = var(k, c->out_var[c->nbatch]), key = var(k, c->key), last = sum(k, row, cy_x_dim(k, c->past));
  if (r->what & SOFTCAP) {
    cy_expr cap = cy_x_const(k, CY_F32, 3);
    s = cy_x_bin(k, CY_OP_mul, cy_x_un(k, CY_OP_tanh, cy_x_bin(k, CY_OP_div, s, cap)), cap);
  }
  if (r->what & BIAS) {
    cy_karg arg = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
    q->elems[arg] = scores;
    s = sum(k, s, cy_x_load(k, arg, score_at(k, r)));
  }
  if (r->what & MASK) {
    cy_karg arg = cy_kernel_add_arg(k, CY_ARG_READ, CY_BOOL, 0);
    q->elems[arg] = scores;
    s = if_seen(k, cy_x_load(k, arg, score_at(k, r)), s);
  }
  if (r->what & CAUSAL)
    s = if_seen(k, cy_x_bin(k, CY_OP_le, key, last), s);
  if (r->window)
    s = if_seen(k, cy_x_bin(k, CY_OP_gt, key, cy_x_bin(k, CY_OP_sub, last, cy_x_index(k, r->window))), s);
  if (r->what & LENGTHS) {
    cy_karg arg = cy_kernel_add_arg(k, CY_ARG_READ, CY_U8, 0);
    q->elems[arg] = r->batch;
    cy_expr length = cy_x_cast(k, cy_x_load(k, arg, var(k, c->out_var[0])), CY_I64);
    s = if_seen(k, cy_x_bin(k, CY_OP_lt, key, length), s);
  }
  return s;
}

static void attention_scores(cy_kernel *k, const attention_row *r, kernel_case *q) {
  cy_contraction *c = cy_kernel_contraction(k);
  cy_expr score = cy_x_local(k, c->score), below = cy_x_bin(k, CY_OP_sub, score, cy_x_local(k, c->top));
  cy_kernel_for(k, c->key, true);
  cy_expr s = changed(k, r, q, score);
  if (s != score)
    cy_kernel_set(k, c->score, s);
  cy_kernel_end(k);
  cy_kernel_for(k, c->key, true);
  cy_kernel_set(k, c->score, r->what & PLAIN_WEIGHT ? cy_x_un(k, CY_OP_exp, below) : cy_x_exp_below(k, below));
  cy_kernel_end(k);
}

/* A batch axis with its strides in q, k and v. */
static void attention_axis(cy_kernel *k, cy_contraction *c, cy_dim extent, cy_dim q, cy_dim keys, cy_dim values) {
  c->a_batch[c->nbatch] = q;
  c->b_batch[c->nbatch] = keys;
  c->v_batch[c->nbatch] = values;
  c->batch[c->nbatch++] = extent;
  out_var(k, c, extent);
}

static void attention_batch(cy_kernel *k, cy_contraction *c, const attention_row *r, cy_dim batch) {
  cy_dim size = d(r->size), columns = d(r->columns), own = d(r->heads / r->share), zero = d(0);
  bool tokens = r->what & TOKENS;
  cy_dim head = tokens ? size : cy_dim_mul(g, c->m, size); /* from head to head of q */
  cy_dim of_k = tokens ? size : cy_dim_mul(g, c->keys, size), of_v = tokens ? columns : cy_dim_mul(g, c->keys, columns);
  c->a_m = tokens ? d(r->heads * r->size) : size;
  c->a_k = d(1);
  c->b_n = r->what & TURNED ? d(1) : tokens ? cy_dim_mul(g, own, size) : size;
  c->b_k = r->what & TURNED ? c->keys : d(1);
  c->v_k = tokens ? cy_dim_mul(g, own, columns) : columns;
  c->v_n = d(1);
  attention_axis(k, c, batch, cy_dim_mul(g, d(r->heads * r->size), c->m),
                 cy_dim_mul(g, cy_dim_mul(g, own, size), c->keys), cy_dim_mul(g, cy_dim_mul(g, own, columns), c->keys));
  attention_axis(k, c, own, cy_dim_mul(g, head, d(r->share)), of_k, of_v);
  if (r->share > 1)
    attention_axis(k, c, d(r->share), head, zero, zero);
}

static void add_attention(const attention_row *r) {
  cy_kernel *k = cy_kernel_create(g, "attention");
  cy_contraction *c = cy_kernel_contraction(k);
  kernel_case *q =
      add_case(k, "attention %s %dx%d/%d %dx%d %d,%d what %d", cy_dtype_of(r->type)->name, (int)r->batch, (int)r->heads,
               (int)r->share, (int)r->m, (int)r->keys, (int)r->size, (int)r->columns, r->what);
  bool symbolic = r->what & SYMBOLIC;
  q->machine.tf32 = r->what & TF32;
  q->machine.state = r->what & WIDE ? NULL : &three_blocks;
  if (r->what & (FILLED | FOUR))
    q->machine.state = r->what & FOUR                        ? &four_blocks_90a
                       : r->columns > 64 || r->what & HOPPER ? &one_block_90a
                                                             : &one_block;
  q->syms = calloc(64, sizeof *q->syms);
  c->kind = CY_CONTRACT_ATTENTION;
  cy_dtype keys = r->what & WIDE_KV ? CY_F32 : r->type;
  c->a = cy_kernel_add_arg(k, CY_ARG_READ, r->what & WIDE_Q ? CY_F32 : r->type, 0);
  c->b = cy_kernel_add_arg(k, CY_ARG_READ, keys, 0);
  c->v = cy_kernel_add_arg(k, CY_ARG_READ, keys, 0);
  c->rounded = r->what & (WIDE_Q | WIDE_KV) ? r->type : CY_NONE;
  cy_karg bias = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  c->m = named("m", r->m, symbolic, q);
  c->keys = named("keys", r->keys, symbolic, q);
  c->k = d(r->size);
  c->n = d(r->columns);
  c->past = named("past", r->past, symbolic, q);
  c->scale = 1 / sqrt((double)r->size);
  c->causal = r->what & CAUSAL;
  c->zero_hidden = r->what & ZERO;
  c->window = r->window;
  attention_batch(k, c, r, named("batch", r->batch, symbolic, q));
  out_var(k, c, c->m);
  out_var(k, c, c->n);
  c->acc = cy_kernel_add_local(k, CY_F32);
  c->score = cy_kernel_add_local(k, CY_F32);
  c->top = cy_kernel_add_local(k, CY_F32);
  c->key = cy_kernel_add_var(k, c->keys);
  int64_t own = r->batch * r->heads / r->share * r->keys;
  q->elems[c->a] = r->batch * r->heads * r->m * r->size;
  q->elems[c->b] = own * r->size;
  q->elems[c->v] = own * r->columns;
  q->elems[bias] = r->columns;
  q->elems[y] = r->batch * r->heads * r->m * r->columns;
  attention_scores(k, r, q);
  epilogue(k, c, bias, y, NULL);
  q->rtol = q->atol = r->what & TF32 ? 4e-3 : r->type == CY_F32 ? 2e-5 : r->type == CY_F16 ? 4e-3 : 3e-2;
}

static void add_attentions(void) {
  static const attention_row rows[] = {
      {CY_F16, 2, 3, 1, 70, 130, 64, 64, 0, 0, 0},
      {CY_F16, 1, 2, 1, 65, 65, 64, 64, CAUSAL | TOKENS, 0, 0},
      {CY_F16, 1, 1, 1, 40, 200, 128, 128, CAUSAL | SYMBOLIC, 0, 160},
      {CY_F16, 1, 1, 1, 200, 200, 32, 32, CAUSAL, 20, 0},
      {CY_F16, 2, 4, 2, 9, 33, 40, 24, MASK | BIAS, 0, 0},
      {CY_F16, 1, 8, 4, 1, 150, 64, 64, LENGTHS, 0, 0},
      {CY_F16, 1, 4, 4, 3, 70, 96, 80, SOFTCAP | TURNED | TOKENS, 0, 0},
      {CY_F16, 1, 1, 1, 33, 40, 256, 256, PLAIN_WEIGHT, 0, 0},
      {CY_F16, 1, 1, 1, 2, 70, 256, 200, 0, 0, 0},
      {CY_F16, 1, 2, 1, 5, 300, 128, 128, CAUSAL, 100, 250},
      {CY_F16, 3, 1, 1, 20, 3, 33, 17, MASK, 0, 0},
      {CY_BF16, 2, 6, 3, 30, 90, 64, 64, BIAS | CAUSAL | SYMBOLIC, 0, 60},
      {CY_BF16, 1, 2, 1, 17, 64, 160, 160, LENGTHS | TOKENS, 0, 0},
      {CY_BF16, 1, 2, 1, 70, 150, 128, 128, CAUSAL | TOKENS, 0, 80},
      {CY_BF16, 2, 2, 2, 66, 70, 64, 128, MASK | BIAS | TOKENS, 0, 0},
      {CY_F16, 1, 1, 1, 100, 100, 60, 50, SOFTCAP | TURNED, 0, 0},
      {CY_F16, 1, 2, 1, 80, 100, 192, 64, CAUSAL, 30, 20},
      {CY_F32, 2, 3, 1, 70, 130, 64, 64, 0, 0, 0},
      {CY_F32, 1, 2, 1, 65, 65, 64, 64, CAUSAL | TOKENS, 0, 0},
      {CY_F32, 1, 1, 1, 40, 100, 128, 128, CAUSAL | SYMBOLIC, 0, 60},
      {CY_F32, 1, 1, 1, 150, 150, 32, 32, CAUSAL, 20, 0},
      {CY_F32, 2, 4, 2, 9, 33, 40, 24, MASK | BIAS, 0, 0},
      {CY_F32, 1, 8, 4, 1, 150, 64, 64, LENGTHS | SYMBOLIC, 0, 0},
      {CY_F32, 1, 4, 4, 3, 70, 96, 80, SOFTCAP | TURNED | TOKENS, 0, 0},
      {CY_F32, 1, 1, 1, 33, 40, 256, 256, PLAIN_WEIGHT, 0, 0},
      {CY_F32, 1, 1, 1, 2, 70, 256, 200, 0, 0, 0},
      {CY_F32, 3, 1, 1, 20, 3, 33, 17, MASK, 0, 0},
      {CY_F32, 1, 1, 1, 30, 10, 16, 16, CAUSAL, 4, 0}, /* rows behind the last key's window see none */
      {CY_F16, 1, 1, 1, 30, 10, 16, 16, CAUSAL, 4, 0},
      {CY_F32, 1, 1, 1, 30, 10, 16, 16, CAUSAL | ZERO, 4, 0},
      {CY_F16, 1, 1, 1, 30, 10, 64, 64, CAUSAL | ZERO, 4, 0},
      {CY_F16, 1, 1, 1, 140, 90, 128, 128, CAUSAL | ZERO | FILLED, 20, 0},
      {CY_F16, 1, 2, 1, 140, 40, 64, 64, CAUSAL | ZERO | FILLED | HOPPER, 0, -60},
      {CY_F32, 2, 3, 1, 70, 100, 64, 64, TF32 | CAUSAL | TOKENS, 0, 30},
      {CY_F32, 1, 2, 2, 9, 50, 40, 24, TF32 | MASK | BIAS | SYMBOLIC, 0, 0},
      {CY_F32, 1, 1, 1, 40, 40, 128, 128, TF32, 0, 0},
      {CY_F32, 1, 1, 1, 20, 300, 256, 200, TF32 | TURNED, 0, 0},
      {CY_F32, 1, 4, 2, 2, 70, 64, 64, TF32 | LENGTHS, 0, 0},
      {CY_F16, 1, 2, 1, 200, 130, 64, 64, FILLED, 0, 0},
      {CY_BF16, 1, 2, 2, 150, 210, 64, 64, CAUSAL | TOKENS | FILLED, 0, 60},
      {CY_F16, 1, 1, 1, 140, 200, 128, 128, CAUSAL | FILLED, 50, 60},
      /* more tiles of keys and of rows than stages and blocks; by tensor maps */
      {CY_F16, 1, 2, 1, 140, 390, 64, 64, FILLED | HOPPER, 0, 0},
      {CY_BF16, 1, 2, 2, 70, 200, 64, 64, CAUSAL | TOKENS | FILLED | HOPPER | SYMBOLIC, 0, 130},
      {CY_F16, 1, 1, 1, 130, 270, 128, 128, CAUSAL | TOKENS | FILLED, 0, 140},
      /* blocks that share the keys; the last ones have none */
      {CY_F16, 1, 4, 2, 1, 700, 64, 64, CAUSAL | WIDE, 0, 650},
      {CY_F16, 2, 1, 1, 20, 1100, 40, 24, MASK | WIDE, 0, 0},
      {CY_F32, 1, 2, 2, 3, 500, 64, 64, CAUSAL | WIDE, 300, 480},
      {CY_F32, 1, 1, 1, 33, 400, 96, 80, LENGTHS | WIDE, 0, 0},
  };
  for (size_t i = 0; i < CHECK_COUNT(rows); i++)
    add_attention(&rows[i]);
}

/* Rows or keys are symbols: the kernel and the host count how many blocks share the keys. Behind the other kernels, of
 * which every so many is tried. */
static void add_varying_attentions(void) {
  static const attention_row rows[] = {
      {CY_F16, 1, 4, 2, 2, 900, 64, 64, CAUSAL | SYMBOLIC | WIDE, 0, 895},
      {CY_F32, 2, 3, 1, 5, 400, 64, 64, MASK | SYMBOLIC | WIDE, 0, 0},
      {CY_BF16, 1, 2, 2, 3, 640, 128, 128, CAUSAL | SYMBOLIC | TOKENS | WIDE, 200, 600},
      {CY_F32, 1, 1, 1, 70, 300, 96, 80, TF32 | LENGTHS | SYMBOLIC | WIDE, 0, 0},
      {CY_F32, 1, 2, 1, 7, 100, 40, 24, CAUSAL | SYMBOLIC | WIDE, 0, 95}, /* too few keys to share */
      /* rows in tiles of few, so that there are more blocks */
      {CY_F16, 1, 2, 1, 70, 100, 64, 64, CAUSAL | TOKENS | WIDE, 0, 30},
      {CY_F32, 1, 2, 1, 40, 70, 40, 24, WIDE, 0, 0},
      /* factors of f32, rounded where they are read */
      {CY_F16, 1, 4, 2, 1, 150, 64, 64, CAUSAL | SYMBOLIC | WIDE | WIDE_Q | WIDE_KV, 0, 149},
      {CY_F16, 2, 2, 1, 70, 130, 40, 24, MASK | WIDE_Q | WIDE_KV, 0, 0},
      {CY_F16, 1, 2, 1, 70, 70, 64, 64, CAUSAL | TOKENS | WIDE_KV, 0, 0},
      {CY_BF16, 1, 2, 2, 9, 50, 33, 17, TURNED | WIDE_KV, 0, 0},
      {CY_BF16, 1, 2, 1, 65, 80, 128, 128, CAUSAL | TOKENS | WIDE_Q, 0, 20},
      /* in one of two by tensor maps */
      {CY_F16, 1, 1, 1, 140, 200, 64, 64, CAUSAL | SYMBOLIC | FOUR, 0, 60},
      {CY_F16, 1, 1, 1, 100, 390, 64, 64, CAUSAL | SYMBOLIC | FOUR, 0, 290},
  };
  for (size_t i = 0; i < CHECK_COUNT(rows); i++)
    add_attention(&rows[i]);
}

#endif
