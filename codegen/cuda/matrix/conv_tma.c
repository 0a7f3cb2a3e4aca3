/* SPDX-License-Identifier: Apache-2.0 */
/* conv_tma.c - sm_90a: convolutions whose tiles the tensor memory accelerator brings (matrix_tma.c has the kernel).
 *
 * The 128 rows of a tile are a patch of the output: lines and columns of one image, or of several where feature maps
 * are small. Of a patch, one tap of the window reads a box of the input, shifted by the tap, with every stride-th
 * element of lines and columns; what lies outside of the feature map comes as zeros, which is the padding. So a step of
 * k is a tap and as many channels as a row of shared memory has, and one copy brings it. The map has five axes whatever
 * the convolution has: channels, columns, lines, planes, images. Weights are packed by the tap (packed.c): their axes
 * are channels, taps, filters, so that channels behind the last one are zeros in both factors.
 *
 * Taken are convolutions of channels-last feature maps, without groups, of several steps of k, which the channels
 * nearly fill, and whose output patches nearly tile.
 */
#include "contract_int.h"

enum { MAX_STEP = 8, MAX_BOX = 256, MIN_COLUMNS = 32 };

/* Axis `from_last` of the spatial ones, counted from the last; `otherwise` where there are fewer. */
static cy_dim axis(cy_graph *g, const cy_contraction *c, const cy_dim *d, int from_last, int64_t otherwise) {
  return from_last < c->nspatial ? d[c->nspatial - 1 - from_last] : cy_dim_const(g, otherwise);
}

static int64_t factor(const cy_contraction *c, const int64_t *of, int from_last) {
  return from_last < c->nspatial ? of[c->nspatial - 1 - from_last] : 1;
}

/* Are at most a quarter of the steps, or of the rows, filled up with zeros? */
static bool is_mostly(double used, double of) { return of * 3 <= used * 4; }

static double ceil_to(double v, int to) { return (double)cy_round_up((int64_t)v, to); }

/* The patch that covers the output with the least beyond its ends; of equal ones the widest. False: all cover too
 * much. */
static bool choose_patch(cy_graph *g, const cy_contraction *c, int patch[3]) {
  double columns = cy_cu_estimate(g, axis(g, c, c->out, 0, 1), 128);
  double lines = cy_cu_estimate(g, axis(g, c, c->out, 1, 1), 128);
  double images = cy_cu_estimate(g, c->images, 1), best = 0;
  for (int x = CY_CU_TMA_M; x >= 1; x /= 2)
    for (int y = CY_CU_TMA_M / x; y >= 1; y /= 2) {
      int i = CY_CU_TMA_M / x / y;
      if (x * factor(c, c->stride, 0) > MAX_BOX || y * factor(c, c->stride, 1) > MAX_BOX)
        continue;
      double covered = ceil_to(columns, x) * ceil_to(lines, y) * ceil_to(images, i);
      if (best && covered >= best)
        continue;
      best = covered;
      patch[0] = i;
      patch[1] = y;
      patch[2] = x;
    }
  return best && is_mostly(columns * lines * images, best);
}

static cy_dim patches(cy_graph *g, const cy_contraction *c, const int patch[3]) {
  cy_dim n = cy_dim_mul(g, cy_dim_cdiv(g, c->images, cy_dim_const(g, patch[0])), axis(g, c, c->out, 2, 1));
  for (int i = 0; i < 2; i++)
    n = cy_dim_mul(g, n, cy_dim_cdiv(g, axis(g, c, c->out, i, 1), cy_dim_const(g, patch[2 - i])));
  return n;
}

static bool takes(cy_graph *g, const cy_contraction *c, int depth) {
  int64_t channels;
  if (c->group != 1 || !c->b_const || !cy_dim_is(g, c->x_channel, 1) ||
      !cy_dim_is_const(g, c->channels_in, &channels))
    return false;
  for (int i = 0; i < c->nspatial; i++)
    if (c->stride[i] > MAX_STEP)
      return false;
  return cy_cu_taps(c) * channels > depth && is_mostly((double)channels, ceil_to((double)channels, depth));
}

void cy_cu_conv_tma_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  const cy_karg_info *args;
  int patch[3];
  cy_kernel_args(k, &args);
  double columns = cy_cu_estimate(g, c->channels_out, 0);
  if (!takes(g, c, cy_cu_tma_depth(args[c->a].dtype)) || columns <= MIN_COLUMNS || !choose_patch(g, c, patch))
    return;
  cy_dim count = patches(g, c, patch);
  int n = columns > 128 ? 256 : columns > 64 ? 128 : 64;
  while (n > 64 && cy_cu_estimate(g, count, 64) * ceil_to(columns, n) / n * 4 < cy_cu_wanted_blocks(m) * 3)
    n /= 2;
  if (cy_cu_estimate(g, count, 64) * ceil_to(columns, n) / n * 4 < cy_cu_wanted_blocks(m) * 3)
    return;
  cy_cu_pingpong(m, k, cy_cu_estimate(g, count, 64), n, schedule);
  cy_dim tiles = cy_dim_mul(g, count, cy_dim_cdiv(g, c->channels_out, cy_dim_const(g, schedule->tma_n)));
  schedule->tma_blocks = cy_cu_tma_enough(m, g, tiles, schedule);
  for (int i = 0; i < 3; i++)
    schedule->tma_patch[i] = patch[i];
}

/* ---- how the factors lie ---- */

static void image_tensor(cy_graph *g, const cy_contraction *c, const cy_cuda_schedule *schedule, cy_cuda_tensor *out) {
  const int box[] = {schedule->tma_patch[2], schedule->tma_patch[1], 1, schedule->tma_patch[0]};
  cy_dim dense = c->channels_in; /* strides of axes that are not there: any will do */
  out->extent[0] = c->channels_in;
  for (int i = 0; i < 4; i++) {
    bool image = i == 3;
    out->extent[1 + i] = image ? c->images : axis(g, c, c->in, i, 1);
    out->stride[i] = image ? c->x_image : i < c->nspatial ? c->x_spatial[c->nspatial - 1 - i] : dense;
    out->step[1 + i] = image ? 1 : (int)factor(c, c->stride, i);
    out->box[1 + i] = box[i];
    dense = cy_dim_mul(g, out->stride[i], out->extent[1 + i]);
  }
}

/* Of a pair of blocks, each brings its half of the filters. */
static void filter_tensor(cy_graph *g, const cy_contraction *c, const cy_cuda_schedule *schedule, int cluster,
                          cy_cuda_tensor *out) {
  out->extent[0] = out->stride[0] = c->channels_in;
  out->extent[1] = cy_dim_const(g, cy_cu_taps(c));
  out->extent[2] = c->channels_out;
  out->stride[1] = schedule->packed_k ? cy_dim_const(g, schedule->packed_k) : c->channels_in;
  out->box[2] = schedule->tma_n / cluster;
}

void cy_cu_conv_tma_tensor(cy_kernel *k, const cy_cuda_schedule *schedule, bool b, cy_cuda_tensor *out) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  *out = cy_cu_tma_tensor_of(k, b ? cy_cu_b_arg(schedule, c) : c->a, b ? 3 : CY_CUDA_TMA_RANK);
  out->box[0] = cy_cu_tma_depth(out->type);
  if (b)
    filter_tensor(g, c, schedule, cy_cuda_tma_cluster(k, schedule), out);
  else
    image_tensor(g, c, schedule, out);
}

/* ---- printing ---- */

/* Sizes of the output and of a patch under the names that both functions use. */
static void print_sizes(cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  const int *patch = q->p->schedule->tma_patch;
  cy_graph *g = q->p->g;
  cy_cu_line(q->p, "enum { TX = %d, TY = %d, TI = %d };", patch[2], patch[1], patch[0]);
  static const char names[] = "XYZ";
  for (int i = 0; i < 3; i++)
    cy_cu_line(q->p, "const int O%c = (int)%s;", names[i],
               i < c->nspatial ? cy_cu_dim(q->p, axis(g, c, c->out, i, 1)) : "1");
}

void cy_cu_conv_tma_functions(cy_cu_contract *q) {
  cy_cu_function_open(q, "CY_INLINE int $S_row_of($P, int x0, int y0, int z0, int i0, int m) {\n");
  print_sizes(q);
  cy_cu_line(q->p, "const int x = x0 + m %% TX, y = y0 + m / TX %% TY, i = i0 + m / (TX * TY);");
  cy_cu_line(q->p, "return x < OX && y < OY && i < %s ? ((i * OZ + z0) * OY + y) * OX + x : -1;",
             cy_cu_dim(q->p, q->c->images));
  cy_cu_function_close(q);
}

void cy_cu_conv_tma_places(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  static const char names[] = "XYZ";
  print_sizes(q);
  for (int i = 0; i < 3; i++) {
    cy_cu_line(p, "enum { K%c = %lld, S%c = %lld, D%c = %lld };", names[i], (long long)factor(c, c->kernel, i), names[i],
               (long long)factor(c, c->stride, i), names[i], (long long)factor(c, c->dilation, i));
    cy_cu_line(p, "const int P%c = (int)%s;", names[i], i < c->nspatial ? cy_cu_dim(p, axis(p->g, c, c->pad, i, 0)) : "0");
  }
  cy_cu_line(p, "const int deep = (%s + BK - 1) / BK, iterations = KX * KY * KZ * deep;", cy_cu_dim(p, c->channels_in));
  cy_cu_line(p, "const int left = (OX + TX - 1) / TX, up = (OY + TY - 1) / TY;");
  cy_cu_line(p, "const int down = left * up * OZ * (((int)%s + TI - 1) / TI);", cy_cu_dim(p, c->images));
}
