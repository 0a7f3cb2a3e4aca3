/* SPDX-License-Identifier: Apache-2.0 */
/* int_amx.c - micro-kernels of contractions by AMX: tiles of 16 rows by 16 columns of accumulators, over all of k.
 *
 * Comes in: what int_kernel.c's kernels take, rows of a in scratch and packed panels of b, k filled up to whole tiles.
 * Goes out: accumulators in memory, for the epilogue. A tile register has 16 rows of 64 bytes: of a, 16 rows' next 16 groups
 * of k; of b, as it is packed, 16 groups of 16 columns. An instruction multiplies two such tiles in 16 cycles and waits
 * for the accumulators of the one before for 52: four tiles of accumulators keep it busy, and two rows by two columns of them load
 * least. tdpbusd adds up exactly what vpdpbusd does, and so do results not depend on which of the two a CPU has;
 * tdpbf16ps takes denormals for zeros.
 */
#include "int_gemm.h"

#include <stdio.h>

enum { A_TILE = 4, B_TILE = 6, TILE_BYTES = 64, TILE_VECTOR = 64 }; /* tiles below A_TILE hold accumulators */
enum { PREFETCH = 4096 };                                           /* bytes */

static void tile_call(cy_cg *cg, const char *name, V *args, unsigned n) { cy_intrinsic_of(cg, name, NULL, 0, args, n); }
static V number(cy_cg *cg, unsigned tile) { return LLVMConstInt(cg->i8, tile, 0); }

static void tile_load(cy_cg *cg, unsigned tile, V p, V stride) {
  V args[3] = {number(cg, tile), p, stride};
  tile_call(cg, "llvm.x86.tileloadd64", args, 3);
}

static void tile_multiply(cy_cg *cg, cy_int_gemm_variant variant, unsigned acc, unsigned a, unsigned b) {
  V args[3] = {number(cg, acc), number(cg, a), number(cg, b)};
  tile_call(cg, variant.bf16 ? "llvm.x86.tdpbf16ps" : "llvm.x86.tdpbusd", args, 3);
}

/* All tiles are of full size. The configuration (Intel's manual, LDTILECFG): the palette, from byte 16 on u16 bytes of a
 * row, from byte 48 on u8 rows. */
void cy_int_gemm_amx_begin(cy_cg *cg) {
  static const uint64_t words[8] = {1, 0, 0x0040004000400040u, 0x0040004000400040u, 0, 0, 0x1010101010101010u, 0};
  V config = cy_alloca(cg, sizeof words);
  for (int i = 0; i < 8; i++)
    cy_store(cg, LLVMConstInt(cg->i64, words[i], 0), cy_gepc(cg, config, i * 8), 8);
  tile_call(cg, "llvm.x86.ldtilecfg", &config, 1);
}

/* From here on the operating system has no tiles to save. */
void cy_int_gemm_amx_end(cy_cg *cg) { tile_call(cg, "llvm.x86.tilerelease", NULL, 0); }

/* ---- what tasks are made of ---- */

cy_tile cy_int_gemm_amx_tile(int64_t rows, int64_t n) {
  bool few = rows && rows <= CY_AMX_ROWS;
  unsigned max = few ? 4 : 2; /* enough accumulators to keep it busy */
  int64_t need = n ? cy_ceil(n, 16) : max;
  return (cy_tile){few ? CY_AMX_ROWS : 2 * CY_AMX_ROWS, need < max ? (unsigned)need : max};
}

static double task_cycles(const cy_cg *cg, cy_tile tile, double rows, double panels, double row_bytes, bool copied) {
  double columns = panels * tile.nv * 16, tiles = (double)cy_ceil((int64_t)rows, CY_AMX_ROWS) * columns / 16;
  cy_amx_work w = {copied ? rows : 0, row_bytes, columns, tiles, rows * columns};
  return cy_cost_amx_task(cg, &w);
}

/* Blocks such that 1, 2, 4 and 8 workers wait least for the one with the most tasks. */
cy_blocks cy_int_gemm_amx_blocks(const cy_cg *cg, cy_tile tile, int64_t outer, int64_t rows, int64_t panels,
                                 int64_t row_bytes, bool copied) {
  enum { USUAL_ROWS = 1024, USUAL_PANELS = 16, MAX_ROWS = 512, MAX_PANELS = 128 };
  int64_t all = rows ? rows : USUAL_ROWS, max = (int64_t)cg->model.amx_rows / row_bytes;
  max = max > MAX_ROWS ? MAX_ROWS : max;
  panels = panels ? panels : USUAL_PANELS;
  cy_blocks best = {tile.mr, 1};
  double min = 0;
  for (int64_t mb = tile.mr; mb == tile.mr || (mb <= max && mb - tile.mr < all); mb += tile.mr)
    for (int64_t splits = cy_ceil(panels, MAX_PANELS); splits <= panels; splits++) {
      int64_t nb = cy_ceil(panels, splits), blocks = cy_ceil(all, mb), tasks = outer * blocks * splits;
      double task = task_cycles(cg, tile, (double)all / (double)blocks, (double)nb, (double)row_bytes, copied), cost = 0;
      for (int64_t workers = 1; workers <= 8; workers *= 2)
        cost += (double)(cy_ceil(tasks, workers) * workers) * task;
      if (min == 0 || cost < min) {
        min = cost;
        best = (cy_blocks){mb, nb};
      }
    }
  return best;
}

/* ---- code ---- */

typedef struct kernel {
  cy_int_gemm_variant variant;
  unsigned ma, nv; /* tiles down and across */
  int64_t nr;
  bool onto;
  V a, stride, below; /* rows; bytes to the next; bytes to the next 16 */
} kernel;

static unsigned acc_tile(const kernel *k, unsigned i, unsigned j) { return i * k->nv + j; }

/* Columns of steps to come: tile loads, too few of which are on their way at a time, wait for each other's misses. */
static void emit_prefetch(cy_cg *cg, const kernel *k, V b) {
  int64_t bytes = CY_AMX_GROUPS * cy_int_gemm_group_bytes(k->variant, k->nr);
  for (int64_t line = 0; line < bytes; line += 64)
    cy_prefetch(cg, cy_gepc(cg, b, PREFETCH + line), false, CY_FIRST_LEVEL);
}

/* One tile of k: rows `at` bytes from where they begin, columns at b. */
static void emit_step(cy_cg *cg, const kernel *k, V b, V at) {
  V row = cy_gep(cg, k->a, at), b_stride = cy_i64(cg, cy_int_gemm_group_bytes(k->variant, k->nr));
  if (k->variant.far)
    emit_prefetch(cg, k, b);
  for (unsigned i = 0; i < k->ma; i++) {
    tile_load(cg, A_TILE + i, row, k->stride);
    row = cy_gep(cg, row, k->below);
    for (unsigned j = 0; j < k->nv; j++) {
      if (i == 0)
        tile_load(cg, B_TILE + j % 2, cy_gepc(cg, b, j * TILE_VECTOR), b_stride);
      tile_multiply(cg, k->variant, acc_tile(k, i, j), A_TILE + i, B_TILE + j % 2);
    }
  }
}

/* So many groups, of rows `from` bytes from where they begin, or NULL; returns where b goes on. */
static V emit_groups(cy_cg *cg, const kernel *k, V groups, V from, V b) {
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), cy_div(cg, groups, cy_i64(cg, CY_AMX_GROUPS)), cy_i64(cg, 1), &b, 1);
  V at = cy_mulc(cg, l.iv, TILE_BYTES);
  emit_step(cg, k, l.v[0], from ? cy_add(cg, from, at) : at);
  b = cy_gepc(cg, l.v[0], CY_AMX_GROUPS * cy_int_gemm_group_bytes(k->variant, k->nr));
  cy_loop_end(cg, &l, &b);
  return l.out[0];
}

/* All of k of panel q. */
static V emit_depth(cy_cg *cg, const kernel *k, V fn, V q, V b) {
  if (!k->variant.shuffled)
    return emit_groups(cg, k, LLVMGetParam(fn, 5), NULL, b);
  cy_int_gemm_tables tables = cy_int_gemm_tables_given(fn, k->variant);
  cy_int_gemm_depth depth = cy_int_gemm_tables_depth(cg, &tables, q);
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), depth.runs, cy_i64(cg, 1), &b, 1);
  V from = cy_load(cg, cg->i64, cy_gep(cg, depth.places, cy_mulc(cg, l.iv, 8)), 8);
  b = emit_groups(cg, k, depth.groups, from, l.v[0]);
  cy_loop_end(cg, &l, &b);
  return l.out[0];
}

/* A panel: all of k, its place in c; returns where the next one begins. */
static V emit_panel(cy_cg *cg, const kernel *k, V fn, V q, V b) {
  V at = cy_mulc(cg, q, k->nr * 4), ldc = LLVMGetParam(fn, 4);
  V c = cy_gep(cg, LLVMGetParam(fn, 3), at);
  for (unsigned i = 0; i < k->ma; i++)
    for (unsigned j = 0; j < k->nv; j++) {
      V acc = number(cg, acc_tile(k, i, j));
      V at_c = cy_gepc(cg, cy_gep(cg, c, cy_mulc(cg, ldc, i * CY_AMX_ROWS)), j * TILE_VECTOR);
      if (k->onto)
        tile_load(cg, acc_tile(k, i, j), at_c, ldc);
      else
        tile_call(cg, "llvm.x86.tilezero", &acc, 1);
    }
  b = emit_depth(cg, k, fn, q, b);
  for (unsigned i = 0; i < k->ma; i++, c = cy_gep(cg, c, cy_mulc(cg, ldc, CY_AMX_ROWS)))
    for (unsigned j = 0; j < k->nv; j++) {
      V args[3] = {number(cg, acc_tile(k, i, j)), cy_gepc(cg, c, j * TILE_VECTOR), ldc};
      tile_call(cg, "llvm.x86.tilestored64", args, 3);
    }
  return b;
}

V cy_int_gemm_amx_kernel(cy_cg *cg, cy_int_gemm_variant variant, unsigned mr, unsigned nv, int64_t nr, bool onto) {
  char name[64];
  snprintf(name, sizeof name, "cyk_amx_%s_%ux%u_%lld%s%s%s", variant.bf16 ? "bf16" : "u8s8", mr, nv * cg->W,
           (long long)nr, onto ? "_onto" : "", variant.far ? "_far" : "", variant.shuffled ? "_shuffled" : "");
  V fn = cy_shared_find(cg, name);
  if (fn)
    return fn;
  cy_fn_state state = cy_fn_save(cg);
  fn = cy_int_gemm_kernel_begin(cg, name, variant);
  V stride = cy_load(cg, cg->i64, cy_gepc(cg, LLVMGetParam(fn, 1), 8), 8);
  kernel k = {variant, mr / CY_AMX_ROWS, nv, nr, onto, LLVMGetParam(fn, 0), stride, cy_mulc(cg, stride, CY_AMX_ROWS)};
  V b = LLVMGetParam(fn, 2);
  cy_loop q;
  cy_loop_begin(cg, &q, cy_i64(cg, 0), LLVMGetParam(fn, 6), cy_i64(cg, 1), &b, 1);
  b = emit_panel(cg, &k, fn, q.iv, q.v[0]);
  cy_loop_end(cg, &q, &b);
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}
