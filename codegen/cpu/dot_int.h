/* dot_int.h - what dot.c and dot_pixels.c share: the plan of a contraction by groups of k, and a task's place. */
#ifndef CY_CPU_DOT_INT_H
#define CY_CPU_DOT_INT_H

#include "dot.h"

typedef struct dot_plan {
  const cy_dot_desc *d;
  const char *name;
  int a_slot, b_slot, scratch_slot, shared_slot;
  bool packed;
  cy_dot_form form;
  cy_tile tile;
  int64_t nr, mb, nb;
  int64_t unit; /* tasks, and groups of panels in them, have multiples of so many panels */
  cy_axis axis[3];
  int64_t c, taps, groups; /* convolution: channels of a group, taps */
  int64_t n, k;            /* 0: not known */
  int64_t rows, image;     /* rows: 0 when not known; of an image, of a convolution */
  bool dense;              /* rows follow each other without gaps, as do their k */
  bool fresh;              /* b is packed by the task that multiplies with it, the only one to do so */
} dot_plan;

typedef struct dot_frame {
  const dot_plan *p;
  cy_dot_rows convert;
  V scratch, row_bytes, row_table, panel_bytes;
  /* of the task */
  V row0, product, matrix, a, b, sums, col0;
  V stay;         /* so many rows are read where they lie */
  V first, again; /* of cut weights: see dot.h */
  V start;        /* what sums begin with, from panel p0 on */
  V row_sums;     /* of the task's rows; rows_summed */
  V idx[CY_GEMM_BATCH];
} dot_frame;

/* The element of a so many behind the one at `from`. */
static inline V cy_dot_elements_on(cy_cg *cg, const dot_plan *p, V from, V elements) {
  return cy_gep(cg, from, cy_dot_source_bytes(cg, p->form, elements));
}

/* ---- dot.c ---- */
/* What stands behind the last k meets zeros of b, but NaN times zero is none. Called before the rest of the row is
 * written. */
void cy_dot_row_end(cy_cg *cg, const dot_frame *f, V dst);

/* ---- dot_pixels.c ---- */
/* Output pixel `flat` of a convolution: image, then the axes. */
void cy_dot_split_pixel(cy_cg *cg, const dot_plan *p, V flat, V *image, V *o);
/* Rows [0, count) of a task of a convolution into scratch. */
void cy_dot_pixels(cy_cg *cg, const dot_frame *f, V count);

#endif
