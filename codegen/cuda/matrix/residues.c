/* SPDX-License-Identifier: Apache-2.0 */
/* residues.c - transposed convolutions: outputs whose places leave the same remainders by the strides, a residue, have the same
 * taps, and no other tap hits them.
 *
 * In: a transposed convolution. Out: it as a product for each group and residue, which no tap is multiplied in for nothing.
 * With stride s, dilation d and padding p, output o = j * s + q is of residue r = (o + p) % s; its taps t have t * d % s == r
 * and lie s / gcd(s, d) apart; tap number i of them meets input j + in - i * d / gcd(s, d). So the window of a residue is that
 * of a convolution with stride 1, whose taps go backwards.
 *
 * All residues have as many rows (j); of those that lie behind the end of the output nothing is stored. K is the residue's own
 * number of taps, times channels. Packed weights have the taps of a residue together, and each residue begins where 16 bytes do.
 */
#include "contract_int.h"
#include "runtime/cuda/cuda_problem.h"

/* The taps of a residue along axis i, r its remainder. */
static void print_axis(cy_cu_contract *q, int i) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  long long s = c->stride[i], d = c->dilation[i], kernel = c->kernel[i];
  const char *pad = cy_cu_dim(p, c->pad[i]);
  cy_cu_line(p, "r = rest / %lld %% %lld;", (long long)q->residue_unit[i], s);
  cy_cu_line(p, "n = smaller = 0;");
  cy_cu_line(p, "f.first[%d] = 0;", i);
  cy_cu_line(p, "for (int t = %lld; t >= 0; t--) {", kernel - 1);
  cy_cu_line(p, "  n += t * %lld %% %lld == r;", d, s);
  cy_cu_line(p, "  smaller += t * %lld %% %lld < r;", d, s);
  cy_cu_line(p, "  f.first[%d] = t * %lld %% %lld == r ? t : f.first[%d];", i, d, s, i);
  cy_cu_line(p, "}");
  cy_cu_line(p, "f.q[%d] = (r - (int)%s) %% %lld;", i, pad, s);
  cy_cu_line(p, "f.q[%d] += f.q[%d] < 0 ? %lld : 0;", i, i, s);
  cy_cu_line(p, "f.in[%d] = (f.q[%d] + (int)%s - f.first[%d] * %lld) / %lld;", i, i, pad, i, d, s);
  cy_cu_line(p, "f.n[%d] = n > 0 ? n : 1;", i);
  cy_cu_line(p, "before = before * %lld + f.k * smaller;", kernel);
  cy_cu_line(p, "f.k *= n;");
}

void cy_cu_residue_print(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  int64_t depth = 1, chunk = 16 * 8 / cy_dtype_of(p->args[c->b].dtype)->bits;
  if (!cy_cu_has_residues(c))
    return;
  int64_t unit = 1;
  for (int i = c->nspatial; i-- > 0; unit *= c->stride[i])
    q->residue_unit[i] = unit;
  cy_cu_contract_text(q, "typedef struct $S_residue {\n"
                         "  int z, k, base; /* group, size of k, where packed weights begin */\n"
                         "  int q[3], in[3], first[3], n[3]; /* output and input of row 0; taps */\n"
                         "} $S_residue;\n\n");
  cy_cu_function_open(q, "CY_INLINE $S_residue $S_residue_of($Q, int z) {\n");
  cy_cu_line(p, "%s_residue f;", q->symbol);
  cy_cu_line(p, "const int rest = z %% %lld, depth = (int)(%s / %lld);", (long long)unit, cy_cu_dim(p, c->channels_in),
             (long long)c->group);
  cy_cu_line(p, "int before = 0, r, n, smaller;");
  cy_cu_line(p, "f.z = z / %lld;", (long long)unit);
  cy_cu_line(p, "f.k = 1;");
  for (int i = 0; i < c->nspatial; i++)
    print_axis(q, i);
  cy_cu_line(p, "f.k *= depth;");
  if (cy_dim_is_const(p->g, cy_cu_per_group(p->g, c, c->channels_in), &depth) && p->schedule->packed_k)
    cy_cu_line(p, "f.base = (before * depth + %lld) / %lld * %lld + rest * %lld;", (long long)chunk - 1,
               (long long)chunk, (long long)chunk, (long long)cyrt_residue_slack(depth, chunk));
  else
    cy_cu_line(p, "f.base = 0;");
  cy_cu_line(p, "return f;");
  cy_cu_function_close(q);
}

/* const int digit<i> = rest % n and rest /= n, of the number of taps along axis i, which is one of two at most. */
static void print_digit(cy_cu_contract *q, int i) {
  cy_cu *p = q->p;
  long long max = cy_cu_residue_axis_taps(q->c, i), min = q->c->kernel[i] / cy_cu_residue_tap_step(q->c, i);
  if (min == max)
    cy_cu_line(p, "const int over%d = (int)((u32)rest / %lldu), digit%d = rest - over%d * %lld;", i, max, i, i, max);
  else
    cy_cu_line(p,
               "const int over%d = (int)(residue->n[%d] == %lld ? (u32)rest / %lldu : (u32)rest / %lldu), digit%d = "
               "rest - over%d * residue->n[%d];",
               i, i, max, max, min > 1 ? min : 1, i, i, i);
  cy_cu_line(p, "rest = over%d;", i);
}

void cy_cu_residue_tap(cy_cu_contract *q, const char *type) {
  const cy_contraction *c = q->c;
  for (int i = c->nspatial; i-- > 0;) {
    print_digit(q, i);
    cy_cu_line(q->p, "t->at[%d] = -digit%d * %lld;", i, i, (long long)cy_cu_residue_input_step(c, i));
    cy_cu_line(q->p, "offset += t->at[%d] * (%s)%s;", i, type, cy_cu_dim(q->p, c->x_spatial[i]));
  }
}

void cy_cu_residue_flat_tap(cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  int64_t unit = 1;
  cy_cu_line(q->p, "int rest = own, tap = 0;");
  for (int i = c->nspatial; i-- > 0; unit *= c->kernel[i]) {
    print_digit(q, i);
    cy_cu_line(q->p, "tap += (residue->first[%d] + digit%d * %lld) * %lld;", i, i, (long long)cy_cu_residue_tap_step(c, i),
               (long long)unit);
  }
}

/* Text of the number of rows along axis i. */
static void print_rows_of(cy_cu_contract *q, int i) {
  const char *out = cy_cu_dim(q->p, q->c->out[i]);
  long long s = q->c->stride[i];
  cy_cu_line(q->p, "const int rows%d = (int)((%s + %lld) / %lld);", i, out, s - 1, s);
}

void cy_cu_residue_window(cy_cu_contract *q) {
  for (int i = q->c->nspatial; i-- > 0;) {
    print_rows_of(q, i);
    cy_cu_line(q->p, "r->at[%d] = rest %% rows%d + residue->in[%d];", i, i, i);
    cy_cu_line(q->p, "rest /= rows%d;", i);
  }
}

void cy_cu_residue_coordinates(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  cy_var image = c->out_var[0];
  cy_cu_line(p, "int rest = m;");
  for (int i = c->nspatial; i-- > 0;) {
    cy_var v = c->out_var[1 + i];
    const char *type = cy_cu_var_type(p, v);
    print_rows_of(q, i);
    cy_cu_line(p, "const %s v%u = (%s)(rest %% rows%d * %lld + residue->q[%d]);", type, v, type, i,
               (long long)c->stride[i], i);
    cy_cu_line(p, "if (v%u >= %s)", v, cy_cu_dim(p, c->out[i]));
    cy_cu_line(p, "  return;");
    cy_cu_line(p, "rest /= rows%d;", i);
  }
  cy_cu_line(p, "const %s v%u = (%s)rest;", cy_cu_var_type(p, image), image, cy_cu_var_type(p, image));
}
