/* SPDX-License-Identifier: Apache-2.0 */
/* header.c - the C header beside a library: x.h.
 *
 * One struct of typed pointers for the inputs, one for the outputs, one for the sizes that the caller chooses, and the
 * two functions of the library. It includes nothing but <stdint.h>: the types of the runtime are only named, so it goes
 * together with cyto.h but does not need it. Any byte may occur in ONNX names: identifiers are made of them, comments
 * show them.
 */
#define _GNU_SOURCE
#include "codegen/work.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- identifiers ---- */

static bool ends_in(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcmp(s + n - m, end) == 0;
}

/* Words of C, of C++, of their usual headers, above all <stdint.h>; and what both keep for themselves: __x and _X. */
static bool is_taken(const char *s) {
  static const char words[] =
      " alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class "
      "co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue "
      "contract_assert decltype default delete do double dynamic_cast else enum EOF errno explicit export extern "
      "false float for friend goto if inline int int16_t int32_t int64_t int8_t linux long mutable namespace new "
      "noexcept not not_eq NULL nullptr operator or or_eq private protected public register reinterpret_cast requires "
      "restrict return short signed sizeof static static_assert static_cast struct switch template this thread_local "
      "throw true try typedef typeid typename typeof typeof_unqual uint16_t uint32_t uint64_t uint8_t union unix "
      "unsigned using virtual void volatile wchar_t while xor xor_eq ";
  size_t n = strlen(s);
  for (const char *at = n ? strstr(words, s) : NULL; at; at = strstr(at + 1, s))
    if (at[-1] == ' ' && at[n] == ' ')
      return true;
  return (s[0] == '_' && (s[1] == '_' || isupper((unsigned char)s[1]))) || ends_in(s, "_MAX") || ends_in(s, "_MIN");
}

char *cy_c_identifier(const char *text, size_t len) {
  char *out = malloc(len + 3);
  size_t n = 0;
  if (!out)
    cy_no_memory();
  if (len == 0 || isdigit((unsigned char)text[0]))
    out[n++] = '_';
  for (size_t i = 0; i < len; i++) {
    unsigned char c = (unsigned char)text[i];
    out[n++] = c < 128 && isalnum(c) ? (char)c : '_';
  }
  out[n] = 0;
  if (is_taken(out))
    strcat(out, "_");
  return out;
}

/* Makes ids[i] different from all before it by appending a number. */
static char *unique(cy_graph *g, char **ids, uint32_t i, const char *preferred) {
  char *id = cy_arena_printf(cy_graph_arena(g), "%s", preferred);
  for (int number = 2;; number++) {
    uint32_t j = 0;
    while (j < i && strcmp(ids[j], id))
      j++;
    if (j == i)
      return id;
    id = cy_arena_printf(cy_graph_arena(g), "%s_%d", preferred, number);
  }
}

static char *identifier(cy_graph *g, char **ids, uint32_t i, const char *name) {
  char *preferred = cy_c_identifier(name, strlen(name));
  char *id = unique(g, ids, i, preferred);
  free(preferred);
  return id;
}

/* C identifiers of the model's inputs or outputs, unique; in the graph's arena. */
static char **port_identifiers(cy_graph *g, const cy_port_info *ports, uint32_t n) {
  char **ids = CY_NEW_ARRAY(cy_graph_arena(g), char *, n + 1);
  for (uint32_t i = 0; i < n; i++)
    ids[i] = identifier(g, ids, i, cy_str_text(g, ports[i].name));
  return ids;
}

/* ---- text ---- */

/* Inside a comment: printable, and never the end of it. */
static void put_comment_text(FILE *f, const char *s) {
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c < 32 || c == 127 || (c == '*' && s[1] == '/') || (c == '/' && s[1] == '*'))
      fprintf(f, "\\x%02x", c);
    else
      fputc(c, f);
  }
}

static void put_struct(FILE *f, cy_work *b, const char *what, const cy_port_info *ports, uint32_t n, bool input) {
  char **ids = port_identifiers(b->g, ports, n);
  fprintf(f, "typedef struct %s_%s {\n", b->name, what);
  for (uint32_t i = 0; i < n; i++) {
    const cy_value *v = cy_value_of(b->g, ports[i].value);
    fprintf(f, "  %s%s *%s; /* ", input ? "const " : "", cy_dtype_of((cy_dtype)v->type.dtype)->c_type, ids[i]);
    put_comment_text(f, cy_type_text(b->g, &v->type));
    if (strcmp(ids[i], cy_str_text(b->g, ports[i].name))) {
      fputs(" '", f);
      put_comment_text(f, cy_str_text(b->g, ports[i].name));
      fputc('\'', f);
    }
    fprintf(f, "%s */\n", input && v->data.bytes ? ", may be NULL: has a default" : "");
  }
  if (n == 0)
    fputs("  void *none;\n", f);
  fprintf(f, "} %s_%s;\n\n", b->name, what);
}

uint32_t cy_input_symbols(cy_graph *g, cy_sym **out_syms) {
  uint32_t n = 0, nsyms = cy_sym_count(g);
  cy_sym *list = CY_NEW_ARRAY(cy_graph_arena(g), cy_sym, nsyms + 1);
  bool *seen = CY_NEW_ARRAY(cy_graph_arena(g), bool, nsyms + 1);
  const cy_port_info *ports;
  uint32_t nports = cy_graph_inputs(g, &ports);
  for (uint32_t i = 0; i < nports; i++) {
    const cy_type *type = &cy_value_of(g, ports[i].value)->type;
    for (int axis = 0; axis < type->rank; axis++) {
      int64_t v;
      if (cy_dim_is_const(g, type->dim[axis], &v))
        continue;
      const cy_term *t;
      const cy_atom *atom =
          cy_dim_terms(g, type->dim[axis], &t) == 1 && t->natoms == 1 ? cy_dim_atom(g, t->atoms[0]) : NULL;
      if (!atom || atom->kind != CY_ATOM_SYM || t->coef != 1)
        cy_bug("a size of input '%s' is neither a number nor a symbol", cy_str_text(g, ports[i].name));
      if (!seen[atom->sym])
        list[n++] = atom->sym;
      seen[atom->sym] = true;
    }
  }
  *out_syms = list;
  return n;
}

static uint32_t put_sizes(FILE *f, cy_work *b) {
  cy_sym *syms;
  uint32_t n = cy_input_symbols(b->g, &syms);
  if (n == 0)
    return 0;
  char **ids = CY_NEW_ARRAY(cy_graph_arena(b->g), char *, n);
  fprintf(f, "/* Sizes that the caller chooses. */\ntypedef struct %s_sizes {\n", b->name);
  for (uint32_t i = 0; i < n; i++) {
    const char *name = cy_str_text(b->g, cy_sym_of(b->g, syms[i])->name);
    ids[i] = identifier(b->g, ids, i, name);
    fprintf(f, "  int64_t %s;", ids[i]);
    if (strcmp(ids[i], name)) {
      fputs(" /* '", f);
      put_comment_text(f, name);
      fputs("' */", f);
    }
    fputc('\n', f);
  }
  fprintf(f, "} %s_sizes;\n\n", b->name);
  return n;
}

/* Macros for inputs and outputs of fixed shape: how many elements to provide. */
static void put_counts(FILE *f, cy_work *b, const char *what, const cy_port_info *ports, uint32_t n) {
  char **ids = port_identifiers(b->g, ports, n);
  for (uint32_t i = 0; i < n; i++) {
    int64_t count;
    if (cy_dim_is_const(b->g, cy_type_elems(b->g, &cy_value_of(b->g, ports[i].value)->type), &count))
      fprintf(f, "#define %s_%s_%s_ELEMENTS %lld\n", b->name, what, ids[i], (long long)count);
  }
}

/* The structs of cyto.h that strings, sequences, maps and optional values need. */
static void put_value_types(FILE *f, cy_work *b) {
  const cy_port_info *in, *out;
  uint32_t nin = cy_graph_inputs(b->g, &in), nout = cy_graph_outputs(b->g, &out);
  bool strings = false, values = false;
  for (uint32_t i = 0; i < nin + nout; i++) {
    uint8_t dtype = cy_value_of(b->g, i < nin ? in[i].value : out[i - nin].value)->type.dtype;
    strings |= dtype == CY_STRING;
    values |= dtype == CY_REF;
  }
  fprintf(f, "%s%s", strings ? "struct cyto_string; /* of cyto.h */\n" : "",
          values ? "struct cyto_value; /* of cyto.h; what is in an output's belongs to the context */\n" : "");
}

static void put_header(FILE *f, cy_work *b) {
  const cy_port_info *in, *out;
  uint32_t nin = cy_graph_inputs(b->g, &in), nout = cy_graph_outputs(b->g, &out);
  fputs("/* ", f);
  put_comment_text(f, cy_graph_name(b->g));
  fprintf(f, ", compiled by cytoc for ");
  put_comment_text(f, b->machine->text);
  fprintf(
      f,
      ".\n *\n * Tensors are dense and row-major. float16 and bfloat16 elements are their bits (uint16_t), bool is "
      "uint8_t 0 or 1,\n * elements of less than 8 bits are packed as ONNX packs them, the first in the lowest bits. "
      "Inputs are only read.\n * Calls with different caches may run at once; they share the weights.\n */\n"
      "#ifndef CYTO_MODEL_%s_H\n#define CYTO_MODEL_%s_H\n\n#include <stdint.h>\n\n"
      "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\nstruct cyrt_model;\nstruct cyrt_context;\nstruct cyto_error;\n",
      b->name, b->name);
  put_value_types(f, b);
  put_counts(f, b, "input", in, nin);
  put_counts(f, b, "output", out, nout);
  fputs(nin || nout ? "\n" : "", f);
  if (nin)
    put_struct(f, b, "inputs", in, nin, true);
  put_struct(f, b, "outputs", out, nout, false);
  bool sizes = put_sizes(f, b) > 0;
  fprintf(f,
          "/* Runs the model; 0, or a cyto_status after filling *error (may be NULL). Output memory that is not given "
          "(NULL) belongs to\n"
          " * the context. *cache keeps the context for the next call: start with NULL, end with "
          "cyto_context_destroy(); with cache NULL\n"
          " * each call makes its own, which uses all CPUs. */\n"
          "int32_t %s_run(struct cyrt_context **cache, ",
          b->name);
  if (nin)
    fprintf(f, "const %s_inputs *inputs, ", b->name);
  if (sizes)
    fprintf(f, "const %s_sizes *sizes, ", b->name);
  fprintf(f, "const %s_outputs *outputs, struct cyto_error *error);\n\n", b->name);
  fprintf(f,
          "typedef struct %s_options {\n  int32_t threads; /* how many a run may use, the calling one included; 0: all "
          "CPUs "
          "*/\n  int32_t device;  /* of models for CUDA: the number of the device */\n} %s_options;\n\n"
          "/* Optional: makes the *cache, which is NULL, of the first %s_run() with these options. */\n"
          "int32_t %s_create(struct cyrt_context **cache, const %s_options *options, struct cyto_error *error);\n"
          "/* As in cyto.h; NULL is allowed. */\nvoid cyto_context_destroy(struct cyrt_context *context);\n\n",
          b->name, b->name, b->name, b->name, b->name);
  fprintf(f,
          "/* For cyto_model_from_linked() of cyto.h. */\nconst struct cyrt_model *%s_model(void);\n\n"
          "#ifdef __cplusplus\n}\n#endif\n#endif\n",
          b->name);
}

int cy_header_write(cy_work *b, const char *path) {
  bool to_stdout = strcmp(path, "-") == 0;
  const char *near = to_stdout ? "-" : cy_temps_near(b->temps, path);
  FILE *f = to_stdout ? stdout : fopen(near, "w");
  bool ok = f != NULL;
  if (ok)
    put_header(f, b);
  if (ok && ferror(f))
    ok = false;
  if (f && (to_stdout ? fflush(f) : fclose(f)))
    ok = false;
  if (!ok)
    return cy_cannot_write(b->diag, path);
  return to_stdout ? 0 : cy_temps_commit(near, path, b->diag);
}
