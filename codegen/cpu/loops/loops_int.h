/* SPDX-License-Identifier: Apache-2.0 */
/* loops_int.h - what the files that print loop IR as LLVM IR share.
 *
 * A value of dtype t is in a register as: bool i1; integers their own width (those under 8 bits: i8); f32 and f64
 * themselves; every smaller float as an f32 that the small type can represent. In memory it has its storage type (bool
 * i8, ..). Inside a lane loop an expression is uniform (one scalar for all lanes) or varying (a vector of `lanes`).
 */
#ifndef CY_CPU_LOOPS_INT_H
#define CY_CPU_LOOPS_INT_H

#include "loops.h"

typedef LLVMValueRef V;
typedef LLVMTypeRef T;

enum { CY_LP_UNROLL = 4 };

typedef struct cy_lp {
  cy_cg *cg;
  cy_kernel *k;
  const cy_karg_info *args;
  const cy_dim *dims;
  uint32_t nargs, ndims, nexprs;
  V *arg;               /* pointers */
  V *size;              /* values of dims */
  V *var;               /* of variables; the lane variable: of its first lane */
  V *slot;              /* scalar stack slot of a local */
  V *lane_slot;         /* vector slot while the local varies along the lanes, or partial results; else NULL */
  cy_var lane;          /* the lane variable, 0 outside of lane loops */
  unsigned lanes;       /* 1 outside */
  unsigned wrap;        /* lanes go through rows of so many columns: see loops_flat.c; 0: they do not */
  unsigned part;        /* at a multiple of so many begins the lane variable, lanes being at most these; 0: anywhere */
  V new_lanes;          /* lanes that were not done before, NULL: all (see lane_tail) */
  const uint8_t *set;   /* locals that the lane loop sets: those are not reductions */
  uint8_t *vary;        /* of expressions: 0 not known yet, 1 uniform, 2 varying */
  V *uniform, *varying; /* values computed for the current statement */
  V *param;             /* of loads from parameters: done at the function's entry */
  cy_expr *log;         /* which ones, in order; expression << 1 | is varying */
  uint32_t nlog;
  bool *guarded;      /* computed from a load that happened under the guard of now */
  uint32_t forgotten; /* how many values were forgotten at the ends of guards */
  V guard;            /* loads happen only where this is true; NULL: everywhere */
} cy_lp;

/* loops_types.c: memory, zeroed; free() it */
void *cy_lp_zeroed(size_t n, size_t size);
bool *cy_lp_marks(const cy_kernel *k); /* one for each expression */

/* loops_types.c: types of n lanes, 1 = scalars; constants and lanes */
static inline T lanes_of(T t, unsigned n) { return n > 1 ? LLVMVectorType(t, n) : t; }
static inline T lane_type(T t) { return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? LLVMGetElementType(t) : t; }
static inline bool small_float(cy_dtype t) { return cy_dtype_is_float(t) && cy_dtype_of(t)->bits < 32; }
T cy_lp_reg(cy_cg *cg, cy_dtype t, unsigned n);
T cy_lp_mem(cy_cg *cg, cy_dtype t, unsigned n); /* storage type */
unsigned cy_lp_bytes(cy_dtype t);
bool cy_lp_packed(cy_dtype t);   /* several elements in a byte */
V cy_lp_in_lanes(T type, V one); /* the constant in all lanes of a type */
V cy_lp_const(cy_cg *cg, cy_dtype t, cy_scalar c, unsigned n);
V cy_lp_lane(cy_cg *cg, V v, unsigned i, unsigned n); /* scalar */
V cy_lp_set_lane(cy_cg *cg, V v, V x, unsigned i);

/* loops_ops.c: arithmetic on registers; n lanes, 1 = scalars */
V cy_lp_from_mem(cy_cg *cg, V v, cy_dtype t, unsigned n);
V cy_lp_to_mem(cy_cg *cg, V v, cy_dtype t, unsigned n);
V cy_lp_op(cy_cg *cg, cy_op op, cy_dtype in, cy_dtype out, V *a, int nargs, unsigned n);
V cy_lp_cast_unsaturated(cy_cg *cg, V v, cy_dtype in, cy_dtype out, unsigned n);
void cy_lp_is_number(cy_cg *cg, V load); /* what it loads is no NaN */

/* loops_f8.c */
V cy_lp_small_float_decode(cy_cg *cg, V bits, cy_dtype t, unsigned n); /* i8 codes -> f32 */
V cy_lp_small_float_encode(cy_cg *cg, V v, cy_dtype t, unsigned n);

/* loops_expr.c */
void cy_lp_load_params(cy_lp *p); /* at the entry of a function, p->arg being set */
void cy_lp_statement(cy_lp *p); /* forgets computed values: a new statement */
V cy_lp_value(cy_lp *p, cy_expr e);   /* in the current number of lanes: uniform values are repeated */
V cy_lp_uniform(cy_lp *p, cy_expr e); /* a scalar: of a uniform expression, or of the first lane of an affine one */
void cy_lp_store(cy_lp *p, cy_karg arg, cy_expr offset, V value);
/* What lies so many bytes behind an element; only where lanes lie side by side. */
void cy_lp_prefetch(cy_lp *p, cy_karg arg, cy_expr offset, int64_t prefetch, bool write);
V cy_lp_dim(cy_lp *p, cy_dim d);
bool cy_lp_affine(cy_lp *p, cy_expr e, V *out_step); /* does e move by one step per lane? NULL: it does not move */
V cy_lp_lane_numbers(cy_lp *p, V first); /* first, first + 1, .. */

/* loops_lookup.c */
/* Is the lane's part of an offset an index that a short table of elements t is looked up by? */
bool cy_lp_short_index(const cy_lp *p, cy_dtype t, cy_expr varying);
/* In storage type; at: of the table's first element; index: the value of cy_lp_lookup_index(). */
cy_expr cy_lp_lookup_index(const cy_lp *p, cy_expr varying);
V cy_lp_lookup(cy_lp *p, cy_dtype t, V at, cy_expr varying, V index);

/* loops_prefetch.c */
bool cy_lp_reads_to_prefetch(cy_kernel *k); /* is there a load to be prefetched? */
void cy_lp_prefetch_all(cy_lp *p, const V *idx, bool stores);
void cy_lp_stream(cy_lp *p, const cy_stmt *loop); /* in an iteration of a loop inside a lane loop */

/* loops_flat.c */
/* How far an offset moves with variable v; false: that is no constant, or hangs on a local. */
bool cy_lp_coefficient(const cy_kernel *k, cy_expr e, cy_var v, int64_t *out);
unsigned cy_lp_flat_columns(cy_kernel *k);          /* of rows that may be lanes of one vector; 0: they may not */
/* How many lanes, `max` or a part of that, from any multiple of it on, are stored side by side where others are not; 0:
 * all are. */
unsigned cy_lp_part_lanes(cy_kernel *k, unsigned max);
/* The lane variable over, or modulo, a multiple of p->part? */
bool cy_lp_part_of(const cy_lp *p, const cy_expr_info *e);
bool cy_lp_rows_same(cy_kernel *k, cy_expr offset); /* is a load of such a kernel one for all rows? */

/* loops_cross.c */
bool cy_lp_crosses(cy_lp *p, const cy_stmt *loop);    /* does a loop inside a lane loop store across the lanes? */
void cy_lp_cross(cy_lp *p, const cy_stmt *loop, V n); /* its n iterations */

#endif
