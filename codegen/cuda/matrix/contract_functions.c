/* SPDX-License-Identifier: Apache-2.0 */
/* contract_functions.c - the functions that a tile loop of any contraction calls: where elements of its factors lie, and what
 * becomes of a result (contract_int.h).
 *
 * In:  a contraction and its schedule. Out: <symbol>_at, _tap_at, _a_tap, _a_at, _b_at, _b_inside, _put, _put_chunk as C text.
 */
#include "contract_int.h"

/* The sizes in terms of what the kernel is handed: products of its own would not be among its parameters. */
static void size_texts(cy_cu_contract *q, const cy_cu_sizes *s) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  int64_t v;
  long long products = cy_cu_is_conv(c) ? c->group * cy_cu_residues(c) : 1;
  size_t at = (size_t)snprintf(q->z, sizeof q->z, "(i64)%lld", products);
  for (int i = 0; i < c->nbatch; i++)
    at += (size_t)snprintf(q->z + at, sizeof q->z - at, " * %s", cy_cu_dim(p, c->batch[i]));
  if (!cy_cu_is_conv(c)) {
    snprintf(q->m, sizeof q->m, "%s", cy_cu_dim(p, c->m));
    snprintf(q->n, sizeof q->n, "%s", cy_cu_dim(p, c->n));
    snprintf(q->k, sizeof q->k, "%s", cy_cu_dim(p, c->k));
    return;
  }
  at = (size_t)snprintf(q->m, sizeof q->m, "((i64)%s", cy_cu_dim(p, c->images));
  for (int i = 0; i < c->nspatial; i++) {
    long long s_i = cy_cu_has_residues(c) ? c->stride[i] : 1;
    at += (size_t)snprintf(q->m + at, sizeof q->m - at, s_i > 1 ? " * ((%s + %lld) / %lld)" : " * %s",
                           cy_cu_dim(p, c->out[i]), s_i - 1, s_i);
  }
  snprintf(q->m + at, sizeof q->m - at, ")");
  snprintf(q->n, sizeof q->n, "(%s / %lld)", cy_cu_dim(p, c->channels_out), (long long)c->group);
  snprintf(q->k, sizeof q->k, "(%s / %lld * %lld)", cy_cu_dim(p, c->channels_in), (long long)c->group,
           (long long)cy_cu_residue_taps(c));
  char *const text[3] = {q->m, q->n, q->k};
  const cy_dim dim[3] = {s->m, s->n, s->k};
  for (int i = 0; i < 3; i++)
    if (cy_dim_is_const(p->g, dim[i], &v))
      sprintf(text[i], "%lld", (long long)v);
}

/* ---- where elements of A lie ---- */

static void print_row_matmul(cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  cy_cu_line(q->p, "i64 at = (i64)m * %s;", cy_cu_dim(q->p, c->a_m));
  cy_cu_print_batch(q, c->a_batch);
  cy_cu_line(q->p, "r->base = at;");
}

/* Which group a product is of. */
static const char *group_text(const cy_contraction *c) { return cy_cu_has_residues(c) ? "residue->z" : "z"; }

static bool is_forward(const cy_contraction *c) { return c->kind == CY_CONTRACT_CONV; }

/* Few channels that lie beside those of the next element of the last axis are part of that axis: with `channels` as many
 * elements, taps, steps and zeros of padding, k runs along it, and one comparison says what is inside. 1: they are not. */
enum { FEW_CHANNELS = 8 };
static int64_t merged_channels(const cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  int last = c->nspatial - 1;
  int64_t channels;
  bool few = is_forward(c) && c->group == 1 && cy_cu_taps(c) > 1 && c->dilation[last] == 1 &&
             cy_dim_is_const(q->p->g, c->channels_in, &channels) && channels < FEW_CHANNELS;
  return few && cy_dim_is(q->p->g, c->x_channel, 1) && cy_dim_is(q->p->g, c->x_spatial[last], channels) ? channels : 1;
}

/* Rows outside have their window there, too. */
static void print_row_conv(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  int64_t merged = merged_channels(q);
  cy_cu_line(p, "int rest = m;");
  if (cy_cu_has_residues(c))
    cy_cu_residue_window(q);
  for (int i = c->nspatial; i-- > 0 && is_forward(c);) {
    const char *out = cy_cu_dim(p, c->out[i]), *pad = cy_cu_dim(p, c->pad[i]);
    cy_cu_line(p, "r->at[%d] = rest %% (int)%s * %lld - (int)%s;", i, out, (long long)c->stride[i], pad);
    cy_cu_line(p, "rest /= (int)%s;", out);
  }
  cy_cu_line(p, "r->base = (i64)rest * %s + (i64)%s * (%s / %lld) * %s;", cy_cu_dim(p, c->x_image), group_text(c),
             cy_cu_dim(p, c->channels_in), (long long)c->group, cy_cu_dim(p, c->x_channel));
  if (merged > 1)
    cy_cu_line(p, "r->at[%d] *= %lld;", c->nspatial - 1, (long long)merged);
  if (merged > 1)
    cy_cu_line(p, "r->base += r->at[%d];", c->nspatial - 1);
  for (int i = 0; i < c->nspatial - (merged > 1); i++)
    cy_cu_line(p, "r->base += (i64)r->at[%d] * %s;", i, cy_cu_dim(p, c->x_spatial[i]));
  if (c->a_rounded)
    cy_cu_line(p, "r->up = %g.f / cy_max_f32(cy_f32_bits((u32)a%u[r->inside ? rest * (i64)%lld : 0]), 1e-30f);",
               c->a_steps, c->a_max, (long long)c->a_max_step);
  cy_cu_line(p, "if (!r->inside)");
  cy_cu_line(p, "  r->at[0] = -0x40000000;");
}

static void print_row(cy_cu_contract *q) {
  cy_cu_contract_text(q, "typedef struct $S_row {\n  i64 base;\n  int inside, at[3];\n");
  cy_cu_contract_text(q, q->c->a_rounded ? "  f32 up;\n} $S_row;\n\n" : "} $S_row;\n\n");
  cy_cu_function_open(q, "CY_INLINE void $S_at($P, int z, int m, $S_row *r) {\n");
  cy_cu_line(q->p, "r->inside = m < %s;", q->m);
  if (cy_cu_is_conv(q->c))
    print_row_conv(q);
  else
    print_row_matmul(q);
  cy_cu_function_close(q);
}

/* Channel and tap of k. A tile of k whose channels all have one tap need not be divided but once. */
static void print_tap_of_k(cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  cy_dim depth = cy_cu_per_group(q->p->g, c, c->channels_in);
  int64_t whole;
  bool one = cy_dim_is_const(q->p->g, depth, &whole) && whole % q->p->schedule->tile.k == 0;
  if (cy_cu_taps(c) == 1) {
    cy_cu_line(q->p, "const int tap = 0, channel = k;");
    return;
  }
  cy_cu_line(q->p, "const int depth = (int)(%s / %lld);", cy_cu_dim(q->p, c->channels_in), (long long)c->group);
  cy_cu_line(q->p, "const int tap = %s / depth, channel = k - tap * depth;", one ? "k0" : "k");
}

/* Are steps within a window, through all of its channels, such that int holds them? */
static bool near(const cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  int64_t step, channels, sum;
  if (!cy_cu_is_conv(c) || !cy_dim_is_const(q->p->g, c->x_channel, &step) || step < 0 || step > INT32_MAX ||
      !cy_dim_is_const(q->p->g, c->channels_in, &channels) || channels > INT32_MAX)
    return false;
  sum = step * channels;
  for (int i = 0; i < c->nspatial; i++) {
    if (sum > INT32_MAX || !cy_dim_is_const(q->p->g, c->x_spatial[i], &step) || step < 0 || step > INT32_MAX)
      return false;
    sum += step * c->kernel[i] * c->dilation[i];
  }
  return sum < INT32_MAX;
}

/* Nothing is divided by the first axis' extent: what lies behind it is outside anyway. */
static void print_tap_conv(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  int64_t merged = merged_channels(q);
  int last = c->nspatial - 1;
  const char *type = near(q) ? "int" : "i64";
  if (merged > 1) {
    long long row = c->kernel[last] * merged;
    cy_cu_line(p, "int rest = (int)((u32)k / %lldu);", row);
    cy_cu_line(p, "t->at[%d] = k - rest * %lld;", last, row);
    cy_cu_line(p, "%s offset = t->at[%d];", type, last);
  } else {
    print_tap_of_k(q);
    cy_cu_line(p, "int rest = tap;");
    cy_cu_line(p, "%s offset = (%s)channel * (%s)%s;", type, type, type, cy_cu_dim(p, c->x_channel));
  }
  if (cy_cu_has_residues(c))
    cy_cu_residue_tap(q, type);
  for (int i = c->nspatial - (merged > 1); i-- > 0 && is_forward(c);) {
    if (i)
      cy_cu_line(p, "t->at[%d] = (int)((u32)rest %% %lldu) * %lld;", i, (long long)c->kernel[i],
                 (long long)c->dilation[i]);
    else
      cy_cu_line(p, "t->at[0] = rest * %lld;", (long long)c->dilation[0]);
    cy_cu_line(p, "offset += t->at[%d] * (%s)%s;", i, type, cy_cu_dim(p, c->x_spatial[i]));
    if (i)
      cy_cu_line(p, "rest = (int)((u32)rest / %lldu);", (long long)c->kernel[i]);
  }
  cy_cu_line(p, "t->offset = offset;");
}

static const char *size_of_k(const cy_cu_contract *q) { return cy_cu_has_residues(q->c) ? "residue->k" : q->k; }

static void print_tap(cy_cu_contract *q) {
  fprintf(q->p->out, "typedef struct %s_tap {\n  %s offset;\n  int inside, at[%d];\n} CY_ALIGNED(16) %s_tap;\n\n",
          q->symbol, near(q) ? "int" : "i64", q->c->nspatial > 1 ? q->c->nspatial : 1, q->symbol);
  cy_cu_function_open(q, "CY_INLINE void $S_tap_at($P, int k0, int k, $S_tap *t) {\n");
  cy_cu_line(q->p, "t->inside = k < %s;", size_of_k(q));
  if (cy_cu_is_conv(q->c))
    print_tap_conv(q);
  else
    cy_cu_line(q->p, "t->offset = (i64)k * %s;", cy_cu_dim(q->p, q->c->a_k));
  cy_cu_function_close(q);
}

/* Where the window of a convolution has its element at a tap. */
static void print_window(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  for (int i = 0; i < c->nspatial; i++)
    cy_cu_line(p, "inside &= (u32)(r->at[%d] + t->at[%d]) < (u32)%s * %lldu;", i, i, cy_cu_dim(p, c->in[i]),
               (long long)(i == c->nspatial - 1 ? merged_channels(q) : 1));
}

static void print_a(cy_cu_contract *q) {
  print_tap(q);
  cy_cu_function_open(q, "CY_INLINE i64 $S_a_tap($P, const $S_row *r, const $S_tap *t, b1 *out_inside) {\n");
  cy_cu_line(q->p, "b1 inside = t->inside;");
  cy_cu_line(q->p, "i64 at = r->base + t->offset;");
  if (cy_cu_is_conv(q->c))
    print_window(q);
  else
    cy_cu_line(q->p, "inside &= r->inside;");
  cy_cu_line(q->p, "*out_inside = inside;");
  cy_cu_line(q->p, "return at;");
  cy_cu_function_close(q);
  cy_cu_contract_text(q, "CY_INLINE i64 $S_a_at($P, const $S_row *r, int k) {\n"
                         "  $S_tap t;\n"
                         "  b1 inside;\n"
                         "  $S_tap_at($N, k, k, &t);\n"
                         "  const i64 at = $S_a_tap($N, r, &t, &inside);\n"
                         "  return inside ? at : -1;\n"
                         "}\n\n");
}

/* ---- where elements of B lie ---- */

static void print_b(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  cy_cu_function_open(q, "CY_INLINE i64 $S_b_inside($P, int z, int k, int n) {\n");
  if (p->schedule->packed_k) {
    cy_cu_line(p, "const i64 at = ((i64)%s * %s + n) * %lld + %sk;", cy_cu_is_conv(c) ? group_text(c) : "0", q->n,
               (long long)p->schedule->packed_k, cy_cu_has_residues(c) ? "residue->base + " : "");
  } else if (!cy_cu_is_conv(c)) {
    cy_cu_line(p, "i64 at = (i64)k * %s + (i64)n * %s;", cy_cu_dim(p, c->b_k), cy_cu_dim(p, c->b_n));
    cy_cu_print_batch(q, c->b_batch);
  } else {
    cy_cu_line(p, "const int depth = (int)(%s / %lld);", cy_cu_dim(p, c->channels_in), (long long)c->group);
    if (cy_cu_has_residues(c)) {
      cy_cu_line(p, "const int own = k / depth, channel = k %% depth;");
      cy_cu_residue_flat_tap(q);
      cy_cu_line(p, "const i64 row = ((i64)residue->z * depth + channel) * %s + n;", q->n);
    } else {
      cy_cu_line(p, cy_cu_taps(c) == 1 ? "const int tap = 0, channel = k;" /* aligned behind the last one, too */
                                       : "const int tap = k / depth, channel = k %% depth;");
      cy_cu_line(p, "const i64 row = ((i64)z * %s + n) * depth + channel;", q->n);
    }
    cy_cu_line(p, "const i64 at = row * %lld + tap;", (long long)cy_cu_taps(c));
  }
  cy_cu_line(p, "return at;");
  cy_cu_function_close(q);
  cy_cu_function_open(q, "CY_INLINE i64 $S_b_at($P, int z, int k, int n) {\n");
  cy_cu_line(p, "return k < %s && n < %s ? ", size_of_k(q), q->n);
  cy_cu_contract_text(q, "$S_b_inside($N, z, k, n) : -1;\n");
  cy_cu_function_close(q);
}

/* ---- the epilogue ---- */

/* The variables of a result, but for that along n. */
static void coordinates(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  if (cy_cu_has_residues(c)) {
    cy_cu_residue_coordinates(q);
    return;
  }
  if (cy_cu_is_conv(c)) {
    cy_cu_unravel(p, c->out_var, (uint32_t)c->nspatial + 1, "m");
    return;
  }
  cy_var m = c->out_var[c->nbatch];
  cy_cu_unravel(p, c->out_var, (uint32_t)c->nbatch, "z");
  cy_cu_line(p, "const %s v%u = (%s)m;", cy_cu_var_type(p, m), m, cy_cu_var_type(p, m));
}

static void put(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  cy_cu_function_open(q, "CY_INLINE void $S_put($P, int z, int m, int n, $T acc) {\n");
  cy_cu_locals(p);
  coordinates(q);
  cy_var last = c->out_var[c->nout_vars - 1];
  const char *type = cy_cu_var_type(p, last);
  if (cy_cu_is_conv(c))
    cy_cu_line(p, "const %s v%u = (%s)(%s * %s + n);", type, last, type, group_text(c), q->n);
  else
    cy_cu_line(p, "const %s v%u = (%s)n;", type, last, type);
  cy_cu_line(p, "l%u = acc;", c->acc);
  cy_cu_list(p, cy_cu_epilogue(p->k));
  cy_cu_function_close(q);
}

static void put_chunk(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  bool conv = cy_cu_is_conv(c);
  const char *type = cy_cu_var_type(p, p->schedule->vector_var);
  char head[48];
  cy_cu_function_open(q, "CY_INLINE void $S_put_chunk($P, int z, int m, int n, const $T *acc) {\n");
  cy_cu_locals(p);
  coordinates(q);
  if (conv)
    cy_cu_line(p, "const %s first = (%s)(%s * %s + n);", type, type, group_text(c), q->n);
  else
    cy_cu_line(p, "const %s first = (%s)n;", type, type);
  snprintf(head, sizeof head, "l%u = acc[u];", c->acc);
  p->item_head = head;
  cy_cu_vector_items(p, cy_cu_epilogue(p->k));
  p->item_head = NULL;
  cy_cu_function_close(q);
}

void cy_cu_contract_put(cy_cu_contract *q) {
  put(q);
  if (q->p->schedule->vector)
    put_chunk(q);
}

void cy_cu_contract_begin(cy_cu_contract *q, cy_cu *p, const char *symbol) {
  const cy_contraction *c = cy_kernel_contraction(p->k);
  *q = (cy_cu_contract){.p = p, .c = c, .symbol = symbol, .type = cy_cu_type(cy_kernel_local_dtype(p->k, c->acc))};
  cy_cu_sizes size = cy_cu_sizes_of(p->k);
  size_texts(q, &size);
  cy_cu_residue_print(q);
  print_row(q);
  print_a(q);
  print_b(q);
  cy_cu_contract_put(q);
}
