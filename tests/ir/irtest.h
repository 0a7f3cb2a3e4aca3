/* SPDX-License-Identifier: Apache-2.0 */
/* irtest.h - a graph to test with, made and thrown away around each test. */
#ifndef CY_TESTS_IRTEST_H
#define CY_TESTS_IRTEST_H

#include "../check.h"
#include "../../ir/ir.h"

#include <stdlib.h>

static cy_diag_sink *diag;
static cy_graph *g;

static inline void open_graph(void) {
  diag = cy_diag_create();
  g = cy_graph_create(diag, "test.onnx");
}

static inline void close_graph(void) {
  cy_graph_destroy(g);
  cy_diag_destroy(diag);
}

/* A type from its text, "f32[2,s]". */
static inline cy_type type(const char *text) {
  size_t n = strcspn(text, "[");
  cy_dim dims[CY_MAX_RANK];
  int rank = 0;
  const char *p = text + n + 1;
  while (*p && *p != ']') {
    dims[rank++] = cy_dim_parse(g, p, &p);
    p += *p == ',';
  }
  return cy_type_make(cy_dtype_by_name(text, n), rank, dims);
}

static inline cy_val input(const char *name, const char *text) {
  cy_type t = type(text);
  return cy_graph_add_input(g, name, &t);
}

/* A constant of doubles, converted. */
static inline cy_val numbers(const char *text, const double *v) {
  cy_type t = type(text);
  int64_t n = 1;
  for (int i = 0; i < t.rank; i++) {
    int64_t d = 0;
    cy_dim_is_const(g, t.dim[i], &d);
    n *= d;
  }
  void *bytes = cy_arena_alloc(cy_graph_arena(g), (size_t)n * 8 + 8);
  for (int64_t i = 0; i < n; i++) {
    cy_scalar s = {.f = v[i]};
    cy_scalar_store(bytes, (cy_dtype)t.dtype, (uint64_t)i, cy_scalar_eval(CY_OP_cast, CY_F64, (cy_dtype)t.dtype, &s));
  }
  return cy_build_const(g, &t, bytes, ((uint64_t)n * (uint64_t)cy_dtype_of((cy_dtype)t.dtype)->bits + 7) / 8);
}

static inline const char *type_text(cy_val v) { return v ? cy_type_text(g, &cy_value_of(g, v)->type) : "(none)"; }

/* Integer contents as "a,b,c"; "?" when unknown. */
static inline const char *elems_text(cy_val v) {
  uint32_t n;
  const cy_dim *d = cy_value_elems(g, v, &n);
  char *s = cy_arena_printf(cy_graph_arena(g), "%s", d ? "" : "?");
  for (uint32_t i = 0; d && i < n; i++)
    s = cy_arena_printf(cy_graph_arena(g), "%s%s%s", s, i ? "," : "", cy_dim_text(g, d[i]));
  return s;
}

/* Constant contents as "a,b,c". */
static inline const char *floats_text(cy_val v) {
  uint32_t n;
  const double *d = cy_value_floats(g, v, &n);
  char *s = cy_arena_printf(cy_graph_arena(g), "%s", d ? "" : "?");
  for (uint32_t i = 0; d && i < n; i++)
    s = cy_arena_printf(cy_graph_arena(g), "%s%s%.6g", s, i ? "," : "", d[i]);
  return s;
}

/* All diagnostics so far as text; the sink starts anew. */
static inline const char *errors(void) {
  static char text[4096];
  FILE *f = fmemopen(text, sizeof text, "w");
  cy_diag_print(diag, f);
  fclose(f);
  return text;
}

/* A test function around which a graph is opened and closed. */
#define GRAPH_TEST(name)                                                                                               \
  static void name##_body(void);                                                                                       \
  static void name(void) {                                                                                             \
    open_graph();                                                                                                      \
    name##_body();                                                                                                     \
    close_graph();                                                                                                     \
  }                                                                                                                    \
  static void name##_body(void)

#endif
