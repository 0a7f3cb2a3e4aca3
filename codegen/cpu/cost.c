/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - makes cycles of counted work and of a row of machine.def: the only place that does.
 *
 * In: counts, from generators and from layer_cost.c. Out: cycles of one core, all else being idle. Estimates are made to be
 * compared with each other; that of a layer leaves out what its algorithms have in common, such as an activation behind it.
 */
#include "cost.h"

static double larger(double a, double b) { return a > b ? a : b; }

/* Columns that are measured by 8 elements, for vectors of W. */
static double by_eights(const cy_cg *cg) { return 8.0 / cg->W; }

/* ---- caches ---- */

int64_t cy_l2_part(const cy_cg *cg, int64_t parts, int64_t of) { return cg->model.l2_bytes * parts / of; }

bool cy_cost_many_weights(const cy_cg *cg, int64_t bytes) { return (double)bytes >= cg->model.many_weights; }

double cy_cost_loads(const cy_cg *cg, double bytes) { return bytes / cg->model.memory_bytes; }

double cy_cost_reloads(const cy_cg *cg, double bytes, double beside) {
  bool stay = bytes * beside < (double)cg->model.l2_bytes;
  return bytes / (stay ? cg->model.l2_bytes_rate : cg->model.memory_bytes);
}

/* ---- f32 ---- */

double cy_cost_fmas(const cy_cg *cg, double products) {
  return products / (cg->model.fmas * cg->W * cg->model.fma_share);
}

double cy_cost_instructions(const cy_cg *cg, double fmas, double share) { return fmas / cg->model.fmas / share; }

double cy_cost_sums(const cy_cg *cg, double outputs) { return outputs * cg->model.float_output * by_eights(cg); }

double cy_cost_plain(const cy_cg *cg, double fma_cycles, double weight_bytes, double outputs) {
  return larger(fma_cycles, cy_cost_loads(cg, weight_bytes)) * cg->model.plain + cy_cost_sums(cg, outputs);
}

/* Bytes of a weight, with its share of the scale of a block of 32. */
static double bytes_of(int bits) { return bits / 8.0 + (bits == 16 ? 0 : 0.125); }

/* Instructions that make floats of a vector of codes. */
double cy_cost_narrow_weights(const cy_cg *cg, double products, double weights, int bits, double outputs) {
  double widening = bits == 16 ? 1 : 8, bytes = bytes_of(bits);
  return cy_cost_plain(cg, cy_cost_fmas(cg, products + widening * weights), bytes * weights, outputs);
}

double cy_cost_depthwise(const cy_cg *cg, cy_depthwise_by by, double outputs, double taps, double inputs_per_output) {
  const cy_cpu_model *m = &cg->model;
  const double in[] = {m->depthwise_input, m->int_depthwise_input, m->dot4_input}, tap[] = {0, m->int_depthwise_tap, m->dot4_tap};
  const double out[] = {m->depthwise_output, m->int_depthwise, m->dot4_output};
  double cycles = outputs * (out[by] + tap[by] * taps + in[by] * inputs_per_output) * by_eights(cg);
  return by == CY_DEPTHWISE_FMA    ? cycles + cy_cost_fmas(cg, outputs * taps)
         : by == CY_DEPTHWISE_DOT4 ? cycles * m->depthwise_dot4
                                   : cycles;
}

double cy_cost_lanes_single(const cy_cg *cg, double outputs, double taps, double lanes, double channels) {
  return outputs * (taps / lanes + cg->model.lane_reduce_sum / channels);
}

double cy_cost_lanes_shared(const cy_cg *cg, double positions, double taps, double lanes, double channels) {
  return positions * taps * (cg->model.lane_reduce_shared / lanes + cg->model.lane_reduce_address / channels);
}

void cy_cost_looped(const cy_cg *cg, double products, double *out_rows, double *out_channels) {
  *out_rows = products * cg->model.looped_rows;
  *out_channels = products * cg->model.looped_channels;
}

double cy_cost_transpose(const cy_cg *cg, double elements) {
  bool near = elements * 8 < (double)cg->model.l2_bytes;
  return elements * (near ? cg->model.transposed : cg->model.transposed_far);
}

/* ---- Winograd's algorithm ---- */

double cy_cost_winograd_input(const cy_cg *cg, double tiles, int64_t channels, bool planes) {
  double work = planes ? cg->model.winograd_plane_input : 1;
  return tiles * cg->model.winograd_input * (double)channels / cg->W * work;
}

double cy_cost_winograd_output(const cy_cg *cg, double tiles, int64_t columns, bool planes) {
  double work = planes ? 2 * cg->model.winograd_plane_output : 1; /* a pair */
  return tiles * cg->model.winograd_output * (double)columns / cg->W * work;
}

double cy_cost_winograd_points(const cy_cg *cg, double rows, double points, int64_t channels, int64_t columns) {
  double each = (double)(channels * columns) / cg->W;
  return (points * rows / cg->model.fmas + cg->model.winograd_filter) * each;
}

double cy_cost_winograd_few(const cy_cg *cg, int64_t tiles, int64_t channels, int64_t columns, double weight_bytes) {
  const cy_cpu_model *m = &cg->model;
  enum { TILES_AT_ONCE = 4 };
  double each = (double)(channels * columns) / cg->W;
  double work = m->winograd_few_tile * (double)tiles / m->fmas +
                m->winograd_few_filter * (double)cy_ceil(tiles, TILES_AT_ONCE);
  return larger(work, cy_cost_loads(cg, weight_bytes)) * each;
}

/* ---- Strassen's algorithm ---- */

double cy_cost_strassen_plain(const cy_cg *cg, double fmas) { return cy_cost_instructions(cg, fmas, cg->model.strassen_plain); }

double cy_cost_strassen_left(const cy_cg *cg, double vectors) { return vectors * cg->model.strassen_left; }

double cy_cost_strassen(const cy_cg *cg, const cy_strassen_work *w) {
  const cy_cpu_model *m = &cg->model;
  double products = cy_cost_instructions(cg, w->fmas, m->strassen_fmas) * 7 / 8;
  double sums = w->right * (w->halves ? m->strassen_right_half : m->strassen_right) + cy_cost_strassen_left(cg, w->left);
  return products + cy_cost_strassen_plain(cg, w->plain) + sums + w->pairs * m->strassen_pair;
}

/* ---- planar convolutions ---- */

/* A sum takes an fma every four cycles. */
double cy_cost_planar_step(const cy_cg *cg, unsigned mr, unsigned nv) {
  double fma = (double)(mr * nv) / cg->model.fmas, loads = mr * cg->model.planar_load + nv * cg->model.planar_vector;
  return larger(larger(fma, loads), 4) + nv * 0.1 + 0.3;
}

double cy_cost_planar(const cy_cg *cg, const cy_planar_work *w) {
  const cy_cpu_model *m = &cg->model;
  double weights = w->pieces * cy_cost_reloads(cg, w->weight_bytes, 4);
  double parting = w->residues == 1      ? m->planar_copy
                   : w->vector_residues ? m->planar_copy + m->planar_parted
                                       : m->planar_copy + 2.0 * cg->W;
  double copies = w->pieces * w->kept * (m->planar_copied_row + m->planar_stall / w->rows + w->vectors * parting);
  double outputs = w->output_vectors * m->planar_output + w->tile_rows * m->planar_row;
  return larger(w->sums, weights) * m->planar + copies + outputs;
}

/* ---- tasks ---- */

/* Panels that are not whole take a little, too. */
double cy_cost_task(const cy_cg *cg, double rows, double panels, double panel) {
  const cy_cpu_model *m = &cg->model;
  return (rows + m->task_weights) * (panels + 0.05) * panel / m->task_products + m->task_start;
}

bool cy_cost_task_splits(const cy_cg *cg, double rows, double columns, double k) {
  return columns * k * (rows + cg->model.task_columns) >= cg->model.task_worth;
}

double cy_cost_amx_task(const cy_cg *cg, const cy_amx_work *w) {
  const cy_cpu_model *m = &cg->model;
  double copies = w->copied_rows * (w->row_bytes / m->amx_copied + m->amx_copied_row);
  return m->amx_task + copies + w->columns * w->row_bytes / m->amx_weights + w->tiles * w->row_bytes / 64 * m->amx_tiles +
         w->sums / 16 * m->amx_output;
}

int64_t cy_cost_depthwise_task(const cy_cg *cg, double work, int64_t all, cy_depthwise_by by) {
  const cy_cpu_model *m = &cg->model;
  const double begin = 20; /* a row block that is nearly empty takes as long */
  bool fma = by == CY_DEPTHWISE_FMA;
  double task = fma ? m->depthwise_task : m->int_depthwise_task, shared = fma ? task : m->int_depthwise_shared;
  int64_t n = 1 + (int64_t)(task / (work + begin)), half = (all + 1) / 2;
  if (all && n > half && work * (double)all > shared)
    n = half;
  return all ? cy_ceil(all, cy_ceil(all, n)) : n; /* evenly */
}

/* ---- integers and bf16 ---- */

/* Products per cycle of kernels that take groups of k: pairs of bytes need an addition each where fma has its own, and
 * do not keep both pipes busy. */
static double rate_of(const cy_cg *cg, cy_factor_type f) {
  const cy_cpu_model *m = &cg->model;
  if (f == CY_FACTORS_BF16 ? cg->amx_bf16 : cg->amx_int8)
    return 2.0 * cg->W * (f == CY_FACTORS_BF16 ? 16 : 32) * m->amx;
  return (double)m->fmas * cg->W *
         (f == CY_FACTORS_BF16 ? 2 * m->bf16_products / m->plain
          : cg->vnni           ? 4 * m->dot4
                               : m->dot2);
}

double cy_cost_grouped(const cy_cg *cg, cy_factor_type f, double rows, double depth, double n, double filled,
                       double runs, double share) {
  const cy_cpu_model *m = &cg->model;
  bool bytes = f == CY_FACTORS_BYTES, bf16 = f == CY_FACTORS_BF16, amx = bf16 ? cg->amx_bf16 : cg->amx_int8;
  int64_t whole = amx ? CY_AMX_STEP * (bf16 ? 2 : 4) : 1; /* of a tile's depth */
  double work = rows * (double)cy_round_up((int64_t)depth, whole) * filled / rate_of(cg, f);
  double loads = cy_cost_loads(cg, depth * n * (bf16 ? 2 : 1));
  double copies = rows * (depth * (bytes && cg->vnni ? m->copied_bytes : m->copied_words) * by_eights(cg) + runs * m->copied_run);
  return larger(work, loads) * share + copies + rows * n * (bytes ? m->int_output : m->bf16_output) * by_eights(cg);
}

double cy_cost_groups(const cy_cg *cg, double products, int group) {
  return products / ((double)group * cg->model.fmas * cg->W);
}

double cy_cost_rows24(const cy_cg *cg, double products, double weights, int bits) {
  return larger(cy_cost_groups(cg, 3 * products, 4), cy_cost_loads(cg, weights * bytes_of(bits)));
}

double cy_cost_int_step(const cy_cg *cg, unsigned mr, unsigned nv, bool dot4, bool split) {
  double full = nv != 2 || mr != 6 ? 0 : split ? cg->model.full_tile_split : dot4 ? 0 : cg->model.full_tile_dot2;
  return full > 0 ? full : split ? mr + 0.3 : mr + (nv == 2 ? 1.3 : 0.5);
}

double cy_cost_int_winograd(const cy_cg *cg, double inputs, double filters, double outputs) {
  const cy_cpu_model *m = &cg->model;
  return inputs * m->int_winograd_input + outputs * m->int_winograd_output + filters * m->int_winograd_filter;
}

double cy_cost_int_depthwise_rows(const cy_cg *cg, double columns, double products) {
  return columns * cg->model.int_depthwise_interleaved + products * cg->model.int_depthwise_product;
}

double cy_cost_rounding(const cy_cg *cg, double elements, bool image) {
  return elements * (image ? cg->model.image_rounding : cg->model.row_rounding);
}

/* ---- attention, recurrences ---- */

double cy_cost_attention(const cy_cg *cg, bool bf16, double scores, double products, double factors) {
  const cy_cpu_model *m = &cg->model;
  if (!bf16)
    return cy_cost_fmas(cg, products) * m->plain + scores * m->score * by_eights(cg);
  double rounded = cg->amx_bf16 ? m->factor_amx : m->factor_dot2;
  return products / rate_of(cg, CY_FACTORS_BF16) + (scores * m->score_bf16 + factors * rounded) * by_eights(cg) +
         m->attention_bf16;
}

double cy_cost_recurrent(const cy_cg *cg, bool ints, double steps, double weights, double units, bool batched) {
  const cy_cpu_model *m = &cg->model;
  if (ints)
    return steps * (weights / m->recurrent_int + units * m->recurrent_rounding);
  return steps * weights / (batched ? m->recurrent_batch : m->recurrent);
}

/* ---- for passes and the host program ---- */

static int64_t thousandths(double cycles) { return (int64_t)(cycles * 1000 + 0.5); }

void cy_cost_caps(const cy_cg *cg, cy_target_caps *caps) {
  static const cy_cpu_model usual = {
#define COLUMN(name, unit, usual, meaning) .name = usual,
#include "machine.def"
  };
  const cy_cpu_model *m = cg ? &cg->model : &usual;
  caps->ints = (cy_int_costs){m->int_round, m->int_stored, m->int_moved, m->int_back, m->int_margin};
  caps->host = (cy_host_costs){thousandths(m->host_lane), thousandths(m->host_scalar), thousandths(m->host_product),
                               thousandths(m->host_direct), thousandths(m->host_piece)};
}
