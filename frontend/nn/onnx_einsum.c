/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_einsum.c - Einsum for any equation.
 *
 * In:  an equation such as "bij,bjk->bik" or "...ii->...i". Each operand is first brought to distinct labels (a
 * repeated label is a diagonal). Then operands are joined from left to right by one batched matrix product each: labels
 * of both that are still needed are batch, labels of both that are not are contracted, labels of one that are no longer
 * needed are summed away before. At the end the labels are permuted into the order of the output: the factors of the
 * last product stand in the order of their labels there, so that it need not be transposed. An ellipsis stands for
 * labels of its own, aligned at the right.
 */
#include "frontend/import_int.h"

#include <ctype.h>
#include <string.h>

#define MAX_LABELS 64 /* 0..51 letters, 52.. the ellipsis' axes */
#define SET(v) cy_importer_set(im, n, 0, (v))

typedef struct operand {
  cy_val v;
  int n;
  uint8_t label[2 * CY_MAX_RANK];
} operand;

static cy_val bad_equation(cy_importer *im, const char *why) {
  return cy_build_error(im->g, "attribute 'equation'", "%s", why);
}

/* Labels of one term; *out_dots: position of the ellipsis, -1 when there is none. */
static bool read_term(cy_importer *im, const char *text, size_t len, operand *out, int *out_dots) {
  *out_dots = -1;
  out->n = 0;
  for (size_t i = 0; i < len; i++) {
    if (text[i] == ' ')
      continue;
    if (i + 3 <= len && strncmp(text + i, "...", 3) == 0) {
      if (*out_dots >= 0)
        return bad_equation(im, "two ellipses in one term");
      *out_dots = out->n;
      i += 2;
    } else if (isalpha((unsigned char)text[i])) {
      if (out->n == CY_MAX_RANK)
        return bad_equation(im, "too many labels in one term");
      out->label[out->n++] = (uint8_t)(islower((unsigned char)text[i]) ? text[i] - 'a' : text[i] - 'A' + 26);
    } else {
      return bad_equation(im, "expected letters, '...', ',' and '->'");
    }
  }
  return true;
}

static void open_dots(operand *o, int dots, int width, int widest) {
  if (dots < 0 || width <= 0)
    return;
  memmove(o->label + dots + width, o->label + dots, (size_t)(o->n - dots));
  for (int i = 0; i < width; i++)
    o->label[dots + i] = (uint8_t)(52 + widest - width + i);
  o->n += width;
}

static int index_of(const operand *o, int label) {
  for (int i = 0; i < o->n; i++)
    if (o->label[i] == label)
      return i;
  return -1;
}

/* A label that occurs twice in one operand: keep its diagonal, where both indices are equal. */
static bool take_diagonals(cy_importer *im, operand *o) {
  for (int i = 0; i < o->n; i++) {
    for (int k = i + 1; k < o->n; k++) {
      if (o->label[k] != o->label[i])
        continue;
      const cy_type t = *cy_onnx_type(im, o->v);
      if (cy_onnx_clash(im, t.dim[i], t.dim[k]))
        return cy_build_error(im->g, NULL, "expected axes of one label to have one size, found %s and %s",
                              cy_dim_text(im->g, t.dim[i]), cy_dim_text(im->g, t.dim[k]));
      cy_graph_require(im->g, t.dim[i], t.dim[k], CY_REQUIRE_EQUAL);
      cy_val hit =
          BINARY(eq, cy_build_iota(im->g, CY_I64, t.dim, t.rank, i), cy_build_iota(im->g, CY_I64, t.dim, t.rank, k));
      int64_t axis = k;
      o->v = cy_build_reduce(im->g, CY_OP_reduce_sum, SELECT(hit, o->v, LIKE(o->v, 0)), &axis, 1, false);
      if (!o->v)
        return false;
      memmove(o->label + k, o->label + k + 1, (size_t)(o->n - k - 1));
      o->n--;
      k--;
    }
  }
  return true;
}

static bool sum_unneeded(cy_importer *im, operand *o, const bool *needed) {
  int64_t axes[CY_MAX_RANK];
  uint32_t count = 0;
  int kept = 0;
  for (int i = 0; i < o->n; i++) {
    if (needed[o->label[i]])
      o->label[kept++] = o->label[i];
    else
      axes[count++] = i;
  }
  o->n = kept;
  if (count)
    o->v = cy_build_reduce(im->g, CY_OP_reduce_sum, o->v, axes, count, false);
  return o->v != 0;
}

/* Axes of o in the order of labels, absent ones as 1; then grouped into [batch.., rows, columns]. */
static cy_val arrange(cy_importer *im, const operand *o, const uint8_t *batch, int nb, const uint8_t *first, int n1,
                      const uint8_t *second, int n2) {
  const cy_type t = *cy_onnx_type(im, o->v);
  int64_t perm[CY_MAX_RANK];
  cy_dim d[CY_MAX_RANK];
  int np = 0, rank = 0;
  for (int i = 0; i < nb; i++) {
    int at = index_of(o, batch[i]);
    d[rank++] = t.dim[at];
    perm[np++] = at;
  }
  const uint8_t *groups[2] = {first, second};
  const int sizes[2] = {n1, n2};
  for (int k = 0; k < 2; k++) {
    d[rank] = cy_dim_const(im->g, 1);
    for (int i = 0; i < sizes[k]; i++) {
      int at = index_of(o, groups[k][i]);
      d[rank] = cy_dim_mul(im->g, d[rank], t.dim[at]);
      perm[np++] = at;
    }
    rank++;
  }
  return cy_build_reshape(im->g, cy_build_transpose(im->g, o->v, perm), d, rank);
}

/* Labels to dims: of an operand that has more than 1 there (broadcast of ellipsis axes). */
static cy_dim extent(cy_importer *im, const operand *a, const operand *b, int label) {
  int ia = index_of(a, label), ib = index_of(b, label);
  cy_dim da = ia >= 0 ? cy_onnx_type(im, a->v)->dim[ia] : 0, db = ib >= 0 ? cy_onnx_type(im, b->v)->dim[ib] : 0;
  return !da || (db && cy_dim_is(im->g, da, 1)) ? db : da;
}

static bool join(cy_importer *im, operand *a, const operand *b, const bool *needed) {
  operand both = {0}, left = {0}, right = {0}, inner = {0};
  for (int i = 0; i < a->n; i++) {
    operand *to = index_of(b, a->label[i]) < 0 ? &left : needed[a->label[i]] ? &both : &inner;
    to->label[to->n++] = a->label[i];
  }
  for (int i = 0; i < b->n; i++)
    if (index_of(a, b->label[i]) < 0)
      right.label[right.n++] = b->label[i];
  operand out = {0};
  cy_dim d[2 * CY_MAX_RANK];
  const operand *order[3] = {&both, &left, &right};
  for (int k = 0; k < 3; k++) {
    for (int i = 0; i < order[k]->n; i++) {
      d[out.n] = extent(im, a, b, order[k]->label[i]);
      out.label[out.n++] = order[k]->label[i];
    }
  }
  if (out.n > CY_MAX_RANK || both.n + 2 > CY_MAX_RANK)
    return bad_equation(im, "too many labels in an intermediate result");
  cy_val x = arrange(im, a, both.label, both.n, left.label, left.n, inner.label, inner.n);
  cy_val y = arrange(im, b, both.label, both.n, inner.label, inner.n, right.label, right.n);
  cy_val v = inner.n ? cy_build_matmul(im->g, x, y, x ? (cy_dtype)cy_onnx_type(im, x)->dtype : CY_F32) : MUL(x, y);
  out.v = cy_build_reshape(im->g, v, d, out.n);
  *a = out;
  return out.v != 0;
}

/* Place in `out` of a's first label that b lacks; out->n: none. */
static int first_alone(const operand *out, const operand *a, const operand *b) {
  for (int i = 0; i < out->n; i++)
    if (index_of(a, out->label[i]) >= 0 && index_of(b, out->label[i]) < 0)
      return i;
  return out->n;
}

typedef struct equation {
  operand *terms, out;
  uint32_t n;
} equation;

/* Without "->" the output has the ellipsis, then the labels that occur once, in alphabetical order (upper case first).
 */
static void implicit_output(equation *e, int widest) {
  for (int i = 0; i < widest; i++)
    e->out.label[e->out.n++] = (uint8_t)(52 + i);
  for (int k = 0; k < 52; k++) {
    int label = (k + 26) % 52, times = 0;
    for (uint32_t t = 0; t < e->n; t++)
      for (int i = 0; i < e->terms[t].n; i++)
        times += e->terms[t].label[i] == label;
    if (times == 1 && e->out.n < CY_MAX_RANK)
      e->out.label[e->out.n++] = (uint8_t)label;
  }
}

static bool parse(cy_importer *im, const cy_onnx_node *n, const char *text, equation *e) {
  const char *arrow = strstr(text, "->"), *p = text, *end = arrow ? arrow : text + strlen(text);
  int *dots = CY_NEW_ARRAY(im->arena, int, n->nin + 1), widest = 0;
  e->n = n->nin;
  e->terms = CY_NEW_ARRAY(im->arena, operand, n->nin + 1);
  for (uint32_t t = 0; t < n->nin; t++) {
    const char *stop = p ? memchr(p, ',', (size_t)(end - p)) : NULL;
    if (!p || !n->in[t])
      return bad_equation(im, "fewer terms than inputs");
    if (!read_term(im, p, (size_t)((stop ? stop : end) - p), &e->terms[t], &dots[t]))
      return false;
    e->terms[t].v = n->in[t];
    int width = cy_onnx_type(im, n->in[t])->rank - e->terms[t].n;
    if (width < 0 || (dots[t] < 0 && width != 0))
      return cy_build_error(im->g, "attribute 'equation'", "term %u has %d labels, its input is %s", t, e->terms[t].n,
                            cy_type_text(im->g, cy_onnx_type(im, n->in[t])));
    widest = width > widest ? width : widest;
    p = stop ? stop + 1 : NULL;
  }
  if (p)
    return bad_equation(im, "more terms than inputs");
  for (uint32_t t = 0; t < n->nin; t++)
    open_dots(&e->terms[t], dots[t], cy_onnx_type(im, n->in[t])->rank - e->terms[t].n, widest);
  if (!arrow) {
    implicit_output(e, widest);
    return true;
  }
  int at;
  if (!read_term(im, arrow + 2, strlen(arrow + 2), &e->out, &at))
    return false;
  if (at >= 0 && e->out.n + widest > CY_MAX_RANK)
    return bad_equation(im, "too many labels in the output");
  open_dots(&e->out, at, widest, widest);
  return true;
}

/* Ellipsis axes of extent 1 that others broadcast. */
static bool broadcast_terms(cy_importer *im, equation *e) {
  for (uint32_t t = 0; t < e->n; t++) {
    cy_type type = *cy_onnx_type(im, e->terms[t].v);
    bool changed = false;
    for (int i = 0; i < e->terms[t].n; i++) {
      for (uint32_t u = 0; u < e->n && cy_dim_is(im->g, type.dim[i], 1); u++) {
        cy_dim d = extent(im, &e->terms[t], &e->terms[u], e->terms[t].label[i]);
        changed = changed || d != type.dim[i];
        type.dim[i] = d;
      }
    }
    if (changed && !(e->terms[t].v = cy_build_expand(im->g, e->terms[t].v, type.dim, type.rank)))
      return false;
  }
  return true;
}

IMPORT(einsum) {
  equation e = {0};
  const char *text = cy_onnx_string(im, n, "equation", "");
  if (!parse(im, n, text, &e))
    return false;
  for (uint32_t t = 0; t < e.n; t++)
    if (!take_diagonals(im, &e.terms[t]))
      return false;
  if (!broadcast_terms(im, &e))
    return false;
  operand acc = e.terms[0];
  for (uint32_t t = 0; t < e.n; t++) {
    bool later[MAX_LABELS] = {false}, here[MAX_LABELS], other[MAX_LABELS];
    for (int i = 0; i < e.out.n; i++)
      later[e.out.label[i]] = true;
    for (uint32_t u = t + 1; u < e.n; u++)
      for (int i = 0; i < e.terms[u].n; i++)
        later[e.terms[u].label[i]] = true;
    if (t == 0) {
      if (!sum_unneeded(im, &acc, later))
        return false;
      continue;
    }
    memcpy(here, later, sizeof here);
    memcpy(other, later, sizeof other);
    for (int i = 0; i < e.terms[t].n; i++)
      here[e.terms[t].label[i]] = true;
    for (int i = 0; i < acc.n; i++)
      other[acc.label[i]] = true;
    if (!sum_unneeded(im, &acc, here) || !sum_unneeded(im, &e.terms[t], other))
      return false;
    operand next = e.terms[t];
    if (t + 1 == e.n && first_alone(&e.out, &next, &acc) < first_alone(&e.out, &acc, &next)) {
      next = acc;
      acc = e.terms[t];
    }
    if (!join(im, &acc, &next, later))
      return false;
  }
  int64_t perm[CY_MAX_RANK];
  for (int i = 0; i < e.out.n; i++) {
    int at = index_of(&acc, e.out.label[i]);
    if (at < 0 || index_of(&e.out, e.out.label[i]) != i)
      return bad_equation(im, "every label of the output must occur once there, and in an input");
    perm[i] = at;
  }
  return SET(cy_build_transpose(im->g, acc.v, perm));
}
