/* split.c - contractions whose results are too few tiles to fill a device: blocks share k.
 *
 * A share sums its part of k and stores what it has in scratch, [share][z][m][n]; a second kernel, <symbol>_combine,
 * adds the shares in their order and runs the epilogue. So the result does not depend on which block came first.
 */
#include "codegen/cuda/contract_int.h"

enum {
  LEAST_TURNS = 4, /* of k, for each share: fewer would not hide the way to memory */
  MAX_SHARES = 16
};

static int64_t const_of(cy_graph *g, cy_dim d) {
  int64_t v;
  return cy_dim_is_const(g, d, &v) ? v : 0;
}

/* As many shares as give each multiprocessor a block, if what they write and read again is less than the operands. */
void cy_cu_split_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_form *form) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  const cy_karg_info *args;
  cy_cu_sizes s = cy_cu_sizes_of(k);
  int64_t tiles = const_of(g, form->blocks), turns = cy_ceil(const_of(g, s.k), form->tile.k);
  int64_t results = const_of(g, s.m) * const_of(g, s.n) * const_of(g, s.z), wanted = cy_cu_wanted_blocks(m);
  cy_kernel_args(k, &args);
  int64_t bits = cy_dtype_of(args[c->a].dtype)->bits, sum_bits = cy_dtype_of(cy_kernel_local_dtype(k, c->acc))->bits;
  int64_t operands = (const_of(g, s.m) + const_of(g, s.n)) * const_of(g, s.k) * const_of(g, s.z) * bits / 8;
  if (!tiles || !results || results > INT32_MAX || tiles * 2 > wanted || c->has_a_zero || (c->has_b_zero && !c->b_bits))
    return;
  int64_t shares = wanted / tiles, most = operands / (2 * results * sum_bits / 8);
  shares = shares > turns / LEAST_TURNS ? turns / LEAST_TURNS : shares;
  shares = shares > most ? most : shares;
  shares = shares > MAX_SHARES ? MAX_SHARES : shares;
  if (shares < 2)
    return;
  form->share_turns = (int)cy_ceil(turns, shares);
  form->shares = (int)cy_ceil(turns, form->share_turns);
  form->blocks = cy_dim_muli(g, form->blocks, form->shares);
  form->share_elems = results * form->shares;
  int64_t each = (int64_t)CY_CUDA_COMBINE_THREADS * (form->vector ? form->vector : 1);
  form->combine_blocks = cy_ceil(results, each);
}

void cy_cuda_split_prepare(cy_kernel *k, cy_cuda_form *form) {
  if (form->shares)
    form->share_arg = cy_kernel_add_arg(k, CY_ARG_WRITE, cy_kernel_local_dtype(k, cy_kernel_contraction(k)->acc), 0);
}

/* Macros that a generator's text has while its kernel lasts: where k begins and how many turns it has, the end of
 * VECTOR results. */
void cy_cu_split_begin(cy_cu_contract *q) {
  const cy_cuda_form *f = q->p->form;
  FILE *out = q->p->out;
  fprintf(out, "#define SHARES %d\n#define SHARE_TURNS %d\n#define VECTOR %d\n", f->shares ? f->shares : 1,
          f->share_turns, f->vector ? f->vector : 1);
  cy_cu_contract_text(q, "CY_INLINE void $S_end($P, int share, int z, int m, int n, const $T *sums, int M, int N) {\n");
  if (!f->shares) {
    cy_cu_contract_text(q, f->vector ? "  $S_put_chunk($N, z, m, n, sums);\n" : "  $S_put($N, z, m, n, sums[0]);\n");
  } else {
    cy_cu_contract_text(q, "  $T *const to = ");
    fprintf(out, "a%u + (((i64)share * %lld + z) * M + m) * N + n;\n", f->share_arg,
            (long long)const_of(q->p->g, cy_cu_sizes_of(q->p->k).z));
    fputs(f->vector ? "  CY_UNROLL\n  for (int u = 0; u < VECTOR; u += 4)\n    cy_move16(to + u, sums + u);\n"
                    : "  *to = sums[0];\n",
          out);
  }
  fputs("}\n\n", out);
}

void cy_cu_split_results(cy_cu_contract *q) {
  cy_cu_contract_text(q, "  for (int q = CY_TID * VECTOR; q < BM * BN; q += NT * VECTOR) {\n"
                         "    const int m = q / BN, n = q % BN;\n"
                         "    const $T *const from = &results[m * BN + (n ^ (m & 3) << 3)];\n"
                         "    $T sums[VECTOR] CY_ALIGNED(16);\n"
                         "#if VECTOR > 1\n"
                         "    CY_UNROLL\n"
                         "    for (int u = 0; u < VECTOR; u += 4)\n"
                         "      cy_move16(sums + u, from + u);\n"
                         "#else\n"
                         "    sums[0] = *from;\n"
                         "#endif\n"
                         "    const int row = ROW_OF(m);\n"
                         "    if ((u32)row < (u32)M && n0 + n < N)\n"
                         "      $S_end($N, share, z, row, n0 + n, sums, M, N);\n"
                         "  }\n");
}

static const char combine_text[] = "  const i64 at = (CY_BLOCK * NT + CY_TID) * VECTOR, all = (i64)Z * M * N;\n"
                                   "  $T sums[VECTOR] CY_ALIGNED(16), more[VECTOR] CY_ALIGNED(16);\n"
                                   "  if (at >= all)\n"
                                   "    return;\n"
                                   "  CY_UNROLL\n"
                                   "  for (int u = 0; u < VECTOR; u++)\n"
                                   "    sums[u] = 0;\n"
                                   "  CY_UNROLL\n"
                                   "  for (int s = 0; s < SHARES; s++) {\n"
                                   "#if VECTOR > 1\n"
                                   "    CY_UNROLL\n"
                                   "    for (int u = 0; u < VECTOR; u += 4)\n"
                                   "      cy_move16(more + u, shares + s * all + at + u);\n"
                                   "#else\n"
                                   "    more[0] = shares[s * all + at];\n"
                                   "#endif\n"
                                   "    CY_UNROLL\n"
                                   "    for (int u = 0; u < VECTOR; u++)\n"
                                   "      sums[u] += more[u];\n"
                                   "  }\n"
                                   "  const int z = (int)(at / N / M), m = (int)(at / N % M), n = (int)(at % N);\n"
                                   "#if VECTOR > 1\n"
                                   "  $S_put_chunk($N, z, m, n, sums);\n"
                                   "#else\n"
                                   "  $S_put($N, z, m, n, sums[0]);\n"
                                   "#endif\n";

void cy_cu_split_end(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_cuda_form *f = p->form;
  if (f->shares) {
    fprintf(p->out, "CY_KERNEL(%d) ", CY_CUDA_COMBINE_THREADS);
    cy_cu_function_open(q, "$S_combine($P) {\n");
    cy_cu_line(p, "enum { NT = %d, Z = %lld };", CY_CUDA_COMBINE_THREADS,
               (long long)const_of(p->g, cy_cu_sizes_of(p->k).z));
    cy_cu_line(p, "const int M = (int)%s, N = (int)%s;", q->m, q->n);
    cy_cu_line(p, "const %s *const shares = a%u;", q->type, f->share_arg);
    cy_cu_contract_text(q, combine_text);
    cy_cu_function_close(q);
  }
  fputs("#undef SHARES\n#undef SHARE_TURNS\n#undef VECTOR\n\n", p->out);
}
