/* SPDX-License-Identifier: Apache-2.0 */
/* depthwise.c - convolutions with a filter of its own for every channel, channels innermost.
 *
 * Each input element serves as many products as there are taps and no more: the cost is memory. A thread has V
 * neighbouring channels (16 bytes) of a piece of the image, TH x TW results. It goes down the rows of the input that
 * these need, keeps one row in registers for all taps and results that it serves, and adds what every tap gives.
 * Filters are packed [tap][channel]. The epilogue runs for V channels at once where its accesses are contiguous.
 */
#include "contract_int.h"

enum { THREADS = 128, CHUNK = 16, MAX_TAPS = 64 };

/* Results of a thread, largest first; the accumulators of V channels take no more than 64 registers. */
static const struct { int rows, columns; } pieces[] = {{2, 4}, {1, 4}, {1, 2}, {1, 1}};
enum { NPIECES = sizeof pieces / sizeof *pieces, MAX_ACCUMULATORS = 32 };

static int chunk_of(cy_kernel *k) {
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  return CHUNK * 8 / cy_dtype_of(args[cy_kernel_contraction(k)->a].dtype)->bits;
}

static bool supports(const cy_machine *m, cy_kernel *k) {
  (void)m;
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  cy_dtype t = args[c->a].dtype;
  return cy_cu_is_depthwise(g, c) && c->nspatial <= 2 && cy_cu_taps(c) <= MAX_TAPS &&
         cy_dim_is(g, c->x_channel, 1) && (t == CY_F32 || t == CY_F16 || t == CY_BF16) && args[c->b].dtype == t &&
         cy_kernel_local_dtype(k, c->acc) == CY_F32 && !c->has_a_zero && !c->has_b_zero;
}

static cy_dim ceil_of(cy_graph *g, cy_dim d, int by) { return cy_dim_cdiv(g, d, cy_dim_const(g, by)); }

/* Threads that pieces of this size want. */
static cy_dim threads_for(cy_kernel *k, int rows, int columns) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  int last = c->nspatial - 1;
  cy_dim n = cy_dim_mul(g, c->images, ceil_of(g, c->channels_out, chunk_of(k)));
  n = cy_dim_mul(g, n, ceil_of(g, c->out[last], columns));
  return last ? cy_dim_mul(g, n, ceil_of(g, c->out[0], rows)) : n;
}

/* The largest piece that gives most multiprocessors a block: it reads each input element least often. Holes of dilated
 * filters would take registers, so there a thread has one result. */
static void make_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  int best = 0, chunk = chunk_of(k), last = c->nspatial - 1;
  bool holes = c->dilation[0] > 1 || c->dilation[last] > 1;
  while (best < NPIECES - 1 && (holes || pieces[best].rows * pieces[best].columns * chunk > MAX_ACCUMULATORS ||
                                (pieces[best].rows > 1 && !last) ||
                                cy_cu_estimate(g, threads_for(k, pieces[best].rows, pieces[best].columns), 1 << 20) <
                                    (double)THREADS * cy_cu_wanted_blocks(m)))
    best++;
  schedule->kind = CY_CUDA_TILES;
  schedule->threads = THREADS;
  schedule->tile = (cy_cuda_tile){pieces[best].rows, pieces[best].columns, chunk, 0, 0};
  schedule->blocks = ceil_of(g, threads_for(k, schedule->tile.m, schedule->tile.n), THREADS);
  cy_cuda_vectorise_body(k, schedule, cy_cu_epilogue(k), c->out_var[c->nspatial + 1], chunk, 2 * CHUNK);
}

/* ---- printing ---- */

static const char load_functions[] =
    "CY_INLINE void $S_image($P, b1 wide, i64 at, int c0, int C, $X *to) {\n"
    "  if (wide)\n"
    "    cy_move16(to, $A + at);\n"
    "  else\n"
    "    CY_UNROLL\n"
    "    for (int e = 0; e < V; e++)\n"
    "      to[e] = c0 + e < C ? $A[at + e] : 0;\n"
    "}\n\n"
    "CY_INLINE void $S_filter($P, int tap, int c0, int C, $X *to) {\n"
    "#if PACKED\n"
    "  if ((u64)$B % 16 == 0) {\n"
    "    cy_move16(to, $B + tap * PACKED + c0);\n"
    "    return;\n"
    "  }\n"
    "#endif\n"
    "  CY_UNROLL\n"
    "  for (int e = 0; e < V; e++)\n"
    "    to[e] = c0 + e < C ? $B[PACKED ? tap * PACKED + c0 + e : (c0 + e) * (KH * KW) + tap] : 0;\n"
    "}\n\n";

static const char body_text[] =
    "  const int chunks = (C + V - 1) / V, across = (OW + TW - 1) / TW, down = (OH + TH - 1) / TH;\n"
    "  const i64 number = CY_BLOCK * NT + CY_TID;\n"
    "  if (number >= (i64)images * down * across * chunks)\n"
    "    return;\n"
    "  const int c0 = (int)(number % chunks) * V, place = (int)(number / chunks);\n"
    "  const int ox = place % across * TW, oy = place / across % down * TH, image = place / across / down;\n"
    "  const int ix = ox * SW - pad_w, iy = oy * SH - pad_h;\n"
    "  const b1 wide = c0 + V <= C && (u64)$A % 16 == 0 && (step_image | step_h | step_w) % V == 0;\n"
    "  const i64 base = image * step_image + c0;\n"
    "  f32 acc[TH][TW][V];\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < TH; i++)\n"
    "    CY_UNROLL\n"
    "    for (int j = 0; j < TW; j++)\n"
    "      CY_UNROLL\n"
    "      for (int e = 0; e < V; e++)\n"
    "        acc[i][j][e] = 0;\n"
    "  CY_UNROLL\n"
    "  for (int h = 0; h < (TH - 1) * SH + (KH - 1) * DH + 1; h++) {\n"
    "    if (iy + h < 0 || iy + h >= H || (TH == 1 && h % DH != 0))\n"
    "      continue;\n"
    "    $X row[(TW - 1) * SW + (KW - 1) * DW + 1][V] CY_ALIGNED(16);\n"
    "    CY_UNROLL\n"
    "    for (int w = 0; w < (TW - 1) * SW + (KW - 1) * DW + 1; w++) {\n"
    "      if (TW == 1 && w % DW != 0)\n"
    "        continue;\n"
    "      if (ix + w >= 0 && ix + w < W)\n"
    "        $S_image($N, wide, base + (iy + h) * step_h + (ix + w) * step_w, c0, C, row[w]);\n"
    "      else\n"
    "        CY_UNROLL\n"
    "        for (int e = 0; e < V; e++)\n"
    "          row[w][e] = 0;\n"
    "    }\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < TH; i++)\n"
    "      CY_UNROLL\n"
    "      for (int y = 0; y < KH; y++)\n"
    "        if (i * SH + y * DH == h)\n"
    "          CY_UNROLL\n"
    "          for (int x = 0; x < KW; x++) {\n"
    "            $X filter[V] CY_ALIGNED(16);\n"
    "            $S_filter($N, y * KW + x, c0, C, filter);\n"
    "            CY_UNROLL\n"
    "            for (int j = 0; j < TW; j++)\n"
    "              CY_UNROLL\n"
    "              for (int e = 0; e < V; e++)\n"
    "                acc[i][j][e] += DECODE(row[j * SW + x * DW][e]) * DECODE(filter[e]);\n"
    "          }\n"
    "  }\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < TH; i++)\n"
    "    CY_UNROLL\n"
    "    for (int j = 0; j < TW; j++)\n"
    "      if (oy + i < OH && ox + j < OW) {\n"
    "        const int m = (image * OH + oy + i) * OW + ox + j;\n"
    "#if PUT_CHUNK\n"
    "        $S_put_chunk($N, c0, m, 0, acc[i][j]);\n"
    "#else\n"
    "        CY_UNROLL\n"
    "        for (int e = 0; e < V; e++)\n"
    "          if (c0 + e < C)\n"
    "            $S_put($N, c0 + e, m, 0, acc[i][j][e]);\n"
    "#endif\n"
    "      }\n";

static void print_constants(cy_cu_contract *q) {
  const cy_cuda_schedule *schedule = q->p->schedule;
  const cy_contraction *c = q->c;
  int w = c->nspatial - 1;
  const cy_cu_number rows[] = {{"TH", schedule->tile.m},
                               {"TW", schedule->tile.n},
                               {"V", schedule->tile.k},
                               {"NT", THREADS},
                               {"KH", w ? c->kernel[0] : 1},
                               {"KW", c->kernel[w]},
                               {"SH", w ? c->stride[0] : 1},
                               {"SW", c->stride[w]},
                               {"DH", w ? c->dilation[0] : 1},
                               {"DW", c->dilation[w]},
                               {"PACKED", schedule->packed_k},
                               {"PUT_CHUNK", schedule->vector > 0}};
  cy_cu_print_numbers(q->p->out, rows, sizeof rows / sizeof *rows);
}

static const char end_of_constants[] = "#undef TH\n#undef TW\n#undef V\n#undef NT\n#undef KH\n#undef KW\n#undef SH\n"
                                       "#undef SW\n#undef DH\n#undef DW\n#undef PACKED\n#undef PUT_CHUNK\n"
                                       "#undef DECODE\n\n";

static void print_sizes(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  int w = c->nspatial - 1;
  cy_cu_line(p, "const int images = (int)%s, C = (int)%s;", cy_cu_dim(p, c->images), cy_cu_dim(p, c->channels_out));
  cy_cu_line(p, "const int W = (int)%s, OW = (int)%s, pad_w = (int)%s;", cy_cu_dim(p, c->in[w]),
             cy_cu_dim(p, c->out[w]), cy_cu_dim(p, c->pad[w]));
  cy_cu_line(p, "const i64 step_image = %s, step_w = %s;", cy_cu_dim(p, c->x_image), cy_cu_dim(p, c->x_spatial[w]));
  if (w)
    cy_cu_line(p, "const int H = (int)%s, OH = (int)%s, pad_h = (int)%s;", cy_cu_dim(p, c->in[0]),
               cy_cu_dim(p, c->out[0]), cy_cu_dim(p, c->pad[0]));
  else
    cy_cu_line(p, "const int H = 1, OH = 1, pad_h = 0;");
  cy_cu_line(p, "const i64 step_h = %s;", w ? cy_cu_dim(p, c->x_spatial[0]) : "0");
}

static void print(cy_cu *p, const char *symbol) {
  cy_cu_contract q;
  char decode[96];
  cy_cu_contract_begin(&q, p, symbol);
  cy_cu_decode(p->args[q.c->a].dtype, "v", decode, sizeof decode);
  print_constants(&q);
  fprintf(p->out, "#define DECODE(v) %s\n\n", decode);
  cy_cu_contract_text(&q, load_functions);
  fprintf(p->out, "CY_KERNEL(%d) ", p->schedule->threads);
  cy_cu_function_open(&q, "$S($P$L) {\n");
  print_sizes(&q);
  cy_cu_contract_text(&q, body_text);
  cy_cu_function_close(&q);
  fputs(end_of_constants, p->out);
}

static bool wants_packed(const cy_cuda_schedule *schedule, cy_kernel *k) {
  (void)schedule;
  (void)k;
  return true;
}

const cy_cu_generator cy_cu_depthwise = {"depthwise", supports, make_schedule, print, wants_packed};
