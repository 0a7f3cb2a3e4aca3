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
  int64_t tiles = const_of(g, form->blocks), turns = (const_of(g, s.k) + form->tile.k - 1) / form->tile.k;
  int64_t results = const_of(g, s.m) * const_of(g, s.n) * const_of(g, s.z), wanted = cy_cu_wanted_blocks(m);
  cy_kernel_args(k, &args);
  int64_t bits = cy_dtype_of(args[c->a].dtype)->bits, sum_bits = cy_dtype_of(cy_kernel_local_dtype(k, c->acc))->bits;
  int64_t operands = (const_of(g, s.m) + const_of(g, s.n)) * const_of(g, s.k) * const_of(g, s.z) * bits / 8;
  if (!tiles || !results || results > INT32_MAX || tiles * 2 > wanted || c->has_a_zero || c->has_b_zero)
    return;
  int64_t shares = wanted / tiles, most = operands / (2 * results * sum_bits / 8);
  shares = shares > turns / LEAST_TURNS ? turns / LEAST_TURNS : shares;
  shares = shares > most ? most : shares;
  shares = shares > MAX_SHARES ? MAX_SHARES : shares;
  if (shares < 2)
    return;
  form->share_turns = (int)((turns + shares - 1) / shares);
  form->shares = (int)((turns + form->share_turns - 1) / form->share_turns);
  form->blocks = cy_dim_muli(g, form->blocks, form->shares);
  form->share_elems = results * form->shares;
  form->combine_blocks = (results + CY_CUDA_COMBINE_THREADS - 1) / CY_CUDA_COMBINE_THREADS;
}

void cy_cuda_split_prepare(cy_kernel *k, cy_cuda_form *form) {
  if (form->shares)
    form->share_arg = cy_kernel_add_arg(k, CY_ARG_WRITE, cy_kernel_local_dtype(k, cy_kernel_contraction(k)->acc), 0);
}

/* Macros that a generator's text has while its kernel lasts: where k begins and how many turns it has, the end of a
 * result. */
void cy_cu_split_begin(cy_cu_contract *q) {
  const cy_cuda_form *f = q->p->form;
  fprintf(q->p->out, "#define SHARES %d\n#define SHARE_TURNS %d\n", f->shares ? f->shares : 1, f->share_turns);
  if (f->shares)
    cy_cu_contract_text(q, "CY_INLINE void $S_end($P, int share, int z, int m, int n, $T acc, int M, int N) {\n");
  else
    cy_cu_contract_text(q, "CY_INLINE void $S_end($P, int share, int z, int m, int n, $T acc, int M, int N) {\n"
                           "  $S_put($N, z, m, n, acc);\n");
  if (f->shares)
    fprintf(q->p->out, "  a%u[(((i64)share * %lld + z) * M + m) * N + n] = acc;\n", f->share_arg,
            (long long)const_of(q->p->g, cy_cu_sizes_of(q->p->k).z));
  fputs("}\n\n", q->p->out);
}

static const char combine_text[] = "  const i64 at = CY_BLOCK * %d + CY_TID, all = (i64)Z * M * N;\n"
                                   "  if (at >= all)\n"
                                   "    return;\n";

void cy_cu_split_end(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_cuda_form *f = p->form;
  fputs("#undef SHARES\n#undef SHARE_TURNS\n\n", p->out);
  if (!f->shares)
    return;
  fprintf(p->out, "CY_KERNEL(%d) ", CY_CUDA_COMBINE_THREADS);
  cy_cu_function_open(q, "$S_combine($P) {\n");
  cy_cu_line(p, "const int Z = %lld, M = (int)%s, N = (int)%s;", (long long)const_of(p->g, cy_cu_sizes_of(p->k).z),
             q->m, q->n);
  fprintf(p->out, combine_text, CY_CUDA_COMBINE_THREADS);
  cy_cu_line(p, "%s sum = 0;", q->type);
  cy_cu_line(p, "CY_UNROLL");
  cy_cu_line(p, "for (int s = 0; s < %d; s++)", f->shares);
  cy_cu_line(p, "  sum += a%u[s * all + at];", f->share_arg);
  cy_cu_contract_text(q, "  $S_put($N, (int)(at / N / M), (int)(at / N % M), (int)(at % N), sum);\n");
  cy_cu_function_close(q);
}
