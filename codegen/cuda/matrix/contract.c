/* SPDX-License-Identifier: Apache-2.0 */
/* contract.c - contraction kernels: the view of them that generators share, and which generator takes which.
 *
 * In: a kernel with a contraction. Out: its form, its C text, and the packed form of constant weights where the
 * generator wants one. The generators are tried in order: a further one is a row of `generators` and a file like
 * plain.c. The functions printed here are described in contract_int.h.
 */
#include "contract_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WANTED_BLOCKS = 100 };

/* ---- the contraction as sizes ---- */

int64_t cy_cu_taps(const cy_contraction *c) {
  int64_t n = 1;
  for (int i = 0; i < c->nspatial; i++)
    n *= c->kernel[i];
  return n;
}

cy_dim cy_cu_per_group(cy_graph *g, const cy_contraction *c, cy_dim channels) {
  return cy_dim_div(g, channels, cy_dim_const(g, c->group));
}

bool cy_cu_is_depthwise(cy_graph *g, const cy_contraction *c) {
  return c->kind == CY_CONTRACT_CONV && c->group > 1 && cy_dim_is(g, c->channels_in, c->group) &&
         cy_dim_is(g, c->channels_out, c->group);
}

cy_cu_sizes cy_cu_sizes_of(cy_kernel *k) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_cu_sizes s = {cy_dim_const(g, 1), c->m, c->n, c->k};
  if (!cy_cu_is_conv(c)) {
    for (int i = 0; i < c->nbatch; i++)
      s.z = cy_dim_mul(g, s.z, c->batch[i]);
    return s;
  }
  s.z = cy_dim_const(g, c->group * cy_cu_phases(c));
  s.m = cy_cu_phase_rows(g, c);
  s.n = cy_cu_per_group(g, c, c->channels_out);
  s.k = cy_dim_muli(g, cy_cu_per_group(g, c, c->channels_in), cy_cu_phase_taps(c));
  return s;
}

cy_dim cy_cu_depth(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_graph *g = cy_kernel_graph(k);
  return cy_cu_has_phases(c) ? cy_cu_per_group(g, c, c->channels_in) : cy_cu_sizes_of(k).k;
}

double cy_cu_estimate(cy_graph *g, cy_dim d, double otherwise) {
  int64_t v, min, max;
  if (cy_dim_is_const(g, d, &v))
    return (double)v;
  int64_t *ones = calloc(cy_sym_count(g) + 1, sizeof *ones);
  if (!ones)
    cy_no_memory();
  for (uint32_t s = 1; s <= cy_sym_count(g); s++)
    ones[s] = 1;
  cy_dim_range(g, d, &min, &max);
  double at_one = (double)cy_dim_eval(g, d, ones), guess = otherwise < at_one ? at_one : otherwise;
  free(ones);
  return guess > (double)max ? (double)max : guess;
}

int cy_cu_wanted_blocks(const cy_machine *m) {
  const cy_cuda_machine *c = m->state;
  return c && c->wanted_blocks ? c->wanted_blocks : WANTED_BLOCKS;
}

double cy_cu_tiles_estimate(cy_kernel *k, const cy_cu_sizes *s, int m, int n) {
  cy_graph *g = cy_kernel_graph(k);
  double rows = (cy_cu_estimate(g, s->m, 512) + m - 1) / m, columns = (cy_cu_estimate(g, s->n, 512) + n - 1) / n;
  return cy_cu_estimate(g, s->z, 8) * floor(rows) * floor(columns);
}

cy_dim cy_cu_tiles(cy_graph *g, const cy_cu_sizes *s, int m, int n) {
  return cy_dim_mul(g, s->z,
                    cy_dim_mul(g, cy_dim_cdiv(g, s->m, cy_dim_const(g, m)), cy_dim_cdiv(g, s->n, cy_dim_const(g, n))));
}

/* ---- printing: the parts that differ ---- */

/* The sizes in terms of what the kernel is handed: products of its own would not be among its parameters. */
static void size_texts(cy_cu_contract *q, const cy_cu_sizes *s) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  int64_t v;
  long long products = cy_cu_is_conv(c) ? c->group * cy_cu_phases(c) : 1;
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
    long long s_i = cy_cu_has_phases(c) ? c->stride[i] : 1;
    at += (size_t)snprintf(q->m + at, sizeof q->m - at, s_i > 1 ? " * ((%s + %lld) / %lld)" : " * %s",
                           cy_cu_dim(p, c->out[i]), s_i - 1, s_i);
  }
  snprintf(q->m + at, sizeof q->m - at, ")");
  snprintf(q->n, sizeof q->n, "(%s / %lld)", cy_cu_dim(p, c->channels_out), (long long)c->group);
  snprintf(q->k, sizeof q->k, "(%s / %lld * %lld)", cy_cu_dim(p, c->channels_in), (long long)c->group,
           (long long)cy_cu_phase_taps(c));
  char *const text[3] = {q->m, q->n, q->k};
  const cy_dim dim[3] = {s->m, s->n, s->k};
  for (int i = 0; i < 3; i++)
    if (cy_dim_is_const(p->g, dim[i], &v))
      sprintf(text[i], "%lld", (long long)v);
}

static const char phase_of_kernel[] = "  const $S_phase own_phase = $S_phase_of($M, z), *const phase = &own_phase;\n"
                                      "  const int K = phase->k;\n";

void cy_cu_contract_text(cy_cu_contract *q, const char *text) {
  for (; *text; text++) {
    if (*text != '$') {
      fputc(*text, q->p->out);
      continue;
    }
    switch (*++text) {
    case 'S': fputs(q->symbol, q->p->out); break;
    case 'T': fputs(q->type, q->p->out); break;
    case 'P':
    case 'N':
    case 'Q':
    case 'M':
      cy_cu_params(q->p, q->p->out, *text == 'N' || *text == 'M');
      if ((*text == 'P' || *text == 'N') && cy_cu_has_phases(q->c))
        fprintf(q->p->out, *text == 'N' ? ", phase" : ", const %s_phase *phase", q->symbol);
      if ((*text == 'P' || *text == 'N') && q->p->holds_maxima)
        fputs(*text == 'N' ? ", maxima" : ", cy_held_max *maxima", q->p->out);
      break;
    case 'L': cy_cu_lengths_param(q->p, q->p->out); break;
    case 'F':
      cy_cu_contract_text(q, cy_cu_has_phases(q->c) ? phase_of_kernel : "  const int K = ALL_K;\n");
      break;
    case 'A': fprintf(q->p->out, "a%u", q->c->a); break;
    case 'B': fprintf(q->p->out, "a%u", cy_cu_b_arg(q->p->form, q->c)); break;
    case 'V':
      fprintf(q->p->out, "a%u", q->c->v);
      break;
    case 'Z':
      fputs(q->z, q->p->out);
      break;
    case 'X': fputs(cy_cu_storage(q->p->args[q->c->a].dtype), q->p->out); break;
    case 'Y': fputs(cy_cu_storage(q->p->args[q->c->b].dtype), q->p->out); break;
    }
  }
}

void cy_cu_function_open(cy_cu_contract *q, const char *head) {
  cy_cu_contract_text(q, head);
  cy_cu_open(q->p);
  if (strstr(head, "$L")) {
    cy_cu_line(q->p, "CY_AFTER();");
    cy_cu_lengths_read(q->p);
  }
  if (strstr(head, "$Q") && q->p->holds_maxima)
    cy_cu_line(q->p, "cy_held_max own_maxima = {0, 0}, *const maxima = &own_maxima;");
  cy_cu_narrow_dims(q->p);
}

void cy_cu_function_close(cy_cu_contract *q) {
  cy_cu_close(q->p, 0);
  fputs("}\n\n", q->p->out);
}

void cy_cu_print_batch(cy_cu_contract *q, const cy_dim *strides) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  cy_cu_line(p, "int rest = z;");
  for (int i = c->nbatch; i-- > 0;) {
    cy_cu_line(p, "at += rest %% (int)%s * (i64)%s;", cy_cu_dim(p, c->batch[i]), cy_cu_dim(p, strides[i]));
    cy_cu_line(p, "rest /= (int)%s;", cy_cu_dim(p, c->batch[i]));
  }
}

static void print_row_matmul(cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  cy_cu_line(q->p, "i64 at = (i64)m * %s;", cy_cu_dim(q->p, c->a_m));
  cy_cu_print_batch(q, c->a_batch);
  cy_cu_line(q->p, "r->base = at;");
}

/* Which group a product is of. */
static const char *group_text(const cy_contraction *c) { return cy_cu_has_phases(c) ? "phase->z" : "z"; }

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
  if (cy_cu_has_phases(c))
    cy_cu_phase_window(q);
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

/* Channel and tap of k. A tile of k whose channels all have one tap need not be divided but once. */
static void print_tap_of_k(cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  cy_dim depth = cy_cu_per_group(q->p->g, c, c->channels_in);
  int64_t whole;
  bool one = cy_dim_is_const(q->p->g, depth, &whole) && whole % q->p->form->tile.k == 0;
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
  if (cy_cu_has_phases(c))
    cy_cu_phase_tap(q, type);
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

static const char *size_of_k(const cy_cu_contract *q) { return cy_cu_has_phases(q->c) ? "phase->k" : q->k; }

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

static void print_b(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  cy_cu_function_open(q, "CY_INLINE i64 $S_b_inside($P, int z, int k, int n) {\n");
  if (p->form->packed_k) {
    cy_cu_line(p, "const i64 at = ((i64)%s * %s + n) * %lld + %sk;", cy_cu_is_conv(c) ? group_text(c) : "0", q->n,
               (long long)p->form->packed_k, cy_cu_has_phases(c) ? "phase->base + " : "");
  } else if (!cy_cu_is_conv(c)) {
    cy_cu_line(p, "i64 at = (i64)k * %s + (i64)n * %s;", cy_cu_dim(p, c->b_k), cy_cu_dim(p, c->b_n));
    cy_cu_print_batch(q, c->b_batch);
  } else {
    cy_cu_line(p, "const int depth = (int)(%s / %lld);", cy_cu_dim(p, c->channels_in), (long long)c->group);
    if (cy_cu_has_phases(c)) {
      cy_cu_line(p, "const int own = k / depth, channel = k %% depth;");
      cy_cu_phase_flat_tap(q);
      cy_cu_line(p, "const i64 row = ((i64)phase->z * depth + channel) * %s + n;", q->n);
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

void cy_cu_print_wide(cy_cu *p, const char *name, bool runs, const cy_dim *strides, int n, cy_karg arg, int64_t chunk) {
  bool never = !runs;
  int64_t v;
  fprintf(p->out, "  const b1 %s = ", name);
  for (int i = 0; i < n; i++)
    never |= cy_dim_is_const(p->g, strides[i], &v) && v % chunk != 0;
  if (never) {
    fprintf(p->out, "0;\n");
    return;
  }
  fprintf(p->out, "(u64)a%u %% 16 == 0", arg);
  for (int i = 0; i < n; i++)
    if (!cy_dim_is_const(p->g, strides[i], &v))
      fprintf(p->out, " && %s %% %lld == 0", cy_cu_dim(p, strides[i]), (long long)chunk);
  fprintf(p->out, ";\n");
}

/* The variables of a result, but for that along n. */
static void coordinates(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  if (cy_cu_has_phases(c)) {
    cy_cu_phase_coordinates(q);
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

const cy_stmt *cy_cu_epilogue(cy_kernel *k) {
  const cy_stmt *body = cy_kernel_body(k);
  return cy_kernel_contraction(k)->kind == CY_CONTRACT_ATTENTION ? body->next->next : body;
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
  const char *type = cy_cu_var_type(p, p->form->vector_var);
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
  if (q->p->form->vector)
    put_chunk(q);
}

void cy_cu_contract_begin(cy_cu_contract *q, cy_cu *p, const char *symbol) {
  const cy_contraction *c = cy_kernel_contraction(p->k);
  *q = (cy_cu_contract){.p = p, .c = c, .symbol = symbol, .type = cy_cu_type(cy_kernel_local_dtype(p->k, c->acc))};
  cy_cu_sizes size = cy_cu_sizes_of(p->k);
  size_texts(q, &size);
  cy_cu_phase_print(q);
  print_row(q);
  print_a(q);
  print_b(q);
  cy_cu_contract_put(q);
}

/* ---- packed weights ---- */

/* Where each weight lies, in elements, and what its packed rows are. */
typedef struct packing {
  int64_t groups, columns, taps, depth;      /* extents; */
  int64_t group_s, column_s, tap_s, depth_s; /* strides of the model's form */
  int64_t row, offset, bytes;                /* elements of a packed row; of the first weight; bytes of an element */
  int64_t *place;                            /* [taps] where a tap begins in a packed row; NULL: one behind the other */
} packing;

static void write_packed(const cy_graph *g, cy_val value, const void *form, uint32_t piece, void *out) {
  (void)piece;
  const packing *f = form;
  const uint8_t *from = cy_value_of(g, value)->data.bytes;
  uint8_t *to = out;
  memset(out, 0, (size_t)(f->groups * f->columns * f->row * f->bytes));
  for (int64_t z = 0; z < f->groups; z++)
    for (int64_t n = 0; n < f->columns; n++, to += f->row * f->bytes)
      for (int64_t t = 0; t < f->taps; t++)
        for (int64_t c = 0; c < f->depth; c++) {
          int64_t at = f->offset + z * f->group_s + n * f->column_s + t * f->tap_s + c * f->depth_s;
          memcpy(to + ((f->place ? f->place[t] : t * f->depth) + c) * f->bytes, from + at * f->bytes, (size_t)f->bytes);
        }
}

static bool fill_packing(cy_kernel *k, packing *f) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  const cy_karg_info *args;
  cy_cu_sizes s = cy_cu_sizes_of(k);
  cy_kernel_args(k, &args);
  int64_t bits = cy_dtype_of(args[c->b].dtype)->bits, deep;
  *f = (packing){.groups = 1, .taps = 1, .bytes = bits / 8, .tap_s = 1};
  if (!c->b_const || bits < 8 || !cy_dim_is_const(g, s.n, &f->columns) || !cy_dim_is_const(g, s.k, &deep))
    return false;
  if (!cy_cu_is_conv(c)) {
    for (int i = 0; i < c->nbatch; i++)
      if (!cy_dim_is(g, c->b_batch[i], 0))
        return false;
    f->depth = deep;
    return cy_dim_is_const(g, c->b_k, &f->depth_s) && cy_dim_is_const(g, c->b_n, &f->column_s);
  }
  if (cy_cu_is_depthwise(g, c)) { /* [tap][channel] */
    f->columns = f->depth_s = deep;
    f->column_s = 1;
    f->depth = c->group;
    return true;
  }
  f->groups = c->group;
  f->taps = cy_cu_taps(c);
  if (!cy_dim_is_const(g, cy_cu_per_group(g, c, c->channels_in), &f->depth))
    return false;
  deep = f->depth * f->taps;
  f->group_s = f->columns * deep;
  f->column_s = c->kind == CY_CONTRACT_CONV ? deep : f->taps;
  f->depth_s = c->kind == CY_CONTRACT_CONV ? f->taps : f->columns * f->taps;
  return true;
}

bool cy_cu_packable(cy_kernel *k) {
  packing f;
  return fill_packing(k, &f);
}

static int64_t packed_row(const cy_contraction *c, const packing *f) {
  int64_t chunk = 16 / f->bytes;
  return cy_cu_has_phases(c) ? cy_cu_phase_row(c, f->depth, chunk) : cy_round_up(f->taps * f->depth, chunk);
}

static void prepare_packed(const cy_machine *m, cy_kernel_plan *plan, cy_cuda_form *form) {
  const cy_cu_generator *generator = form->generator;
  cy_kernel *k = plan->kernel;
  const cy_karg_info *args;
  cy_dim conv[CY_CUDA_PROBLEM_FIELDS];
  packing f;
  /* cuDNN wants channels innermost, too; of a transposed convolution the runtime makes them so */
  bool for_cudnn = cy_kernel_contraction(k)->kind == CY_CONTRACT_CONV && cy_cu_taps(cy_kernel_contraction(k)) > 1 &&
                   cy_cu_conv_match(m, k, form, true, conv);
  bool wanted = generator->wants_packed && generator->wants_packed(form, k);
  if ((!wanted && !for_cudnn) || !fill_packing(k, &f))
    return;
  cy_kernel_args(k, &args);
  plan->dead_arg = (int32_t)cy_kernel_contraction(k)->b;
  plan->reads_dead = cy_kernel_rereads_b(k);
  form->packed_k = packed_row(cy_kernel_contraction(k), &f);
  form->packed_arg = cy_kernel_add_arg(k, CY_ARG_READ, args[plan->dead_arg].dtype, 0);
  plan->packed_arg = (int32_t)form->packed_arg;
}

void cy_cuda_contract_prepare(const cy_machine *m, cy_kernel_plan *plan, cy_cuda_form *form) {
  prepare_packed(m, plan, form);
  if (!cy_cuda_tma(plan->kernel, form))
    form->tma_blocks = 0;
  cy_cuda_split_prepare(plan->kernel, form);
  plan->shared_arg = form->shares ? (int32_t)form->share_arg : -1;
}

/* Where taps of a transposed convolution begin; the key with what this depends on. */
static const char *place_taps(const cy_contraction *c, packing *f, cy_arena *arena, const char *key) {
  if (!cy_cu_has_phases(c))
    return key;
  f->place = CY_NEW_ARRAY(arena, int64_t, f->taps);
  for (int64_t t = 0; t < f->taps; t++)
    f->place[t] = cy_cu_phase_place(c, t, f->depth, 16 / f->bytes);
  for (int i = 0; i < c->nspatial; i++)
    key = cy_arena_printf(arena, "%s %lld/%lld/%lld", key, (long long)c->kernel[i], (long long)c->stride[i],
                          (long long)c->dilation[i]);
  return key;
}

uint32_t cy_cuda_contract_pack(cy_program *p, cy_kernel_plan *plan, cy_val v, int64_t offset) {
  const cy_cuda_form *form = cy_cuda_form_of(plan);
  cy_arena *arena = cy_graph_arena(p->g);
  packing *f = CY_NEW(arena, packing);
  if (!fill_packing(plan->kernel, f))
    cy_bug("kernel '%s': weights cannot be packed", plan->symbol);
  f->row = form->packed_k;
  f->offset += offset / f->bytes;
  const char *key = cy_arena_printf(
      arena, "cuda %lld,%lld,%lld,%lld %lld,%lld,%lld,%lld %lld,%lld", (long long)f->groups, (long long)f->columns,
      (long long)f->taps, (long long)f->depth, (long long)f->group_s, (long long)f->column_s, (long long)f->tap_s,
      (long long)f->depth_s, (long long)f->row, (long long)f->offset);
  key = place_taps(cy_kernel_contraction(plan->kernel), f, arena, key);
  return cy_program_add_constant(p, v, (uint64_t)(f->groups * f->columns * f->row * f->bytes), key, write_packed, f, 1);
}

/* ---- the generators ---- */

static const cy_cu_generator *const generators[] = {&cy_cu_depthwise, &cy_cu_gemv,    &cy_cu_narrow,
                                                    &cy_cu_matrix,    &cy_cu_singles, &cy_cu_plain};

static const cy_cu_generator *generator_of(const cy_machine *m, cy_kernel *k) {
  if (cy_kernel_contraction(k)->kind == CY_CONTRACT_ATTENTION)
    return cy_cu_attention.supports(m, k) ? &cy_cu_attention : NULL;
  if (cy_kernel_contraction(k)->a_rounded)
    return cy_cu_matrix.supports(m, k) ? &cy_cu_matrix : NULL;
  for (size_t i = 0; i < sizeof generators / sizeof *generators; i++)
    if (generators[i]->supports(m, k))
      return generators[i];
  return NULL;
}

bool cy_cuda_contract_finds_maxima(const cy_machine *m, cy_kernel *k) {
  const cy_cu_generator *generator = generator_of(m, k);
  return generator == &cy_cu_matrix || generator == &cy_cu_singles;
}

/* What products of integers are rounded to, comes rounded; attention rounds itself. */
bool cy_cuda_contract_supports(const cy_machine *m, cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  return (!c->rounded || c->kind == CY_CONTRACT_ATTENTION) && generator_of(m, k) != NULL;
}

/* Of weights in blocks. */
static const char *weights_of(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_dtype b = c->b_bits ? cy_kernel_arg_dtype(k, c->b) : CY_NONE;
  if (!b)
    return NULL;
  b = c->b_codes ? c->b_codes : b;
  return cy_dtype_is_float(b) ? cy_dtype_of(b)->name : c->b_bits == 4 ? "int4" : "int8";
}

void cy_cuda_contract_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_form *form) {
  const cy_cu_generator *generator = generator_of(m, k);
  form->generator = generator;
  form->weights = weights_of(k);
  generator->schedule(m, k, form);
}

void cy_cuda_contract_print(cy_cu *p, const char *symbol) {
  ((const cy_cu_generator *)p->form->generator)->print(p, symbol);
}

bool cy_cuda_has_warpgroups(const cy_machine *m) {
  const cy_cuda_machine *c = m->state;
  for (int i = 0; c && i < c->narch; i++)
    if (c->arch[i].number == 90 && c->arch[i].suffix)
      return true;
  return false;
}

bool cy_cuda_has_float8(const cy_machine *m) {
  const cy_cuda_machine *c = m->state;
  for (int i = 0; c && i < c->narch; i++)
    if (c->arch[i].number < CY_CUDA_FLOAT8_ARCH)
      return false;
  return c && c->narch > 0;
}

const char *cy_cuda_contract_name(const cy_machine *m, const cy_cuda_form *form, cy_arena *arena) {
  const cy_cu_generator *generator = form->generator;
  const char *kind = generator->name;
  if (form->weights)
    kind = cy_arena_printf(arena, "%s %s weights", kind, form->weights);
  const char *name = cy_arena_printf(arena, "%s %dx%dx%d", kind, form->tile.m, form->tile.n, form->tile.k);
  if (form->tma_blocks)
    name = cy_arena_printf(arena, "%s, tma 128x%d%s on sm_90a", name, form->tma_n, form->tma_pingpong ? " ping-pong" : "");
  else if (form->warpgroups && cy_cuda_has_warpgroups(m))
    name = cy_arena_printf(arena, "%s, wgmma on sm_90a", name);
  const char *shared = generator == &cy_cu_attention ? "keys" : "k", *max = form->shares_vary ? "up to " : "";
  return form->shares ? cy_arena_printf(arena, "%s, %s in %s%d", name, shared, max, form->shares) : name;
}
