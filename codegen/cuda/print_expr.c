/* SPDX-License-Identifier: Apache-2.0 */
/* print_expr.c - loop-IR expressions, loads and stores as C text; arithmetic by the templates of ir/elementwise.def.
 *
 * Every operation becomes a temporary of its own, so shared parts are printed once; the compiler behind folds the rest.
 * In registers floats narrower than f32 are f32 values that the narrow type can hold, packed integers are 8 bits wide.
 * Index arithmetic (i64) is printed in 32 bits wherever interval arithmetic over the known extents shows that it fits:
 * 64-bit multiplications and divisions are several times slower on a GPU. The sides of a select may load from outside
 * of their argument when they are not taken: a side that loads is printed as a branch, and what was computed there is
 * forgotten behind it; likewise one that is hardly ever taken.
 */
#include "codegen/cuda/cuda_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

enum { TEXTS = 32, TEXT = 192 };

/* A text that lives until TEXTS more were made: operands of what is being printed. */
static char *fresh(void) {
  static _Thread_local char ring[TEXTS][TEXT];
  static _Thread_local unsigned next;
  return ring[next++ % TEXTS];
}

static const char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *text(const char *format, ...) {
  char *t = fresh();
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t, TEXT, format, args);
  va_end(args);
  if (n >= TEXT)
    cy_bug("an expression of a kernel does not fit its line");
  return t;
}

void cy_cu_line(cy_cu *p, const char *format, ...) {
  va_list args;
  fprintf(p->out, "%*s", p->indent, "");
  va_start(args, format);
  vfprintf(p->out, format, args);
  va_end(args);
  fputc('\n', p->out);
}

void cy_cu_open(cy_cu *p) { p->indent += 2; }

void cy_cu_forget(cy_cu *p, uint32_t mark) {
  while (p->nlog > mark)
    p->temp[p->log[--p->nlog]] = 0;
}

void cy_cu_close(cy_cu *p, uint32_t mark) {
  cy_cu_forget(p, mark);
  p->indent -= 2;
}

/* ---- state ---- */

typedef struct cy_cu_range {
  int64_t min, max; /* min > max: not computed yet */
} range;

void cy_cu_init(cy_cu *p, FILE *out, cy_kernel *k, const cy_cuda_schedule *schedule) {
  *p = (cy_cu){.out = out, .k = k, .g = cy_kernel_graph(k), .schedule = schedule, .group = 1};
  p->nargs = cy_kernel_args(k, &p->args);
  p->ndims = cy_kernel_dims(k, &p->dims);
  p->nexprs = cy_expr_count(k) + 1;
  p->temp = calloc(p->nexprs, sizeof *p->temp);
  p->log = calloc(p->nexprs, sizeof *p->log);
  p->range = calloc(p->nexprs, sizeof *p->range);
  p->has_load = calloc(p->nexprs, 1);
  p->reduced = calloc(cy_kernel_local_count(k) + 1, 1);
  p->exchanged = calloc(p->nargs + 1, 1);
  if (!p->temp || !p->log || !p->range || !p->has_load || !p->reduced || !p->exchanged)
    cy_no_memory();
  for (uint32_t i = 0; i < p->nexprs; i++)
    p->range[i] = (range){1, 0};
}

void cy_cu_deinit(cy_cu *p) {
  free(p->temp);
  free(p->log);
  free(p->range);
  free(p->has_load);
  free(p->reduced);
  free(p->exchanged);
}

/* ---- types ---- */

static int bits_of(cy_dtype t) { return cy_dtype_of(t)->bits; }
static char class_of(cy_dtype t) { return cy_dtype_of(t)->cls; }
static bool small_float(cy_dtype t) { return class_of(t) == 'F' && bits_of(t) < 32; }
bool cy_cu_packed(cy_dtype t) { return bits_of(t) < 8; }

static const char *int_type(bool is_signed, int bits) {
  static const char *const names[2][4] = {{"u8", "u16", "u32", "u64"}, {"i8", "i16", "i32", "i64"}};
  return names[is_signed][bits <= 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3];
}

const char *cy_cu_type(cy_dtype t) {
  switch (class_of(t)) {
  case 'F': return t == CY_F64 ? "f64" : "f32";
  case 'B': return "b1";
  case 'I':
  case 'U': return int_type(class_of(t) == 'I', bits_of(t));
  default: cy_bug("a kernel computes with elements of type %s", cy_dtype_of(t)->name);
  }
}

const char *cy_cu_storage(cy_dtype t) {
  if (t == CY_F32 || t == CY_F64)
    return cy_cu_type(t);
  if (class_of(t) == 'F' || class_of(t) == 'B')
    return int_type(false, bits_of(t));
  return int_type(class_of(t) == 'I' && !cy_cu_packed(t), bits_of(t));
}

/* ---- intervals of index arithmetic ---- */

static range unknown(void) { return (range){INT64_MIN, INT64_MAX}; }
static bool fits_int(range r) { return r.min >= INT32_MIN && r.max <= INT32_MAX; }
static bool known(range r) { return r.min > INT64_MIN && r.max < INT64_MAX; }

static range dim_range(cy_cu *p, cy_dim d) {
  range r;
  cy_dim_range(p->g, d, &r.min, &r.max);
  return r;
}

static range var_range(cy_cu *p, cy_var v) {
  range r = dim_range(p, cy_kernel_var(p->k, v)->extent);
  return (range){0, r.max == INT64_MAX ? INT64_MAX : r.max > 0 ? r.max - 1 : 0};
}

static int64_t saturate(__int128 v) { return v > INT64_MAX ? INT64_MAX : v < INT64_MIN ? INT64_MIN : (int64_t)v; }

static range product(range a, range b) {
  __int128 v[4] = {(__int128)a.min * b.min, (__int128)a.min * b.max, (__int128)a.max * b.min, (__int128)a.max * b.max};
  __int128 low = v[0], high = v[0];
  for (int i = 1; i < 4; i++) {
    low = v[i] < low ? v[i] : low;
    high = v[i] > high ? v[i] : high;
  }
  return (range){saturate(low), saturate(high)};
}

static range range_of(cy_cu *p, cy_expr e);

static range op_range(cy_cu *p, const cy_expr_info *x) {
  range a = unknown(), b = a, c;
  bool same = x->n > 0 && cy_expr_of(p->k, x->arg[x->n - 1])->dtype == CY_I64;
  if (x->op == CY_OP_cast) {
    cy_dtype from = cy_expr_of(p->k, x->arg[0])->dtype;
    return from == CY_I32 || from == CY_I16 || from == CY_I8 ? (range){INT32_MIN, INT32_MAX} : unknown();
  }
  if (!same)
    return unknown();
  a = range_of(p, x->arg[x->op == CY_OP_select]);
  if (x->n > 1)
    b = range_of(p, x->arg[x->n - 1]);
  switch (x->op) {
  case CY_OP_add: c = (range){saturate((__int128)a.min + b.min), saturate((__int128)a.max + b.max)}; return c;
  case CY_OP_sub: c = (range){saturate((__int128)a.min - b.max), saturate((__int128)a.max - b.min)}; return c;
  case CY_OP_mul: return product(a, b);
  case CY_OP_div: return b.min > 0 && a.min >= 0 ? (range){0, a.max / b.min} : unknown();
  case CY_OP_mod: return b.min > 0 ? (range){0, b.max - 1} : unknown();
  case CY_OP_min: return (range){a.min < b.min ? a.min : b.min, a.max < b.max ? a.max : b.max};
  case CY_OP_max: return (range){a.min > b.min ? a.min : b.min, a.max > b.max ? a.max : b.max};
  case CY_OP_select: return (range){a.min < b.min ? a.min : b.min, a.max > b.max ? a.max : b.max};
  default: return unknown();
  }
}

static range range_of(cy_cu *p, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(p->k, e);
  if (p->range[e].min <= p->range[e].max)
    return p->range[e];
  range r = unknown();
  if (x->dtype == CY_I64)
    switch (x->op) {
    case CY_X_CONST: r = (range){x->c.i, x->c.i}; break;
    case CY_X_VAR: r = var_range(p, x->id); break;
    case CY_X_DIM: r = dim_range(p, x->id); break;
    case CY_X_LOCAL:
    case CY_X_LOAD: break;
    default: r = op_range(p, x);
    }
  return p->range[e] = r;
}

const char *cy_cu_var_type(cy_cu *p, cy_var v) { return fits_int(var_range(p, v)) ? "int" : "i64"; }
const char *cy_cu_dim_type(cy_cu *p, cy_dim d) { return fits_int(dim_range(p, d)) ? "int" : "i64"; }

static const char *type_of(cy_cu *p, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(p->k, e);
  return x->dtype == CY_I64 && fits_int(range_of(p, e)) ? "int" : cy_cu_type(x->dtype);
}

/* ---- constants ---- */

static const char *int_text(int64_t v) {
  if (v == INT64_MIN)
    return "(-9223372036854775807ll - 1)";
  return text(v < INT32_MIN || v > INT32_MAX ? "%s%lldll%s" : "%s%lld%s", v < 0 ? "(" : "", (long long)v,
              v < 0 ? ")" : "");
}

static const char *constant(cy_dtype t, cy_scalar c) {
  uint64_t bits = 0;
  switch (class_of(t)) {
  case 'B': return c.i ? "1" : "0";
  case 'I': return int_text(c.i);
  case 'U': return text("%llu%s", (unsigned long long)c.u, bits_of(t) == 64 ? "ull" : "u");
  }
  if (isfinite(c.f))
    return text(signbit(c.f) ? "(%a%s)" : "%a%s", c.f, t == CY_F64 ? "" : "f");
  float f = (float)c.f;
  uint32_t low;
  memcpy(&low, &f, 4);
  memcpy(&bits, &c.f, 8);
  return t == CY_F64 ? text("cy_f64_bits(0x%llxull)", (unsigned long long)bits) : text("cy_f32_bits(0x%xu)", low);
}

const char *cy_cu_dim(cy_cu *p, cy_dim d) {
  int64_t v;
  if (cy_dim_is_const(p->g, d, &v))
    return int_text(v);
  for (uint32_t i = 0; i < p->ndims; i++)
    if (p->dims[i] == d)
      return text("d%u", i);
  cy_bug("kernel '%s' was not handed a size that it uses", cy_kernel_name(p->k));
}

void cy_cu_identity(cy_op op, cy_dtype t, char *out, size_t cap) {
  snprintf(out, cap, "%s", constant(t, cy_scalar_neutral(op, t)));
}

/* ---- storage type ---- */

static bool has_codec(cy_dtype t) { return small_float(t); }

void cy_cu_decode(cy_dtype t, const char *raw, char *out, size_t cap) {
  if (has_codec(t))
    snprintf(out, cap, "cy_dec_%s(%s)", cy_dtype_of(t)->name, raw);
  else if (t == CY_BOOL)
    snprintf(out, cap, "%s != 0", raw);
  else if (cy_cu_packed(t) && class_of(t) == 'I')
    snprintf(out, cap, "cy_sext(%s, %d)", raw, bits_of(t));
  else
    snprintf(out, cap, "%s", raw);
}

static const char *decoded(cy_dtype t, const char *raw) {
  char *s = fresh();
  cy_cu_decode(t, raw, s, TEXT);
  return s;
}

const char *cy_cu_encoded(cy_dtype t, const char *v) {
  return has_codec(t) ? text("cy_enc_%s(%s)", cy_dtype_of(t)->name, v) : v;
}

static const char *load(cy_cu *p, cy_karg arg, const char *offset) {
  cy_dtype t = p->args[arg].dtype;
  if (cy_cu_packed(t))
    return decoded(t, text("cy_load_packed(a%u, %s, %d)", arg, offset, bits_of(t)));
  return decoded(t, text("a%u[%s]", arg, offset));
}

void cy_cu_store(cy_cu *p, cy_karg arg, const char *offset, const char *value) {
  cy_dtype t = p->args[arg].dtype;
  if (p->in_vector) {
    cy_cu_line(p, "y%u[u] = %s;", p->nstored++, cy_cu_encoded(t, value));
    return;
  }
  if (cy_cu_packed(t))
    cy_cu_line(p, "cy_store_packed(a%u, %s, %d, (u8)(%s));", arg, offset, bits_of(t), cy_cu_encoded(t, value));
  else
    cy_cu_line(p, "a%u[%s] = %s;", arg, offset, cy_cu_encoded(t, value));
}

/* ---- floats ---- */

/* A narrow float: v made representable. */
static const char *rounded(cy_dtype t, const char *v) { return small_float(t) ? decoded(t, cy_cu_encoded(t, v)) : v; }

/* ---- the expressions of elementwise.def ---- */

typedef struct schedule {
  const char *real, *integer;
} schedule;

static schedule form_of(cy_op op) {
  switch (op) {
#define EW_OP(name, inputs, flags, attributes, cost, real, integer, llvm_real, llvm_integer, cuda_real, cuda_integer)  \
  case CY_OP_##name:                                                                                                   \
    return (schedule){cuda_real, cuda_integer};
#include "ir/elementwise.def"
#undef EW_OP
  default:
    return (schedule){"", ""};
  }
}

/* What $c stands for in an op's template, operands apart. */
static const char *word_of(char c, cy_dtype t) {
  bool sgn = class_of(t) == 'I', f64 = t == CY_F64;
  int wide = bits_of(t) == 64 ? 64 : 32;
  switch (c) {
  case 'f':
    return f64 ? "f64" : "f32";
  case 'F':
    return f64 ? "" : "f";
  case 't':
    return t == CY_BOOL ? "u32" : cy_cu_type(t);
  case 'u':
    return int_type(false, wide);
  case 'w':
    return int_type(sgn, wide);
  case 's':
    return sgn ? "i64" : "u64";
  case 'b':
    return text("%d", bits_of(t));
  default:
    cy_bug("$%c in an op's template", c);
  }
}

/* The operation of elements of type t by its template. */
static const char *filled(cy_op op, cy_dtype t, const char *const *a) {
  schedule f = form_of(op);
  const char *from = class_of(t) == 'F' ? f.real : f.integer, *next;
  if (!*from)
    cy_bug("op '%s' on %s in a kernel", cy_op_of(op)->name, cy_dtype_of(t)->name);
  for (int skip = class_of(t) == 'U' ? 1 : class_of(t) == 'B' ? 2 : 0; skip > 0 && (next = strchr(from, ';')); skip--)
    from = next + 2;
  char *out = fresh();
  size_t n = 0;
  for (; *from && *from != ';' && n < TEXT; from++) {
    if (*from != '$') {
      out[n++] = *from;
      continue;
    }
    const char *word = *++from >= '0' && *from <= '2' ? a[*from - '0'] : word_of(*from, t);
    n += (size_t)snprintf(out + n, TEXT - n, "%s", word);
  }
  if (n >= TEXT)
    cy_bug("an expression of a kernel does not fit its line");
  out[n] = '\0';
  return out;
}

/* ---- integers ---- */

static const char *wrapped(cy_dtype t, const char *v) {
  if (t == CY_BOOL)
    return text("((%s) & 1) != 0", v);
  if (!cy_cu_packed(t))
    return v;
  return class_of(t) == 'I' ? text("cy_sext(%s, %d)", v, bits_of(t)) : text("(%s) & %d", v, (1 << bits_of(t)) - 1);
}

/* i64 index arithmetic that cannot overflow: plain operators, in 32 bits where the result and the operands fit. */
static const char *index_op(cy_cu *p, const cy_expr_info *x, range r, const char *const *a) {
  static const char sign[] = {
      [CY_OP_add - CY_OP_add] = '+', [CY_OP_sub - CY_OP_add] = '-', [CY_OP_mul - CY_OP_add] = '*'};
  range m = x->n > 0 ? range_of(p, x->arg[0]) : unknown(), n = x->n > 1 ? range_of(p, x->arg[1]) : m;
  const char *to = fits_int(r) ? "" : "(i64)";
  if (!known(r) || !known(m))
    return NULL;
  if (x->op == CY_OP_add || x->op == CY_OP_sub || x->op == CY_OP_mul)
    return text("%s%s %c %s", to, a[0], sign[x->op - CY_OP_add], a[1]);
  if ((x->op == CY_OP_div || x->op == CY_OP_mod) && m.min >= 0 && n.min > 0)
    return text("%s %c %s", a[0], x->op == CY_OP_div ? '/' : '%', a[1]);
  return NULL;
}

/* ---- conversion ---- */

static const char *real_to_int(cy_dtype from, cy_dtype to, const char *v) {
  const char *f = from == CY_F64 ? "f64" : "f32";
  bool sgn = class_of(to) == 'I';
  int bits = bits_of(to);
  if (bits >= 32)
    return text("cy_%s_%s(%s)", cy_cu_type(to), f, v);
  if (bits < 8)
    return wrapped(to, text("cy_i32_%s(%s)", f, v));
  return text("(%s)cy_clamp_%s(%s, %d, %d)", cy_cu_type(to), f, v, sgn ? -(1 << (bits - 1)) : 0,
              sgn ? (1 << (bits - 1)) - 1 : (1 << bits) - 1);
}

static const char *convert(cy_dtype from, cy_dtype to, const char *v) {
  bool real_from = class_of(from) == 'F';
  if (to == CY_BOOL)
    return text("%s != 0", v);
  if (class_of(to) != 'F')
    return real_from ? real_to_int(from, to, v) : wrapped(to, text("(%s)%s", cy_cu_type(to), v));
  const char *c = text("(%s)%s", cy_cu_type(to), v);
  if (from == to)
    return c;
  if (cy_dtype_is_float8(to)) /* which devices have an instruction for */
    return decoded(to, text("cy_sat_%s(%s)", cy_dtype_of(to)->name, c));
  return rounded(to, small_float(to) && bits_of(to) == 8 && to != CY_F8E8M0 ? text("cy_saturate(%s)", c) : c);
}

/* The bits of a register value as an unsigned integer, and back. */
static const char *bit_cast(cy_dtype from, cy_dtype to, const char *v) {
  const char *b = from == CY_F32   ? text("cy_bits_f32(%s)", v)
                  : from == CY_F64 ? text("cy_bits_f64(%s)", v)
                                   : text("(%s)%s", int_type(false, bits_of(from)), cy_cu_encoded(from, v));
  if (to == CY_F32)
    return text("cy_f32_bits(%s)", b);
  if (to == CY_F64)
    return text("cy_f64_bits(%s)", b);
  if (has_codec(to) || to == CY_BOOL || cy_cu_packed(to))
    return decoded(to, b);
  return text("(%s)%s", cy_cu_type(to), b);
}

/* ---- operations ---- */

static const char *op_text(cy_op op, cy_dtype in, cy_dtype out, const char *const *a) {
  static const char *const compare[] = {"==", "!=", "<", "<=", ">", ">="};
  if (op == CY_OP_cast)
    return convert(in, out, a[0]);
  if (op == CY_OP_bitcast)
    return bit_cast(in, out, a[0]);
  if (op == CY_OP_isnan)
    return class_of(in) == 'F' ? text("%s != %s", a[0], a[0]) : "0";
  if (op == CY_OP_isinf)
    return class_of(in) == 'F' ? text("%s - %s != %s - %s && %s == %s", a[0], a[0], a[0], a[0], a[0], a[0]) : "0";
  if (op >= CY_OP_eq && op <= CY_OP_ge)
    return text("%s %s %s", a[0], compare[op - CY_OP_eq], a[1]);
  const char *v = filled(op, in, a);
  return class_of(in) != 'F' ? wrapped(in, v) : cy_op_of(op)->exact ? v : rounded(out, v);
}

void cy_cu_combine(cy_cu *p, cy_op op, cy_dtype t, const char *a, const char *b, char *out, size_t cap) {
  (void)p;
  const char *pair[2] = {a, b};
  snprintf(out, cap, "%s", op_text(op, t, t, pair));
}

/* ---- expressions ---- */

static const char *remember(cy_cu *p, cy_expr e, uint32_t number) {
  p->temp[e] = number;
  p->log[p->nlog++] = e;
  return text("t%u", number);
}

void cy_cu_bind(cy_cu *p, cy_expr e, const char *value) {
  uint32_t number = ++p->ntemps;
  cy_cu_line(p, "const %s t%u = %s;", type_of(p, e), number, value);
  remember(p, e, number);
}

/* Is there a load below e? */
static bool has_load(cy_cu *p, cy_expr e) {
  if (p->has_load[e])
    return p->has_load[e] == 2;
  const cy_expr_info *x = cy_expr_of(p->k, e);
  bool yes = x->op == CY_X_LOAD;
  for (int i = 0; i < x->n && !yes; i++)
    yes = has_load(p, x->arg[i]);
  p->has_load[e] = yes ? 2 : 1;
  return yes;
}

static bool loads(cy_cu *p, cy_expr e) { return !p->temp[e] && has_load(p, e); }

static void select_side(cy_cu *p, uint32_t number, cy_expr side) {
  uint32_t mark = p->nlog;
  cy_cu_open(p);
  const char *v = cy_cu_value(p, side);
  cy_cu_line(p, "t%u = %s;", number, v);
  cy_cu_close(p, mark);
}

static const char *rare_value(cy_cu *p, cy_expr e, const cy_expr_info *x) {
  char cond[TEXT];
  snprintf(cond, sizeof cond, "%s", cy_cu_value(p, x->arg[0]));
  const char *usual = cy_cu_value(p, x->arg[2]);
  uint32_t number = ++p->ntemps;
  cy_cu_line(p, "%s t%u = %s;", type_of(p, e), number, usual);
  cy_cu_line(p, "if (%s) {", cond);
  select_side(p, number, x->arg[1]);
  cy_cu_line(p, "}");
  return remember(p, e, number);
}

static const char *select_value(cy_cu *p, cy_expr e, const cy_expr_info *x) {
  uint32_t number;
  if (x->id == CY_SELECT_RARE)
    return rare_value(p, e, x);
  const char *c = cy_cu_value(p, x->arg[0]);
  if (!loads(p, x->arg[1]) && !loads(p, x->arg[2])) {
    char cond[TEXT], yes[TEXT];
    snprintf(cond, sizeof cond, "%s", c);
    snprintf(yes, sizeof yes, "%s", cy_cu_value(p, x->arg[1]));
    const char *no = cy_cu_value(p, x->arg[2]);
    number = ++p->ntemps;
    cy_cu_line(p, "const %s t%u = %s ? %s : %s;", type_of(p, e), number, cond, yes, no);
    return remember(p, e, number);
  }
  number = ++p->ntemps;
  cy_cu_line(p, "%s t%u;", type_of(p, e), number);
  cy_cu_line(p, "if (%s) {", c);
  select_side(p, number, x->arg[1]);
  cy_cu_line(p, "} else {");
  select_side(p, number, x->arg[2]);
  cy_cu_line(p, "}");
  return remember(p, e, number);
}

/* Operands are temporaries or leaves: short texts, kept here because making them may use up the ring. */
static const char *computed(cy_cu *p, cy_expr e, const cy_expr_info *x) {
  char operand[3][TEXT];
  if (p->element && p->element(p, e, operand[0], TEXT)) {
    uint32_t number = ++p->ntemps;
    cy_cu_line(p, "const %s t%u = %s;", type_of(p, e), number, decoded(p->args[x->id].dtype, operand[0]));
    return remember(p, e, number);
  }
  const char *a[3] = {operand[0], operand[1], operand[2]}, *v = NULL;
  for (int i = 0; i < x->n; i++)
    snprintf(operand[i], TEXT, "%s", cy_cu_value(p, x->arg[i]));
  if (x->op == CY_X_LOAD)
    v = load(p, x->id, a[0]);
  else if (x->dtype == CY_I64)
    v = index_op(p, x, range_of(p, e), a);
  else if (x->op == CY_OP_div && x->dtype == CY_F32 && cy_cu_inverse_is_near(p->k, x->arg[1]))
    v = text("cy_ratio(%s, %s)", a[0], a[1]);
  if (!v)
    v = op_text(x->op, cy_expr_of(p->k, x->arg[0])->dtype, x->dtype, a);
  uint32_t number = ++p->ntemps;
  cy_cu_line(p, "const %s t%u = %s;", type_of(p, e), number, v);
  return remember(p, e, number);
}

const char *cy_cu_value(cy_cu *p, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(p->k, e);
  if (p->temp[e])
    return text("t%u", p->temp[e]);
  switch (x->op) {
  case CY_X_CONST: return constant(x->dtype, x->c);
  case CY_X_VAR: return text("v%u", x->id);
  case CY_X_DIM: return cy_cu_dim(p, x->id);
  case CY_X_LOCAL: return text("l%u", x->id);
  case CY_OP_select: return select_value(p, e, x);
  default: return computed(p, e, x);
  }
}
