/* SPDX-License-Identifier: Apache-2.0 */
/* contract_text.c - C text of contractions: names and sizes of a kernel put into what is the same for all of them.
 *
 * In:  texts with $ and a letter for what differs (contract_int.h). Out: functions of the kernel that is being printed.
 */
#include "contract_int.h"

#include <string.h>

static const char residue_of_kernel[] = "  const $S_residue own_residue = $S_residue_of($M, z), *const residue = &own_residue;\n"
                                      "  const int K = residue->k;\n";

void cy_cu_contract_text(cy_cu_contract *q, const char *text) {
  for (; *text; text++) {
    if (*text != '$') {
      fputc(*text, q->p->out);
      continue;
    }
    switch (*++text) {
    case 'S': fputs(q->symbol, q->p->out); break;
    case 'T': fputs(q->type, q->p->out); break;
    case 'P':
    case 'N':
    case 'Q':
    case 'M':
      cy_cu_params(q->p, q->p->out, *text == 'N' || *text == 'M');
      if ((*text == 'P' || *text == 'N') && cy_cu_has_residues(q->c))
        fprintf(q->p->out, *text == 'N' ? ", residue" : ", const %s_residue *residue", q->symbol);
      if ((*text == 'P' || *text == 'N') && q->p->holds_maxima)
        fputs(*text == 'N' ? ", maxima" : ", cy_held_max *maxima", q->p->out);
      break;
    case 'L': cy_cu_lengths_param(q->p, q->p->out); break;
    case 'F':
      cy_cu_contract_text(q, cy_cu_has_residues(q->c) ? residue_of_kernel : "  const int K = ALL_K;\n");
      break;
    case 'A': fprintf(q->p->out, "a%u", q->c->a); break;
    case 'B': fprintf(q->p->out, "a%u", cy_cu_b_arg(q->p->schedule, q->c)); break;
    case 'V':
      fprintf(q->p->out, "a%u", q->c->v);
      break;
    case 'Z':
      fputs(q->z, q->p->out);
      break;
    case 'X': fputs(cy_cu_storage(q->p->args[q->c->a].dtype), q->p->out); break;
    case 'Y': fputs(cy_cu_storage(q->p->args[q->c->b].dtype), q->p->out); break;
    }
  }
}

void cy_cu_function_open(cy_cu_contract *q, const char *head) {
  cy_cu_contract_text(q, head);
  cy_cu_open(q->p);
  if (strstr(head, "$L")) {
    cy_cu_line(q->p, "CY_AFTER();");
    cy_cu_lengths_read(q->p);
  }
  if (strstr(head, "$Q") && q->p->holds_maxima)
    cy_cu_line(q->p, "cy_held_max own_maxima = {0, 0}, *const maxima = &own_maxima;");
  cy_cu_narrow_dims(q->p);
}

void cy_cu_function_close(cy_cu_contract *q) {
  cy_cu_close(q->p, 0);
  fputs("}\n\n", q->p->out);
}

void cy_cu_print_batch(cy_cu_contract *q, const cy_dim *strides) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  cy_cu_line(p, "int rest = z;");
  for (int i = c->nbatch; i-- > 0;) {
    cy_cu_line(p, "at += rest %% (int)%s * (i64)%s;", cy_cu_dim(p, c->batch[i]), cy_cu_dim(p, strides[i]));
    cy_cu_line(p, "rest /= (int)%s;", cy_cu_dim(p, c->batch[i]));
  }
}

void cy_cu_print_wide(cy_cu *p, const char *name, bool runs, const cy_dim *strides, int n, cy_karg arg, int64_t chunk) {
  bool never = !runs;
  int64_t v;
  fprintf(p->out, "  const b1 %s = ", name);
  for (int i = 0; i < n; i++)
    never |= cy_dim_is_const(p->g, strides[i], &v) && v % chunk != 0;
  if (never) {
    fprintf(p->out, "0;\n");
    return;
  }
  fprintf(p->out, "(u64)a%u %% 16 == 0", arg);
  for (int i = 0; i < n; i++)
    if (!cy_dim_is_const(p->g, strides[i], &v))
      fprintf(p->out, " && %s %% %lld == 0", cy_cu_dim(p, strides[i]), (long long)chunk);
  fprintf(p->out, ";\n");
}

void cy_cu_print_decoding(cy_cu *p, const char *name, cy_dtype type) {
  char decode[96];
  cy_cu_decode(type, "v", decode, sizeof decode);
  fprintf(p->out, "#define %s(v) %s\n", name, decode);
}

void cy_cu_print_numbers(FILE *out, const cy_cu_number *rows, size_t n) {
  for (size_t i = 0; i < n; i++)
    fprintf(out, "#define %s %lld\n", rows[i].name, (long long)rows[i].value);
}
