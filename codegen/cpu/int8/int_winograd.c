/* SPDX-License-Identifier: Apache-2.0 */
/* int_winograd.c - 3x3 convolution of 8-bit integers, of stride 1, by F(4x4,3x3) in 16 bits, exactly: 36 products of
 * i16 per 16 outputs and channel instead of 144 of bytes, which take half as long each.
 *
 * Comes in: a cy_int_gemm_desc with `winograd`. Goes out: the plan, and what winograd.c, which has the tasks, does for floats
 * otherwise: inputs less their zero point and weights become i16, channels being taken by pairs; M is i32, by int_kernel.c.
 * Why this is exact: points are integers here. Those of a patch are sums of at most 100 times an input in amount, those
 * of a filter of 49 times a weight: both fit i16. Products are summed up, and sums transformed back, modulo 2^32, where
 * nothing is lost: this gives 9 * 2^6 times the output. 9 has an inverse modulo 2^32, and a shift takes
 * the rest, if the output is less than 2^25 in amount. Whether all are, the weights tell (cy_int_gemm_largest_sum).
 */
#include "codegen/cpu/conv/winograd_int.h"
#include "int_gemm_int.h"

enum { OUT = 4 };
enum { INVERSE_OF_9 = 954437177 };
enum { MAX_TILES = 64, MAX_CHANNELS = 128 }; /* of a block */
enum { MIN_BLOCKS = 8 };                     /* of tiles, whose tasks have all panels */
enum { WANTED_TASKS = 16 };

static cy_int_gemm_variant variant(void) {
  cy_int_gemm_variant v = cy_group_kernel_of(CY_GROUP_DOT2);
  v.together = 1;
  return v;
}

/* ---- the plan ---- */

/* Rows of the micro-kernel's tile: few of the last one's idle. */
static unsigned rows_choose(int64_t tiles) {
  unsigned best = 12;
  for (unsigned mr = 12; mr >= 8; mr--)
    if (cy_round_up(tiles, mr) < cy_round_up(tiles, best))
      best = mr;
  return best;
}

static int64_t total_tiles(const wino *p) {
  return cy_csize_known(p->d->batch) * cy_ceil(cy_csize_known(p->axis[1].out), OUT) *
         cy_ceil(cy_csize_known(p->axis[2].out), OUT);
}

static int64_t blocks_of(const wino *p) { return cy_ceil(total_tiles(p), p->tiles); }

static const cy_winograd_ints ints;

static wino plan_of(const cy_cg *cg, const cy_int_gemm_desc *d) {
  wino p = {.d = &d->window, .of = d, .ints = &ints, .depth = 1, .slices = 1, .c = d->window.cin, .element = 2};
  cy_conv_axes(p.d, 0, p.axis);
  int64_t total = total_tiles(&p), blocks = cy_ceil(total, MAX_TILES), n = p.d->cout;
  p.tiles = cy_ceil(total, blocks);
  p.tile = (cy_tile){rows_choose(p.tiles), 2};
  if (blocks > 1)
    p.tiles = cy_round_up(p.tiles, p.tile.mr);
  blocks = cy_ceil(total, p.tiles);
  p.m_tiles = cy_round_up(p.tiles, p.tile.mr); /* the micro-kernel reads and writes whole tiles */
  p.nr = (int64_t)p.tile.nv * cg->W;
  p.panels = cy_ceil(n, p.nr);
  p.shared = blocks < MIN_BLOCKS;
  p.filters_once = !p.shared && POINTS * p.c * p.nr * 2 * p.panels <= (int64_t)cg->model.int_winograd_once;
  p.parts = p.shared ? cy_ceil(WANTED_TASKS, blocks) : 1;
  p.parts = p.parts < p.panels ? p.parts : p.panels;
  p.nb = cy_ceil(p.panels, p.parts);
  p.cb = p.filters_once || p.c <= MAX_CHANNELS ? p.c : MAX_CHANNELS;
  p.slice = p.c;
  p.v_tiles = p.shared ? blocks * p.m_tiles : p.m_tiles;
  return p;
}

/* Cycles, without and with. */
static double direct_cycles(const cy_cg *cg, const wino *p) {
  double positions =
      (double)(cy_csize_known(p->d->batch) * cy_csize_known(p->axis[1].out) * cy_csize_known(p->axis[2].out));
  return cy_cost_groups(cg, positions * (double)(TAPS * p->c * cy_round_up(p->d->cout, cg->W)), 4);
}
static double cycles(const cy_cg *cg, const wino *p) {
  double vectors = (double)p->c / (2.0 * cg->W), columns = (double)(p->panels * p->tile.nv);
  double all = (double)total_tiles(p), again = p->filters_once ? 1 : (double)blocks_of(p);
  double tiles = (double)(blocks_of(p) * p->m_tiles);
  double products = cy_cost_groups(cg, tiles * POINTS * (double)(p->c * p->panels * p->nr), 2);
  return products + cy_cost_int_winograd(cg, all * vectors, again * (double)p->c / 2 * columns, all * columns);
}

bool cy_int_winograd_possible(const cy_cg *cg, const cy_int_gemm_desc *d) {
  const cy_conv_desc *w = &d->window;
  if (!cy_form_on(cg, CY_FORM_INT_WINOGRAD) || !d->conv || d->bf16 || d->b_bits != 8 || !d->b_signed ||
      d->b_zero_slot >= 0 || !cg->model.int_winograd || cg->amx_int8 || !(cg->vnni || cg->vnni_spelled) ||
      w->n_spatial != 2 || w->transposed || w->groups != 1 || w->cin % (2 * cg->W) || w->cout < (int64_t)cg->W ||
      (w->cin > MAX_CHANNELS && w->cin % MAX_CHANNELS))
    return false;
  for (int i = 0; i < 2; i++)
    if (w->kernel[i] != 3 || w->stride[i] != 1 || w->dilation[i] != 1 || !cy_csize_known(w->in[i]) ||
        !cy_csize_known(w->out[i]) || !cy_csize_known(w->in_s[i]))
      return false;
  return cy_csize_known(w->batch) && cy_csize_known(w->in_n);
}

bool cy_int_winograd_weigh(const cy_cg *cg, const cy_int_gemm_desc *d, double *with, double *without) {
  if (!cy_int_winograd_possible(cg, d))
    return false;
  wino p = plan_of(cg, d);
  *with = cycles(cg, &p);
  *without = direct_cycles(cg, &p) * cy_int_gemm_share(cg, d);
  return true;
}

bool cy_int_winograd_exact(int64_t sum) { return 255 * sum < 1 << 25; }

/* ---- outputs ---- */

/* Both axes have made 9 << 6 times the outputs. */
static void finish(cy_cg *cg, const V m[6], V out[4]) {
  V inverse = cy_splat(cg, cy_i32(cg, INVERSE_OF_9), cg->W), six = cy_splat(cg, cy_i32(cg, 6), cg->W);
  cy_winograd_output(cg, m, out);
  for (int i = 0; i < 4; i++)
    out[i] = LLVMBuildAShr(cg->b, LLVMBuildMul(cg->b, out[i], inverse, ""), six, "");
}

/* ---- U and V ---- */

static void begin(cy_cg *cg, task *t) {
  const wino *p = t->w;
  const cy_epilogue *inner = &p->d->epilogue;
  cy_int_gemm_rows convert = cy_int_gemm_rows_begin(cg, variant(), p->of);
  V padding = cy_alloca(cg, p->c);
  LLVMBuildMemSet(cg->b, padding, LLVMBuildTrunc(cg->b, convert.zero, cg->i8, ""), cy_i64(cg, p->c), LINE);
  t->padding = LLVMBuildPtrToInt(cg->b, padding, cg->i64, "");
  t->zero = cy_splat(cg, convert.zero, 2 * cg->W);
  t->epilogue =
      (cy_epilogue){.emit = cy_int_gemm_as_integers, .ctx = (void *)inner, .wide = p->d->cout >= p->nr ? 2 : 0};
}

/* 2 * W bytes. */
static V load(cy_cg *cg, V at, bool is_signed) {
  LLVMTypeRef words = LLVMVectorType(cg->i16, 2 * cg->W);
  V bytes = cy_load(cg, LLVMVectorType(cg->i8, 2 * cg->W), at, 1);
  return is_signed ? LLVMBuildSExt(cg->b, bytes, words, "") : LLVMBuildZExt(cg->b, bytes, words, "");
}

static V load_input(cy_cg *cg, const task *t, V at) { return LLVMBuildSub(cg->b, load(cg, at, t->w->of->a_signed), t->zero, ""); }
static V load_tap(cy_cg *cg, V at) { return load(cg, at, true); }

/* ---- M ---- */

/* A point's share of the filters that come behind those at `from`, which are asked for while it is multiplied: they come
 * from memory. */
static void emit_filters_prefetch(cy_cg *cg, const wino *p, V from, V point) {
  int64_t bytes = p->cb * TAPS * p->nr, share = cy_round_up(cy_ceil(bytes, POINTS), LINE);
  V at = cy_gep(cg, from, cy_addc(cg, cy_mulc(cg, point, share), bytes));
  for (int64_t line = 0; line < share; line += LINE)
    cy_prefetch(cg, cy_gepc(cg, at, line), false, CY_SECOND_LEVEL);
}

static void emit_product(cy_cg *cg, const task *t, const cy_product *x, V point, V filters) {
  const wino *p = t->w;
  if (!p->filters_once)
    emit_filters_prefetch(cg, p, filters, point);
  const cy_int_product product = {.variant = variant(),
                                  .tile = p->tile,
                                  .nr = p->nr,
                                  .row_bytes = x->row_bytes,
                                  .ldc = x->ldc,
                                  .rows = t->count,
                                  .a = x->a,
                                  .tab = t->tab,
                                  .b = x->b,
                                  .c = x->c,
                                  .groups = cy_i64(cg, p->cb / 2),
                                  .panels = cy_i64(cg, 1),
                                  .onto = p->cb < p->c ? x->accumulate : NULL};
  cy_int_product_emit(cg, &product);
}

static const cy_winograd_ints ints = {begin, load_input, load_tap, emit_product, finish};

/* ---- the generator ---- */

CY_PLAN_MAKE(wino)

static void pack(const cy_cg *cg, const void *of, int64_t matrices, cy_arena *arena, cy_packing *out) {
  (void)cg;
  (void)matrices;
  const wino *p = of;
  cy_pack_layout l = {.groups = 1,
                      .n = p->d->cout,
                      .taps = TAPS,
                      .c = p->c,
                      .tap_block = TAPS,
                      .c_block = 2,
                      .nr = (unsigned)p->nr,
                      .step = 2,
                      .winograd = true,
                      .weights = CY_WEIGHTS_S8,
                      .bytes = p->panels * p->c * TAPS * p->nr};
  cy_packing_single(out, arena, l, NULL);
}

const cy_generator cy_int_winograd_generator = {CY_WINOGRAD_PHASES, .plan = plan_make, .pack = pack,
                                                .text = "conv int8 winograd f4x3"};
