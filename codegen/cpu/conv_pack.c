/* conv_pack.c - packs a convolution's weights at run time, when they are no constants.
 *
 * Comes in: a cy_conv_desc with w_run_time. Goes out: a phase that writes what cy_pack_run would have written, part
 * after part, to the shared scratch; a task is one panel of one group. Weights that are inputs are rare, so this
 * gathers float by float.
 */
#include "conv_int.h"

#include <stdio.h>

typedef struct pack {
  const cy_conv_desc *d;
  cy_pack_layout l;
  cy_axis axis[3];
  int64_t offset, panels; /* bytes; per group */
} pack;

static pack pack_of(const cy_cg *cg, const cy_conv_desc *d, int part) {
  pack p = {.d = d};
  int32_t map[CY_CONV_MOST_TAPS];
  p.l = cy_conv_layout(cg, d, CY_CONV_DIRECT, part, &p.offset, map);
  cy_conv_axes(d, part, p.axis);
  p.panels = cy_pack_panels(&p.l);
  return p;
}

static int64_t units(const pack *p) { return p->l.taps ? p->l.groups * p->panels : 0; }

/* The source's number of tap t. */
static V source_tap(cy_cg *cg, const pack *p, V t) {
  V left = t, tap = cy_i64(cg, 0);
  int64_t scale = 1;
  for (int i = 2; i >= 0; i--) {
    V count = cy_i64(cg, p->axis[i].count), at = i ? cy_mod(cg, left, count) : left;
    left = i ? cy_div(cg, left, count) : left;
    V number = cy_addc(cg, cy_mulc(cg, at, p->axis[i].tap_inc), p->axis[i].tap0);
    tap = cy_add(cg, tap, cy_mulc(cg, number, scale));
    scale *= p->axis[i].kernel;
  }
  return tap;
}

/* Which float of the panel (tap t, channel c) is: blocks of K come first. */
static V place(cy_cg *cg, const pack *p, V panel, V t, V c) {
  V tb = cy_i64(cg, p->l.tap_block), cb = cy_i64(cg, p->l.c_block), C = cy_i64(cg, p->l.c);
  V t0 = cy_mul(cg, cy_div(cg, t, tb), tb), c0 = cy_mul(cg, cy_div(cg, c, cb), cb);
  V taps = cy_imin(cg, tb, cy_sub(cg, cy_i64(cg, p->l.taps), t0)), width = cy_imin(cg, cb, cy_sub(cg, C, c0));
  V k0 = cy_add(cg, cy_mul(cg, t0, C), cy_mul(cg, taps, c0));
  V k = cy_add(cg, cy_mul(cg, cy_sub(cg, t, t0), width), cy_sub(cg, c, c0));
  V row = cy_add(cg, cy_add(cg, cy_mulc(cg, k0, p->panels), cy_mul(cg, panel, cy_mul(cg, taps, width))), k);
  return cy_mulc(cg, row, p->l.nr);
}

/* The weight of column n (within the merged group), tap and channel c; zero between different groups of the source. */
static V weight(cy_cg *cg, const pack *p, V source, V group, V n, V tap, V c) {
  V n1 = cy_i64(cg, p->l.n / p->l.merged), c1 = cy_i64(cg, p->l.c / p->l.merged), inner = cy_div(cg, n, n1);
  V number = cy_add(cg, cy_mulc(cg, group, p->l.merged), inner), zero = LLVMConstNull(cg->f32);
  V at = cy_add(cg, cy_mulc(cg, number, p->d->w_gs), cy_mulc(cg, cy_mod(cg, n, n1), p->d->w_ns));
  at = cy_add(cg, at, cy_add(cg, cy_mulc(cg, tap, p->d->w_ts), cy_mulc(cg, cy_mod(cg, c, c1), p->d->w_cs)));
  V v = cy_load(cg, cg->f32, cy_gepf(cg, source, at), 4);
  return p->l.merged > 1 ? cy_select(cg, cy_icmp(cg, LLVMIntEQ, inner, cy_div(cg, c, c1)), v, zero) : v;
}

static void emit_unit(cy_cg *cg, const pack *p, V unit, V source, V out) {
  V zero = cy_i64(cg, 0), one = cy_i64(cg, 1), count = cy_i64(cg, p->panels), NR = cy_i64(cg, p->l.nr);
  V group = cy_div(cg, unit, count), panel = cy_mod(cg, unit, count), n0 = cy_mulc(cg, panel, p->l.nr);
  V to = cy_gepc(cg, cy_gepf(cg, out, cy_mulc(cg, group, p->l.taps * p->l.c * p->panels * p->l.nr)), p->offset);
  cy_loop t, c, j;
  cy_loop_begin(cg, &t, zero, cy_i64(cg, p->l.taps), one, NULL, 0);
  V tap = source_tap(cg, p, t.iv);
  cy_loop_begin(cg, &c, zero, cy_i64(cg, p->l.c), one, NULL, 0);
  V row = cy_gepf(cg, to, place(cg, p, panel, t.iv, c.iv));
  cy_loop_begin(cg, &j, zero, NR, one, NULL, 0);
  V n = cy_add(cg, n0, j.iv), last = cy_i64(cg, p->l.n - 1);
  V v = weight(cg, p, source, group, cy_imin(cg, n, last), tap, c.iv);
  v = cy_select(cg, cy_icmp(cg, LLVMIntSLE, n, last), v, LLVMConstNull(cg->f32));
  cy_store(cg, v, cy_gepf(cg, row, j.iv), 4);
  cy_loop_end(cg, &j, NULL);
  cy_loop_end(cg, &c, NULL);
  cy_loop_end(cg, &t, NULL);
}

void cy_conv_pack_emit(cy_cg *cg, const cy_conv_desc *d, cy_contract_info *info) {
  char name[120];
  snprintf(name, sizeof name, "%s_pack", d->name);
  cy_kernel_begin(cg, name, 0);
  V source = cy_arg_ptr(cg, d->b_slot), out = cy_arg_ptr(cg, d->shared_slot);
  int64_t base = 0;
  for (int i = 0; i < cy_conv_parts(d, CY_CONV_DIRECT); i++) {
    pack p = pack_of(cg, d, i);
    int64_t n = units(&p);
    if (!n)
      continue;
    cy_loop u; /* what falls to this part of the tasks */
    V lo = cy_imax(cg, cy_addc(cg, cg->begin, -base), cy_i64(cg, 0));
    cy_loop_begin(cg, &u, lo, cy_imin(cg, cy_addc(cg, cg->end, -base), cy_i64(cg, n)), cy_i64(cg, 1), NULL, 0);
    emit_unit(cg, &p, u.iv, source, out);
    cy_loop_end(cg, &u, NULL);
    base += n;
  }
  cy_fn_end(cg, NULL);
  cy_phase_add(info, name, base);
}
