/* SPDX-License-Identifier: Apache-2.0 */
/* copy_rows.h - elements of feature maps and matrices on their way to a worker's scratch, of whatever type.
 *
 * A row of a feature map is copied position by position, each being some elements side by side; positions beside the row
 * count as zeros, or as the zero point. Sizes may be constants or not. Nothing is read or written beyond what is named.
 */
#ifndef CY_CPU_COPY_ROWS_H
#define CY_CPU_COPY_ROWS_H

#include "emit.h"

/* What becomes of elements: they stay as they are, are shifted to the other kind of byte, or become i16 less a zero point. */
typedef struct cy_elements {
  unsigned from, to;  /* bytes of one, in memory and in scratch; only bytes change */
  bool is_signed;     /* to > from */
  bool shifted;       /* to == from: by 128 */
  LLVMValueRef minus; /* to > from: the zero point, i16 */
  LLVMValueRef blank; /* i8: each byte in scratch of an element that counts as zero */
} cy_elements;
cy_elements cy_elements_plain(cy_cg *cg, unsigned bytes); /* zero being 0 */
/* So many of them in a vector of whatever type, as scratch has them. */
LLVMValueRef cy_elements_change(cy_cg *cg, const cy_elements *elements, LLVMValueRef v, unsigned lanes);

/* dst[0 .. n) = src[0 .. n) */
void cy_copy_run(cy_cg *cg, const cy_elements *elements, LLVMValueRef dst, LLVMValueRef src, LLVMValueRef n);
/* The same at once for a few bytes, room being how many may be written; what comes behind them is written later. false: has
 * done nothing. */
bool cy_copy_run_over(cy_cg *cg, const cy_elements *elements, LLVMValueRef dst, LLVMValueRef src, int64_t n,
                      int64_t room);
/* n positions of c elements each, which come to lie side by side; stride: elements of the source from one to the next. */
void cy_copy_positions(cy_cg *cg, const cy_elements *elements, LLVMValueRef dst, LLVMValueRef src, LLVMValueRef n,
                       int64_t c, LLVMValueRef stride);
/* n elements that count as zeros. */
void cy_copy_blank(cy_cg *cg, const cy_elements *elements, LLVMValueRef dst, LLVMValueRef n);
void cy_fill_zero(cy_cg *cg, LLVMValueRef dst, LLVMValueRef n); /* n floats */

/* A row of a feature map, of which every inc-th position is wanted. */
typedef struct cy_map_row {
  LLVMValueRef at, exists;        /* position 0; i1: is there such a row? */
  LLVMValueRef positions, stride; /* how many it has; elements from one to the next */
  int64_t c, inc;                 /* elements of one */
} cy_map_row;
/* n positions from `first` on, which may lie beside the row: left border, positions, right border. */
void cy_copy_row(cy_cg *cg, const cy_elements *elements, LLVMValueRef dst, const cy_map_row *row, LLVMValueRef first,
                 LLVMValueRef n);

#endif
