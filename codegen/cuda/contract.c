/* contract.c - contraction kernels: which there are generators for, and the plain one, a tiled product on the ordinary
 * FMA units.
 *
 * Every contraction is seen as z independent products of an m x k by a k x n matrix: z counts batches or groups, m is
 * for a convolution the flattened (image, spatial..) index and k = (tap, channel). A kernel is printed from four
 * functions, of which only the first three know the kind: <symbol>_row fixes what does not depend on k, <symbol>_a and
 * <symbol>_b fetch an element (0 outside), <symbol>_put runs the epilogue. The tile loop around them is one text for
 * all kinds and element types. Another generator (tensor cores) is another row of `generators`, tried in order; it has
 * the same three functions.
 */
#include "codegen/cuda/cuda_int.h"

#include <string.h>

enum { THREADS = 256 };

static const cy_cuda_tile large = {128, 128, 8, 8, 8}, middle = {64, 64, 16, 4, 4}, small = {32, 32, 16, 2, 2};

/* ---- the contraction as sizes ---- */

static bool is_conv(const cy_contraction *c) { return c->kind != CY_CONTRACT_MATMUL; }

static int64_t tap_count(const cy_contraction *c) {
  int64_t n = 1;
  for (int i = 0; i < c->nspatial; i++)
    n *= c->kernel[i];
  return n;
}

static cy_dim per_group(cy_graph *g, const cy_contraction *c, cy_dim channels) {
  return cy_dim_div(g, channels, cy_dim_const(g, c->group));
}

typedef struct sizes {
  cy_dim z, m, n, k;
} sizes;

static sizes sizes_of(cy_kernel *k) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  sizes s = {cy_dim_const(g, 1), c->m, c->n, c->k};
  if (!is_conv(c)) {
    for (int i = 0; i < c->nbatch; i++)
      s.z = cy_dim_mul(g, s.z, c->batch[i]);
    return s;
  }
  s.z = cy_dim_const(g, c->group);
  s.m = c->images;
  for (int i = 0; i < c->nspatial; i++)
    s.m = cy_dim_mul(g, s.m, c->out[i]);
  s.n = per_group(g, c, c->channels_out);
  s.k = cy_dim_muli(g, per_group(g, c, c->channels_in), tap_count(c));
  return s;
}

static double estimate(cy_graph *g, cy_dim d, double otherwise) {
  int64_t v;
  return cy_dim_is_const(g, d, &v) ? (double)v : otherwise;
}

/* ---- choosing ---- */

static double blocks_of(double z, double m, double n, const cy_cuda_tile *t) {
  return z * ((m + t->m - 1) / t->m) * ((n + t->n - 1) / t->n);
}

/* The largest tile that still gives most multiprocessors of a GPU a block. */
static const cy_cuda_tile *choose_tile(cy_kernel *k, const sizes *s) {
  cy_graph *g = cy_kernel_graph(k);
  double z = estimate(g, s->z, 8), m = estimate(g, s->m, 512), n = estimate(g, s->n, 512);
  bool wide = cy_dtype_of(cy_kernel_local_dtype(k, cy_kernel_contraction(k)->acc))->bits > 32;
  if (!wide && m > 64 && n > 64 && blocks_of(z, m, n, &large) >= 100)
    return &large;
  return m > 32 && n > 32 && blocks_of(z, m, n, &middle) >= 60 ? &middle : &small;
}

static bool number(cy_dtype t) {
  char c = cy_dtype_of(t)->cls;
  return c == 'F' || c == 'I' || c == 'U';
}

static bool plain_supports(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_graph *g = cy_kernel_graph(k);
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  int64_t n;
  if (!number(args[c->a].dtype) || !number(args[c->b].dtype) || c->has_a_zero || c->has_b_zero)
    return false;
  /* depthwise: a column per group would leave the tile empty; plain loops do better */
  return !is_conv(c) || c->group == 1 || !cy_dim_is_const(g, per_group(g, c, c->channels_out), &n) || n >= 8;
}

static void plain_schedule(cy_kernel *k, cy_cuda_form *form) {
  cy_graph *g = cy_kernel_graph(k);
  sizes s = sizes_of(k);
  form->kind = CY_CUDA_TILES;
  form->threads = THREADS;
  form->max_blocks = INT32_MAX / 128; /* rows and columns are counted in 32 bits */
  form->tile = *choose_tile(k, &s);
  form->blocks = cy_dim_mul(g, s.z,
                            cy_dim_mul(g, cy_dim_cdiv(g, s.m, cy_dim_const(g, form->tile.m)),
                                       cy_dim_cdiv(g, s.n, cy_dim_const(g, form->tile.n))));
}

/* ---- printing: the parts that differ ---- */

typedef struct plain {
  cy_cu *p;
  const cy_contraction *c;
  const char *symbol, *type;  /* type: of the accumulator */
  char m[160], n[96], k[160]; /* sizes as text */
} plain;

/* The sizes in terms of what the kernel is handed: products of its own would not be among its parameters. */
static void size_texts(plain *q, const sizes *s) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  int64_t v;
  if (!is_conv(c)) {
    snprintf(q->m, sizeof q->m, "%s", cy_cu_dim(p, c->m));
    snprintf(q->n, sizeof q->n, "%s", cy_cu_dim(p, c->n));
    snprintf(q->k, sizeof q->k, "%s", cy_cu_dim(p, c->k));
    return;
  }
  size_t at = (size_t)snprintf(q->m, sizeof q->m, "((i64)%s", cy_cu_dim(p, c->images));
  for (int i = 0; i < c->nspatial; i++)
    at += (size_t)snprintf(q->m + at, sizeof q->m - at, " * %s", cy_cu_dim(p, c->out[i]));
  snprintf(q->m + at, sizeof q->m - at, ")");
  snprintf(q->n, sizeof q->n, "(%s / %lld)", cy_cu_dim(p, c->channels_out), (long long)c->group);
  snprintf(q->k, sizeof q->k, "(%s / %lld * %lld)", cy_cu_dim(p, c->channels_in), (long long)c->group,
           (long long)tap_count(c));
  char *const text[3] = {q->m, q->n, q->k};
  const cy_dim dim[3] = {s->m, s->n, s->k};
  for (int i = 0; i < 3; i++)
    if (cy_dim_is_const(p->g, dim[i], &v))
      sprintf(text[i], "%lld", (long long)v);
}

/* Copies the text with $S symbol, $T accumulator type, $P parameters, $N their names. */
static void print_text(plain *q, const char *text) {
  for (; *text; text++) {
    if (*text != '$') {
      fputc(*text, q->p->out);
      continue;
    }
    switch (*++text) {
    case 'S': fputs(q->symbol, q->p->out); break;
    case 'T': fputs(q->type, q->p->out); break;
    case 'P': cy_cu_params(q->p, q->p->out, false); break;
    case 'N': cy_cu_params(q->p, q->p->out, true); break;
    }
  }
}

static void begin(plain *q, const char *head) {
  print_text(q, head);
  cy_cu_open(q->p);
  cy_cu_narrow_dims(q->p);
}

static void end(plain *q) {
  cy_cu_close(q->p, 0);
  fputs("}\n\n", q->p->out);
}

static void print_row_matmul(plain *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  cy_cu_line(p, "i64 base = %s + (i64)m * %s;", cy_cu_dim(p, c->a_offset), cy_cu_dim(p, c->a_m));
  cy_cu_line(p, "int rest = z;");
  for (int i = c->nbatch; i-- > 0;) {
    cy_cu_line(p, "base += rest %% (int)%s * (i64)%s;", cy_cu_dim(p, c->batch[i]), cy_cu_dim(p, c->a_batch[i]));
    cy_cu_line(p, "rest /= (int)%s;", cy_cu_dim(p, c->batch[i]));
  }
  cy_cu_line(p, "r->base = base;");
}

static void print_row_conv(plain *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  cy_cu_line(p, "int rest = m;");
  for (int i = c->nspatial; i-- > 0;) {
    const char *out = cy_cu_dim(p, c->out[i]), *pad = cy_cu_dim(p, c->pad[i]);
    if (c->kind == CY_CONTRACT_CONV)
      cy_cu_line(p, "r->at[%d] = rest %% (int)%s * %lld - (int)%s;", i, out, (long long)c->stride[i], pad);
    else
      cy_cu_line(p, "r->at[%d] = rest %% (int)%s + (int)%s;", i, out, pad);
    cy_cu_line(p, "rest /= (int)%s;", out);
  }
  cy_cu_line(p, "r->base = %s + (i64)rest * %s + (i64)z * (%s / %lld) * %s;", cy_cu_dim(p, c->a_offset),
             cy_cu_dim(p, c->x_image), cy_cu_dim(p, c->channels_in), (long long)c->group, cy_cu_dim(p, c->x_channel));
}

static const char *element(plain *q, cy_karg arg, const char *offset, char *out, size_t cap) {
  cy_dtype t = q->p->args[arg].dtype;
  char raw[128];
  if (cy_cu_packed(t))
    snprintf(raw, sizeof raw, "cy_load_packed(a%u, %s, %d)", arg, offset, cy_dtype_of(t)->bits);
  else
    snprintf(raw, sizeof raw, "a%u[%s]", arg, offset);
  cy_cu_decode(t, raw, out, cap);
  return out;
}

/* Channel and tap of k. */
static void print_tap(plain *q) {
  cy_cu_line(q->p, "const int depth = (int)(%s / %lld);", cy_cu_dim(q->p, q->c->channels_in), (long long)q->c->group);
  cy_cu_line(q->p, "const int tap = k / depth, channel = k %% depth;");
}

static void print_a(plain *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  char v[256];
  begin(q, "CY_INLINE $T $S_a($P, const $S_row *r, int k) {\n");
  cy_cu_line(p, "if (!r->inside || k >= %s)", q->k);
  cy_cu_line(p, "  return 0;");
  if (!is_conv(c)) {
    cy_cu_line(p, "const i64 at = r->base + (i64)k * %s;", cy_cu_dim(p, c->a_k));
  } else {
    print_tap(q);
    cy_cu_line(p, "i64 at = r->base + (i64)channel * %s;", cy_cu_dim(p, c->x_channel));
    cy_cu_line(p, "int rest = tap, i;");
    for (int i = c->nspatial; i-- > 0;) {
      bool forward = c->kind == CY_CONTRACT_CONV;
      cy_cu_line(p, "i = r->at[%d] %c rest %% %lld * %lld;", i, forward ? '+' : '-', (long long)c->kernel[i],
                 (long long)c->dilation[i]);
      cy_cu_line(p, "rest /= %lld;", (long long)c->kernel[i]);
      if (!forward && c->stride[i] > 1) {
        cy_cu_line(p, "if (i < 0 || i %% %lld != 0)", (long long)c->stride[i]);
        cy_cu_line(p, "  return 0;");
        cy_cu_line(p, "i /= %lld;", (long long)c->stride[i]);
      }
      cy_cu_line(p, "if (i < 0 || i >= %s)", cy_cu_dim(p, c->in[i]));
      cy_cu_line(p, "  return 0;");
      cy_cu_line(p, "at += (i64)i * %s;", cy_cu_dim(p, c->x_spatial[i]));
    }
  }
  cy_cu_line(p, "return (%s)(%s);", q->type, element(q, c->a, "at", v, sizeof v));
  end(q);
}

static void print_b(plain *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  char v[256];
  begin(q, "CY_INLINE $T $S_b($P, int z, int k, int n) {\n");
  cy_cu_line(p, "if (k >= %s || n >= %s)", q->k, q->n);
  cy_cu_line(p, "  return 0;");
  if (!is_conv(c)) {
    cy_cu_line(p, "i64 at = %s + (i64)k * %s + (i64)n * %s;", cy_cu_dim(p, c->b_offset), cy_cu_dim(p, c->b_k),
               cy_cu_dim(p, c->b_n));
    cy_cu_line(p, "int rest = z;");
    for (int i = c->nbatch; i-- > 0;) {
      cy_cu_line(p, "at += rest %% (int)%s * (i64)%s;", cy_cu_dim(p, c->batch[i]), cy_cu_dim(p, c->b_batch[i]));
      cy_cu_line(p, "rest /= (int)%s;", cy_cu_dim(p, c->batch[i]));
    }
  } else {
    print_tap(q);
    if (c->kind == CY_CONTRACT_CONV)
      cy_cu_line(p, "const i64 row = ((i64)z * %s + n) * depth + channel;", q->n);
    else
      cy_cu_line(p, "const i64 row = ((i64)z * depth + channel) * %s + n;", q->n);
    cy_cu_line(p, "const i64 at = %s + row * %lld + tap;", cy_cu_dim(p, c->b_offset), (long long)tap_count(c));
  }
  cy_cu_line(p, "return (%s)(%s);", q->type, element(q, c->b, "at", v, sizeof v));
  end(q);
}

static void print_row(plain *q) {
  print_text(q, "typedef struct $S_row {\n  i64 base;\n  int inside, at[3];\n} $S_row;\n\n");
  begin(q, "CY_INLINE void $S_at($P, int z, int m, $S_row *r) {\n");
  cy_cu_line(q->p, "r->inside = m < %s;", q->m);
  if (is_conv(q->c))
    print_row_conv(q);
  else
    print_row_matmul(q);
  end(q);
}

static void print_put(plain *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  begin(q, "CY_INLINE void $S_put($P, int z, int m, int n, $T acc) {\n");
  cy_cu_locals(p);
  if (is_conv(c)) {
    cy_var channel = c->out_var[c->nspatial + 1];
    const char *type = cy_cu_var_type(p, channel);
    cy_cu_unravel(p, c->out_var, (uint32_t)c->nspatial + 1, "m");
    cy_cu_line(p, "const %s v%u = (%s)(z * %s + n);", type, channel, type, q->n);
  } else {
    cy_var m = c->out_var[c->nbatch], n = c->out_var[c->nbatch + 1];
    cy_cu_unravel(p, c->out_var, (uint32_t)c->nbatch, "z");
    cy_cu_line(p, "const %s v%u = (%s)m;", cy_cu_var_type(p, m), m, cy_cu_var_type(p, m));
    cy_cu_line(p, "const %s v%u = (%s)n;", cy_cu_var_type(p, n), n, cy_cu_var_type(p, n));
  }
  cy_cu_line(p, "l%u = acc;", c->acc);
  cy_cu_list(p, cy_kernel_body(p->k));
  end(q);
}

/* ---- printing: the tile loop ---- */

/* Which index of an operand neighbouring threads should walk along: the contiguous one. */
static bool a_along_k(cy_graph *g, const cy_contraction *c) {
  return cy_dim_is(g, is_conv(c) ? c->x_channel : c->a_k, 1) || (!is_conv(c) && !cy_dim_is(g, c->a_m, 1));
}
static bool b_along_k(cy_graph *g, const cy_contraction *c) {
  return c->kind == CY_CONTRACT_CONV || (c->kind == CY_CONTRACT_MATMUL && !cy_dim_is(g, c->b_n, 1));
}

static const char tile_loop[] =
    "  CY_SHARED $T sa[BK][BM + 1], sb[BK][BN + 1];\n"
    "  const int across = (N + BN - 1) / BN, down = (M + BM - 1) / BM, block = (int)CY_BLOCK;\n"
    "  const int n0 = block % across * BN, z = block / across / down;\n"
    "  const int m0 = block / across % down * BM;\n"
    "  const int tx = CY_TID % TX, ty = CY_TID / TX;\n"
    "  const int ak = A_ALONG_K ? CY_TID % BK : CY_TID / BM, am = A_ALONG_K ? CY_TID / BK : CY_TID % BM;\n"
    "  const int bk = B_ALONG_K ? CY_TID % BK : CY_TID / BN, bn = B_ALONG_K ? CY_TID / BK : CY_TID % BN;\n"
    "  $S_row rows[A_ROWS];\n"
    "  $T acc[TM][TN];\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < A_ROWS; i++)\n"
    "    $S_at($N, z, m0 + am + i * (NT / BK), &rows[i]);\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < TM; i++)\n"
    "    CY_UNROLL\n"
    "    for (int j = 0; j < TN; j++)\n"
    "      acc[i][j] = 0;\n"
    "  for (int k0 = 0; k0 < K; k0 += BK) {\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < BM * BK / NT; i++)\n"
    "      if (A_ALONG_K)\n"
    "        sa[ak][am + i * (NT / BK)] = $S_a($N, &rows[A_ALONG_K ? i : 0], k0 + ak);\n"
    "      else\n"
    "        sa[ak + i * (NT / BM)][am] = $S_a($N, &rows[0], k0 + ak + i * (NT / BM));\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < BN * BK / NT; i++)\n"
    "      if (B_ALONG_K)\n"
    "        sb[bk][bn + i * (NT / BK)] = $S_b($N, z, k0 + bk, n0 + bn + i * (NT / BK));\n"
    "      else\n"
    "        sb[bk + i * (NT / BN)][bn] = $S_b($N, z, k0 + bk + i * (NT / BN), n0 + bn);\n"
    "    CY_SYNC();\n"
    "    CY_UNROLL\n"
    "    for (int k = 0; k < BK; k++) {\n"
    "      $T a[TM], b[TN];\n"
    "      CY_UNROLL\n"
    "      for (int i = 0; i < TM; i++)\n"
    "        a[i] = sa[k][ty + i * TY];\n"
    "      CY_UNROLL\n"
    "      for (int j = 0; j < TN; j++)\n"
    "        b[j] = sb[k][tx + j * TX];\n"
    "      CY_UNROLL\n"
    "      for (int i = 0; i < TM; i++)\n"
    "        CY_UNROLL\n"
    "        for (int j = 0; j < TN; j++)\n"
    "          acc[i][j] += a[i] * b[j];\n"
    "    }\n"
    "    CY_SYNC();\n"
    "  }\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < TM; i++)\n"
    "    CY_UNROLL\n"
    "    for (int j = 0; j < TN; j++)\n"
    "      if (m0 + ty + i * TY < M && n0 + tx + j * TX < N)\n"
    "        $S_put($N, z, m0 + ty + i * TY, n0 + tx + j * TX, acc[i][j]);\n";

static void print_tile_loop(plain *q) {
  cy_cu *p = q->p;
  const cy_cuda_tile *t = &p->form->tile;
  bool along = a_along_k(p->g, q->c);
  fprintf(p->out, "CY_KERNEL(%d) ", p->form->threads);
  begin(q, "$S($P) {\n");
  cy_cu_line(p, "enum { BM = %d, BN = %d, BK = %d, TM = %d, TN = %d, NT = %d, TX = BN / TN, TY = BM / TM };", t->m,
             t->n, t->k, t->thread_m, t->thread_n, p->form->threads);
  cy_cu_line(p, "enum { A_ALONG_K = %d, B_ALONG_K = %d, A_ROWS = %d };", along, b_along_k(p->g, q->c),
             along ? t->m * t->k / p->form->threads : 1);
  cy_cu_line(p, "const int M = (int)%s, N = (int)%s, K = (int)%s;", q->m, q->n, q->k);
  print_text(q, tile_loop);
  end(q);
}

static void plain_print(cy_cu *p, const char *symbol) {
  const cy_contraction *c = cy_kernel_contraction(p->k);
  plain q = {.p = p, .c = c, .symbol = symbol, .type = cy_cu_type(cy_kernel_local_dtype(p->k, c->acc))};
  sizes size = sizes_of(p->k);
  size_texts(&q, &size);
  print_row(&q);
  print_a(&q);
  print_b(&q);
  print_put(&q);
  print_tile_loop(&q);
}

/* ---- the generators ---- */

typedef struct generator {
  bool (*supports)(cy_kernel *k);
  void (*schedule)(cy_kernel *k, cy_cuda_form *form);
  void (*print)(cy_cu *p, const char *symbol);
} generator;

static const generator generators[] = {
    {plain_supports, plain_schedule, plain_print},
};

static const generator *generator_of(cy_kernel *k) {
  for (size_t i = 0; i < sizeof generators / sizeof *generators; i++)
    if (generators[i].supports(k))
      return &generators[i];
  return NULL;
}

bool cy_cuda_contract_supports(cy_kernel *k) { return generator_of(k) != NULL; }
void cy_cuda_contract_schedule(cy_kernel *k, cy_cuda_form *form) { generator_of(k)->schedule(k, form); }
void cy_cuda_contract_print(cy_cu *p, const char *symbol) { generator_of(p->k)->print(p, symbol); }
