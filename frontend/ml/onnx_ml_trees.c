/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_ml_trees.c - ai.onnx.ml: ensembles of trees, as nodes with names and, in version 5, numbered through.
 *
 * A tree ensemble is walked for all rows and trees at once: a tensor [rows, trees] holds the record each walk stands on,
 * and one step per level replaces every record by its child's. Leaves are their own children; trees without further
 * levels leave. Trees come last so that a kernel's lanes are trees of one row: their number is known and a single row has
 * as many, and where the row's features are few, they stay in registers (codegen/cpu/loops/loops_lookup.c). A step costs two
 * gathers, the record's packed fields and its threshold, and looking up the feature; where categories are asked for, a
 * third one fetches bits of the set that they must be in.
 */
#include "frontend/import_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define X (n->in[0])

/* ---- tree ensembles ---------------------------------------------------------------------------------------------- */

struct root {
  int64_t node;
  uint32_t levels; /* below it */
};

typedef struct forest {
  cy_dtype dtype; /* of features and thresholds: f32 or f64 */
  uint32_t n, ntrees;
  const int64_t *tree, *id, *feature, *yes, *no, *missing;
  const double *value;
  const char *const *mode;
  int64_t *child[2]; /* indices of nodes */
  uint32_t *set;     /* bits of all sets, and of a node that asks for membership the first word in them */
  uint32_t *word, words, set_words; /* both numbers are powers of two */
  struct root *root;
  uint32_t *known; /* of the inner nodes of trees: levels below them, plus one */
  struct place {
    int64_t tree, id;
    uint32_t index;
  } * order; /* sorted by tree and id */
} forest;

static int by_place(const void *a, const void *b) {
  const struct place *p = a, *q = b;
  return p->tree != q->tree ? (p->tree < q->tree ? -1 : 1) : p->id != q->id ? (p->id < q->id ? -1 : 1) : 0;
}

/* Index of node `id` of tree `tree`; -1: there is none. */
static int64_t find_place(const forest *f, int64_t tree, int64_t id) {
  struct place key = {tree, id, 0};
  const struct place *p = bsearch(&key, f->order, f->n, sizeof key, by_place);
  return p ? (int64_t)p->index : -1;
}

static bool is_leaf(const forest *f, uint32_t i) { return strcmp(f->mode[i], "LEAF") == 0; }

/* Levels below node i, UINT32_MAX beyond 512. Nodes may be the child of several. */
enum { DEEPEST = 512 };
static uint32_t depth_of(const forest *f, uint32_t i, uint32_t level) {
  uint32_t *known = f->known;
  if (is_leaf(f, i))
    return 0;
  if (level > DEEPEST)
    return UINT32_MAX;
  uint32_t deepest = 0;
  for (int side = 0; side < 2 && !known[i]; side++) {
    uint32_t d = depth_of(f, (uint32_t)f->child[side][i], level + 1);
    if (d == UINT32_MAX)
      return d;
    deepest = d > deepest ? d : deepest;
  }
  known[i] = known[i] ? known[i] : deepest + 2;
  return level + known[i] - 1 > DEEPEST ? UINT32_MAX : known[i] - 1;
}

static bool add_root(cy_importer *im, forest *f, int64_t node, long long name) {
  uint32_t levels = depth_of(f, (uint32_t)node, 0);
  f->root[f->ntrees++] = (struct root){node, levels};
  return levels != UINT32_MAX ||
         cy_build_error(im->g, NULL, "tree %lld has more than %d levels, or its nodes form a cycle", name, DEEPEST);
}

/* ---- sets of categories ---- */

/* Trees that split by a set of categories are written as chains of nodes, each asking for one category, all with the same
 * true child. A chain becomes one node that looks the category up among bits, and so does a lone node of a forest that has
 * chains: then nodes differ by less. Larger categories are left as written. */
#define MEMBER "BRANCH_MEMBER"
enum { CATEGORIES = 4096 };

static bool asks_category(const forest *f, int64_t i) {
  double v = f->value[i];
  return strcmp(f->mode[i], "BRANCH_EQ") == 0 && v >= 0 && v < CATEGORIES && v == floor(v);
}

/* The next node of i's chain; -1: there is none. */
static int64_t next_in_chain(const forest *f, int64_t i) {
  int64_t next = asks_category(f, i) ? f->child[0][i] : -1;
  bool same = next >= 0 && asks_category(f, next) && f->feature[next] == f->feature[i] &&
              f->child[1][next] == f->child[1][i] && (!f->missing || !f->missing[next] == !f->missing[i]);
  return same ? next : -1;
}

/* The chain may be a circle in a broken model. */
static void make_set(forest *f, int64_t head) {
  uint32_t *bits = f->set + f->words, length = 0;
  int64_t last = head;
  for (int64_t at = head; at >= 0 && length++ < f->n; at = next_in_chain(f, at)) {
    uint32_t category = (uint32_t)f->value[at];
    bits[category / 32] |= (uint32_t)1 << category % 32;
    last = at;
  }
  f->word[head] = f->words;
  f->words += f->set_words;
  f->child[0][head] = f->child[0][last];
  ((const char **)f->mode)[head] = MEMBER;
}

/* Lengths are powers of two: any number can be masked to a place in the table. */
static uint32_t power_above(uint32_t n) {
  uint32_t power = 1;
  while (power < n)
    power *= 2;
  return power;
}

static void make_sets(cy_importer *im, forest *f) {
  bool *inside = CY_NEW_ARRAY(im->arena, bool, f->n + 1);
  uint32_t largest = 0, heads = 0, chains = 0;
  for (uint32_t i = 0; i < f->n; i++) {
    int64_t next = next_in_chain(f, i);
    uint32_t category = asks_category(f, i) ? (uint32_t)f->value[i] : 0;
    largest = category > largest ? category : largest;
    chains += next >= 0;
    if (next >= 0)
      inside[next] = true;
  }
  for (uint32_t i = 0; i < f->n; i++)
    heads += asks_category(f, i) && !inside[i];
  f->set_words = power_above(largest / 32 + 1);
  if (!chains || (uint64_t)heads * f->set_words >= 1 << 24) /* a threshold of f32 has to hold the word's number */
    return;
  f->set = CY_NEW_ARRAY(im->arena, uint32_t, (size_t)power_above(heads * f->set_words) + f->set_words);
  f->word = CY_NEW_ARRAY(im->arena, uint32_t, f->n + 1);
  for (uint32_t i = 0; i < f->n; i++)
    if (asks_category(f, i) && !inside[i])
      make_set(f, i);
  f->words = power_above(f->words);
}

/* ---- attributes and features ---- */

/* A list attribute of `count` elements that is a tensor of any number type, as doubles; NULL after a diagnostic. */
static const double *tensor_list(cy_importer *im, const cy_onnx_node *n, const char *name, uint32_t *out_count) {
  const Onnx__AttributeProto *a = cy_onnx_attr(im, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
  cy_val v = a && a->t ? cy_import_tensor(im, a->t, cy_arena_printf(im->arena, "attribute '%s'", name)) : 0;
  const cy_value *value = v ? cy_value_of(im->g, v) : NULL;
  if (!value || cy_dtype_of((cy_dtype)value->type.dtype)->cls == 'S')
    return NULL;
  cy_dtype dtype = (cy_dtype)value->type.dtype;
  *out_count = (uint32_t)(value->data.size * 8 / (uint64_t)cy_dtype_of(dtype)->bits);
  double *list = CY_NEW_ARRAY(im->arena, double, *out_count + 1);
  for (uint32_t i = 0; i < *out_count; i++) {
    cy_scalar s = cy_scalar_load(value->data.bytes, dtype, i);
    list[i] = cy_dtype_is_float(dtype) ? s.f : (double)s.i;
  }
  return list;
}

/* A list of floats, which may come as a tensor instead, with "_as_tensor" behind its name: of doubles, mostly. NULL: neither
 * is there, or a diagnostic. */
static const double *number_list(cy_importer *im, const cy_onnx_node *n, const char *name, uint32_t *out_count) {
  const char *tensor = cy_arena_printf(im->arena, "%s_as_tensor", name);
  const double *list = cy_onnx_floats(im, n, name, out_count);
  if (!cy_onnx_has(n, tensor))
    return list;
  if (list && *out_count) {
    cy_build_error(im->g, cy_arena_printf(im->arena, "attribute '%s'", tensor),
                   "expected either this one or '%s', found both", name);
    return NULL;
  }
  return tensor_list(im, n, tensor, out_count);
}

/* The features as rows: doubles stay doubles, which thresholds and sums are then, too; all else is f32. */
static cy_val feature_rows(cy_importer *im, const cy_onnx_node *n) {
  const cy_type *t = cy_onnx_type(im, X);
  if (t->dtype != CY_F64 || (t->rank != 1 && t->rank != 2))
    return cy_onnx_ml_rows(im, n);
  return t->rank == 1 ? cy_build_unsqueeze(im->g, X, 0) : X;
}

static cy_val number_constant(cy_importer *im, const double *v, uint32_t n, cy_dtype dtype) {
  int64_t dims[1] = {n};
  return dtype == CY_F64 ? cy_onnx_ml_constant(im, CY_F64, v, dims, 1) : cy_onnx_ml_floats(im, v, n);
}

/* ---- as nodes with names ---- */

static bool read_lists(cy_importer *im, const cy_onnx_node *n, forest *f) {
  uint32_t c[6];
  f->tree = cy_onnx_ints(im, n, "nodes_treeids", &f->n);
  f->id = cy_onnx_ints(im, n, "nodes_nodeids", &c[0]);
  f->feature = cy_onnx_ints(im, n, "nodes_featureids", &c[1]);
  f->yes = cy_onnx_ints(im, n, "nodes_truenodeids", &c[2]);
  f->no = cy_onnx_ints(im, n, "nodes_falsenodeids", &c[3]);
  f->value = number_list(im, n, "nodes_values", &c[4]);
  f->mode = cy_onnx_strings(im, n, "nodes_modes", &c[5]);
  if (!f->tree || !f->id || !f->feature || !f->yes || !f->no || !f->value || !f->mode)
    return cy_build_error(im->g, NULL,
                          "expected the attributes nodes_treeids, nodes_nodeids, nodes_featureids, nodes_truenodeids, "
                          "nodes_falsenodeids, nodes_values and nodes_modes as lists");
  for (int i = 0; i < 6; i++)
    if (c[i] != f->n)
      return cy_build_error(im->g, NULL, "the nodes_* lists differ in length: nodes_treeids has %u, another one %u",
                            f->n, c[i]);
  uint32_t missing;
  f->missing = cy_onnx_ints(im, n, "nodes_missing_value_tracks_true", &missing);
  if (f->missing && missing != f->n)
    f->missing = NULL;
  return true;
}

static bool link_nodes(cy_importer *im, forest *f, int64_t features) {
  f->order = CY_NEW_ARRAY(im->arena, struct place, f->n + 1);
  f->root = CY_NEW_ARRAY(im->arena, struct root, f->n + 1);
  for (uint32_t i = 0; i < f->n; i++)
    f->order[i] = (struct place){f->tree[i], f->id[i], i};
  qsort(f->order, f->n, sizeof *f->order, by_place);
  for (int side = 0; side < 2; side++) {
    f->child[side] = CY_NEW_ARRAY(im->arena, int64_t, f->n + 1);
    for (uint32_t i = 0; i < f->n; i++) {
      int64_t at = is_leaf(f, i) ? i : find_place(f, f->tree[i], side ? f->yes[i] : f->no[i]);
      if (at < 0)
        return cy_build_error(im->g, NULL, "node %lld of tree %lld names a child that does not exist",
                              (long long)f->id[i], (long long)f->tree[i]);
      if (!is_leaf(f, i) && (f->feature[i] < 0 || f->feature[i] >= features))
        return cy_build_error(im->g, "attribute 'nodes_featureids'", "expected a feature below %lld, found %lld",
                              (long long)features, (long long)f->feature[i]);
      f->child[side][i] = at;
    }
  }
  make_sets(im, f);
  f->known = CY_NEW_ARRAY(im->arena, uint32_t, f->n + 1);
  for (uint32_t i = 0; i < f->n; i++) { /* the first node listed of a tree is its root */
    bool first = true;
    for (uint32_t k = 0; k < f->ntrees && first; k++)
      first = f->tree[f->root[k].node] != f->tree[i];
    if (!first)
      continue;
    if (!add_root(im, f, i, (long long)f->tree[i]))
      return false;
  }
  return true;
}

static cy_val constant_indices(cy_importer *im, const int64_t *v, uint32_t n) {
  int32_t *narrow = CY_NEW_ARRAY(im->arena, int32_t, n + 1);
  int64_t dims[1] = {n};
  for (uint32_t i = 0; i < n; i++)
    narrow[i] = (int32_t)v[i];
  return cy_onnx_ml_constant(im, CY_I32, narrow, dims, 1);
}

/* A walk stands on records: the roots come first, then the children of every inner node side by side, so that a node
 * needs to say where the first of them is and the comparison chooses. A record has fields; those that fit into 31 bits
 * together are one number, which one gather fetches. A node that several name as their child has several records. */
enum { MISSING, MODE, FEATURE, PAIR, FIELDS };

typedef struct records {
  uint32_t n;
  int64_t *node;                                             /* of each record */
  int64_t *field[FIELDS];                                    /* of each record */
  uint32_t word[FIELDS], shift[FIELDS], bits[FIELDS], words; /* where a field is; without bits it is always 0 */
  cy_val table[FIELDS], threshold, sets;
  cy_op compare[7]; /* by MODE; CY_OP_and: is a member of a set, whose first word is the threshold */
  int mode_of[7], nmodes;
  bool differs; /* one of the comparisons is != */
} records;

static const struct {
  const char *name;
  cy_op op;
} branches[] = {{"BRANCH_LEQ", CY_OP_le}, {"BRANCH_LT", CY_OP_lt}, {"BRANCH_GTE", CY_OP_ge}, {"BRANCH_GT", CY_OP_gt},
                {"BRANCH_EQ", CY_OP_eq},  {MEMBER, CY_OP_and},     {"BRANCH_NEQ", CY_OP_ne}};
enum { LEQ, ELEMENT = 5, NEQ, BRANCHES };

static int branch_of(const forest *f, int64_t node) {
  int b = 0;
  while (b < NEQ && strcmp(f->mode[node], branches[b].name) != 0)
    b++;
  return b;
}

/* Numbers the comparisons that occur. Number 0 is the leaves', too, and must not hold for a threshold of NaN. */
static void number_modes(const forest *f, records *r) {
  bool used[BRANCHES] = {false}, others = false;
  for (uint32_t i = 0; i < f->n; i++)
    if (f->known[i])
      used[branch_of(f, i)] = true;
  for (int b = 0; b < ELEMENT; b++)
    others |= used[b];
  used[LEQ] |= !others;
  r->differs = used[NEQ];
  for (int b = 0; b < BRANCHES; b++)
    if (used[b]) {
      r->compare[r->nmodes] = branches[b].op;
      r->mode_of[b] = r->nmodes++;
    }
}

/* Adds node `at` as a record. A leaf is its own child. */
static void add_record(const forest *f, records *r, double *threshold, int64_t at, const int64_t *pair) {
  uint32_t i = r->n++;
  bool leaf = is_leaf(f, (uint32_t)at);
  r->node[i] = at;
  r->field[PAIR][i] = leaf ? i : pair[at];
  r->field[FEATURE][i] = leaf ? 0 : f->feature[at];
  r->field[MISSING][i] = !leaf && f->missing && f->missing[at];
  r->field[MODE][i] = leaf ? 0 : r->mode_of[branch_of(f, at)];
  threshold[i] = leaf ? (double)NAN : branch_of(f, at) == ELEMENT ? f->word[at] : f->value[at];
}

static void pack_fields(cy_importer *im, records *r) {
  uint32_t used = 0;
  int64_t *packed = CY_NEW_ARRAY(im->arena, int64_t, r->n + 1);
  for (int k = 0; k < FIELDS; k++) {
    int64_t any = 0;
    for (uint32_t i = 0; i < r->n; i++)
      any |= r->field[k][i];
    while (any >> r->bits[k])
      r->bits[k]++;
    if (used + r->bits[k] > 31) {
      r->table[r->words++] = constant_indices(im, packed, r->n);
      memset(packed, 0, r->n * sizeof *packed);
      used = 0;
    }
    for (uint32_t i = 0; i < r->n; i++)
      packed[i] |= r->field[k][i] << used;
    r->word[k] = r->words;
    r->shift[k] = used;
    used += r->bits[k];
  }
  r->table[r->words++] = constant_indices(im, packed, r->n);
}

/* The nodes in the order in which walks from the roots reach them. */
static void lay_records(cy_importer *im, const forest *f, records *r) {
  uint32_t room = f->ntrees + 1, next = f->ntrees;
  for (uint32_t i = 0; i < f->n; i++)
    room += is_leaf(f, i) ? 0 : 2;
  int64_t *pair = CY_NEW_ARRAY(im->arena, int64_t, f->n + 1), *order = CY_NEW_ARRAY(im->arena, int64_t, room + 1);
  double *threshold = CY_NEW_ARRAY(im->arena, double, room + 1);
  r->node = CY_NEW_ARRAY(im->arena, int64_t, room + 1);
  number_modes(f, r);
  for (int k = 0; k < FIELDS; k++)
    r->field[k] = CY_NEW_ARRAY(im->arena, int64_t, room + 1);
  for (uint32_t k = 0; k < f->ntrees; k++)
    order[k] = f->root[k].node;
  while (r->n < next) {
    int64_t at = order[r->n];
    if (!is_leaf(f, (uint32_t)at) && !pair[at]) {
      pair[at] = next;
      order[next++] = f->child[0][at];
      order[next++] = f->child[1][at];
    }
    add_record(f, r, threshold, at, pair);
  }
  r->node[r->n++] = order[0]; /* never reached: it bounds where a last record could step to */
  pack_fields(im, r);
  r->threshold = number_constant(im, threshold, r->n, f->dtype);
  int64_t words[1] = {f->words + f->set_words}; /* a set is as long anywhere */
  r->sets = f->words ? cy_onnx_ml_constant(im, CY_I32, f->set, words, 1) : 0;
}

/* A field of the records whose words are given; 0: it is always 0. A word's last field needs no mask. */
static cy_val field_of(cy_importer *im, const records *r, int field, const cy_val *words) {
  cy_val v = words[r->word[field]];
  int next = field + 1;
  if (!r->bits[field])
    return 0;
  v = r->shift[field] ? BINARY(shr, v, LIKE(v, r->shift[field])) : v;
  while (next < FIELDS && !r->bits[next])
    next++;
  bool last = next == FIELDS || r->word[next] != r->word[field];
  return last ? v : BINARY(and, v, LIKE(v, (double)(((int64_t)1 << r->bits[field]) - 1)));
}

/* Is x in the set whose first word is `word`? Both may be anything; masked, they name a place in the table. */
static cy_val member(cy_importer *im, const forest *f, const records *r, cy_val x, cy_val word) {
  cy_val number = CAST(x, CY_I32), first = CAST(word, CY_I32);
  number = BINARY(and, number, LIKE(number, 32.0 * f->set_words - 1));
  first = BINARY(and, first, LIKE(first, (double)f->words - 1));
  cy_val at = ADD(first, BINARY(shr, number, LIKE(number, 5)));
  cy_val bits = cy_build_gather(im->g, r->sets, at, 0), place = BINARY(and, number, LIKE(number, 31));
  cy_val bit = BINARY(and, BINARY(shr, bits, place), LIKE(bits, 1));
  cy_val whole = BINARY(eq, CAST(number, (cy_dtype)cy_onnx_type(im, x)->dtype), x); /* x may be 1.5, or too large */
  return BINARY(and, whole, CAST(bit, CY_BOOL));
}

/* Does x go to the true child? One comparison when all nodes agree on it, else each node's own. */
static cy_val decision(cy_importer *im, const forest *f, const records *r, cy_val x, cy_val threshold,
                       const cy_val *words) {
  cy_val mode = field_of(im, r, MODE, words), missing = field_of(im, r, MISSING, words);
  cy_val yes = cy_build_binary(im->g, r->compare[0], x, threshold);
  for (int m = 1; m < r->nmodes; m++) {
    cy_val chosen = BINARY(eq, mode, LIKE(mode, m));
    cy_val holds = r->compare[m] == CY_OP_and ? member(im, f, r, x, threshold)
                                              : cy_build_binary(im->g, r->compare[m], x, threshold);
    yes = SELECT(chosen, holds, yes);
  }
  if (f->missing && !missing && r->differs) /* of NaN, the other comparisons are false */
    missing = LIKE(words[0], 0);
  if (!missing)
    return yes;
  cy_val gap = UNARY(isnan, x);
  return SELECT(gap, CAST(missing, CY_BOOL), yes);
}

/* One level down: from the records `at` [rows, trees]. x: the features [rows, features]. */
static cy_val step(cy_importer *im, const forest *f, const records *r, cy_val x, cy_val at) {
  cy_val words[FIELDS];
  for (uint32_t k = 0; k < r->words; k++)
    words[k] = cy_build_gather(im->g, r->table[k], at, 0);
  cy_val pair = field_of(im, r, PAIR, words), feature = field_of(im, r, FEATURE, words);
  cy_val in[2] = {x, feature ? feature : MUL(at, LIKE(at, 0))}; /* feature 0 alone: indices of at's shape */
  cy_attr axis = cy_attr_int(CY_ATTR_axis, 1);
  cy_val seen = cy_build(im->g, CY_OP_gather_elements, in, 2, &axis, 1, NULL, 1);
  cy_val threshold = cy_build_gather(im->g, r->threshold, at, 0);
  cy_val yes = decision(im, f, r, seen, threshold, words);
  return ADD(pair, CAST(yes, CY_I32));
}

static int by_levels(const void *a, const void *b) {
  const struct root *p = a, *q = b;
  return p->levels != q->levels ? (p->levels < q->levels) - (p->levels > q->levels)
                                : (p->node > q->node) - (p->node < q->node);
}

/* [rows, columns]: `weights` [nodes, columns] of the leaves that every row reaches, combined over the trees by `op`. The
 * deepest trees come first: where over a quarter of those still walked have no further level, they leave. */
static cy_val walk(cy_importer *im, const forest *f, cy_val x, cy_val weights, cy_op op) {
  int64_t trees_axis = 1;
  cy_graph *g = im->g;
  records r = {0};
  if (!f->ntrees)
    return cy_build_error(g, NULL, "expected at least one tree");
  qsort(f->root, f->ntrees, sizeof *f->root, by_levels);
  lay_records(im, f, &r);
  int64_t *first = CY_NEW_ARRAY(im->arena, int64_t, f->ntrees + 1);
  for (uint32_t k = 0; k < f->ntrees; k++)
    first[k] = k;
  cy_dim rows = cy_onnx_type(im, x)->dim[0], dims[2] = {rows, cy_dim_const(g, f->ntrees)};
  cy_val table = cy_build_gather(g, weights, constant_indices(im, r.node, r.n), 0), scores = 0;
  cy_val at = cy_build_expand(g, cy_build_unsqueeze(g, constant_indices(im, first, f->ntrees), 0), dims, 2);
  for (uint32_t level = 0, trees = f->ntrees; at && trees; level++) {
    uint32_t deeper = trees;
    while (deeper && f->root[deeper - 1].levels <= level)
      deeper--;
    if (deeper == 0 || trees - deeper >= trees / 4 + 1) {
      cy_val leaves = cy_build_slice_axis(g, at, 1, cy_dim_const(g, deeper), cy_dim_const(g, trees - deeper));
      cy_val part = cy_build_reduce(g, op, cy_build_gather(g, table, leaves, 0), &trees_axis, 1, false);
      scores = !scores                  ? part
               : op == CY_OP_reduce_min ? BINARY(min, scores, part)
               : op == CY_OP_reduce_max ? BINARY(max, scores, part)
                                        : ADD(scores, part);
      at = deeper ? cy_build_slice_axis(g, at, 1, cy_dim_const(g, 0), cy_dim_const(g, deeper)) : at;
      trees = deeper;
    }
    at = trees ? step(im, f, &r, x, at) : at;
  }
  return scores;
}

typedef struct leaf_weights {
  const char *tree, *node, *id, *weight; /* attribute names */
  uint32_t columns;
  bool all_positive;
  uint32_t distinct; /* columns that occur */
} leaf_weights;

/* Table [nodes, columns] of what each leaf adds to each class or target. */
static cy_val weight_table(cy_importer *im, const cy_onnx_node *n, const forest *f, leaf_weights *w) {
  uint32_t count, c[3];
  const int64_t *tree = cy_onnx_ints(im, n, w->tree, &count), *node = cy_onnx_ints(im, n, w->node, &c[0]);
  const int64_t *id = cy_onnx_ints(im, n, w->id, &c[1]);
  const double *weight = number_list(im, n, w->weight, &c[2]);
  if (!tree || !node || !id || !weight || c[0] != count || c[1] != count || c[2] != count)
    return cy_build_error(im->g, NULL, "expected the attributes %s, %s, %s and %s as lists of one length", w->tree,
                          w->node, w->id, w->weight);
  bool wide = f->dtype == CY_F64;
  double *table = CY_NEW_ARRAY(im->arena, double, (size_t)f->n *w->columns + 1);
  bool *seen = CY_NEW_ARRAY(im->arena, bool, w->columns + 1);
  w->all_positive = true;
  for (uint32_t i = 0; i < count; i++) {
    int64_t at = find_place(f, tree[i], node[i]);
    if (at < 0 || id[i] < 0 || id[i] >= w->columns)
      return cy_build_error(im->g, NULL, "entry %u of %s names a node or column that does not exist", i, w->weight);
    double *sum = &table[(size_t)at * w->columns + (size_t)id[i]];
    *sum = wide ? *sum + weight[i] : (float)*sum + (float)weight[i];
    w->all_positive &= weight[i] >= 0;
    w->distinct += !seen[id[i]];
    seen[id[i]] = true;
  }
  int64_t dims[2] = {f->n, w->columns};
  return CAST(cy_onnx_ml_constant(im, CY_F64, table, dims, 2), f->dtype);
}

/* [rows, columns]: the leaves' weights combined over the trees (op), without base values. 0 after a diagnostic. */
static cy_val forest_scores(cy_importer *im, const cy_onnx_node *n, leaf_weights *w, cy_op op) {
  forest f = {0};
  int64_t features;
  cy_val x = feature_rows(im, n);
  if (!x || !read_lists(im, n, &f))
    return 0;
  f.dtype = (cy_dtype)cy_onnx_type(im, x)->dtype;
  if (!cy_dim_is_const(im->g, cy_onnx_type(im, x)->dim[1], &features))
    features = INT64_MAX;
  if (!link_nodes(im, &f, features))
    return 0;
  cy_val table = weight_table(im, n, &f, w);
  return table ? walk(im, &f, x, table, op) : 0;
}

static cy_val with_base(cy_importer *im, const cy_onnx_node *n, cy_val scores, uint32_t columns) {
  uint32_t count;
  const double *base = number_list(im, n, "base_values", &count);
  if (!base || !scores || (count != columns && count != 1))
    return scores;
  return ADD(scores, number_constant(im, base, count, (cy_dtype)cy_onnx_type(im, scores)->dtype));
}

/* Scores are f32, whatever they were added up in. */
static bool set_floats(cy_importer *im, const cy_onnx_node *n, uint32_t k, cy_val scores) {
  return scores && cy_importer_set(im, n, k, CAST(scores, CY_F32));
}

IMPORT(tree_classifier) {
  leaf_weights w = {.tree = "class_treeids", .node = "class_nodeids", .id = "class_ids", .weight = "class_weights"};
  uint32_t ints = 0, strings = 0, bases = 0;
  cy_onnx_ints(im, n, "classlabels_int64s", &ints);
  cy_onnx_strings(im, n, "classlabels_strings", &strings);
  number_list(im, n, "base_values", &bases);
  w.columns = ints ? ints : strings ? strings : 1;
  int post = cy_onnx_ml_post(im, n);
  cy_val labels = cy_onnx_ml_labels(im, n, "classlabels_int64s", "classlabels_strings", w.columns);
  cy_val scores = labels && post >= 0 ? forest_scores(im, n, &w, CY_OP_reduce_sum) : 0;
  if (!scores)
    return false;
  if (w.columns == 2 &&
      w.distinct == 1) { /* one column decides between two classes: it is the one that holds weights */
    int64_t axis = 1;
    cy_val s = cy_build_reduce(im->g, CY_OP_reduce_sum, scores, &axis, 1, true);
    return cy_onnx_ml_set_binary(im, n, labels, with_base(im, n, s, bases == 1), post, w.all_positive) &&
           set_floats(im, n, 1, n->nout > 1 ? n->out[1] : s);
  }
  scores = with_base(im, n, scores, w.columns);
  return scores && cy_importer_set(im, n, 0, cy_onnx_ml_best(im, labels, scores)) &&
         set_floats(im, n, 1, cy_onnx_ml_transformed(im, scores, post));
}

IMPORT(tree_regressor) {
  leaf_weights w = {.tree = "target_treeids", .node = "target_nodeids", .id = "target_ids", .weight = "target_weights"};
  w.columns = (uint32_t)cy_onnx_int(im, n, "n_targets", 1);
  int how = cy_onnx_word(im, n, "aggregate_function", "SUM", "SUM|AVERAGE|MIN|MAX"), post = cy_onnx_ml_post(im, n);
  if (how < 0 || post < 0)
    return false;
  cy_op op = how == 2 ? CY_OP_reduce_min : how == 3 ? CY_OP_reduce_max : CY_OP_reduce_sum;
  cy_val scores = forest_scores(im, n, &w, op);
  if (scores && how == 1) {
    uint32_t count, trees = 0;
    const int64_t *tree = cy_onnx_ints(im, n, "nodes_treeids", &count);
    for (uint32_t i = 0; i < count; i++)
      trees += i == 0 || tree[i] != tree[i - 1];
    scores = DIV(scores, LIKE(scores, trees));
  }
  scores = with_base(im, n, scores, w.columns);
  return scores && set_floats(im, n, 0, cy_onnx_ml_transformed(im, scores, post));
}

/* ---- TreeEnsemble of version 5: nodes and leaves are numbered through ---- */

typedef struct ensemble {
  forest f;
  uint32_t nnodes, nleaves, room; /* nodes as written; f.n grows by the chains of set memberships */
  const int64_t *child[2], *leaf[2];
} ensemble;

/* Node i's child in the numbering of nodes and leaves; -1: it names none. */
static int64_t ensemble_child(const ensemble *e, uint32_t i, int yes) {
  int64_t to = e->child[yes][i];
  bool leaf = e->leaf[yes][i] != 0;
  return to < 0 || to >= (int64_t)(leaf ? e->nleaves : e->nnodes) ? -1 : to + (leaf ? e->nnodes : 0);
}

static void set_node(ensemble *e, uint32_t at, int64_t feature, double value, const char *mode, int64_t yes, int64_t no,
                     int64_t missing) {
  ((int64_t *)e->f.feature)[at] = feature;
  ((double *)e->f.value)[at] = value;
  ((const char **)e->f.mode)[at] = mode;
  ((int64_t *)e->f.missing)[at] = missing;
  e->f.child[1][at] = yes;
  e->f.child[0][at] = no;
}

/* A node that asks whether the feature is in a set becomes a chain of nodes that ask for one member each. */
static bool set_chain(cy_importer *im, ensemble *e, uint32_t at, const int64_t *feature, const double **members,
                      const double *end, int64_t missing) {
  int64_t yes = ensemble_child(e, at, 1), no = ensemble_child(e, at, 0);
  const double *from = *members;
  while (*members < end && !isnan(**members))
    ++*members;
  uint32_t count = (uint32_t)(*members - from), place = at;
  *members += *members < end;
  if (!count)
    return cy_build_error(im->g, "attribute 'membership_values'",
                          "node %u asks for membership in a set that is empty or missing", at);
  for (uint32_t k = 0; k < count; k++) {
    uint32_t next = k + 1 < count ? e->f.n++ : 0;
    set_node(e, place, feature[at], from[k], "BRANCH_EQ", yes, next ? next : no, missing);
    place = next;
  }
  return true;
}

static bool fill_ensemble(cy_importer *im, const cy_onnx_node *n, ensemble *e, const int64_t *feature,
                          const double *splits, const double *modes, int64_t features) {
  static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"};
  uint32_t nmembers = 0, nmissing;
  const double *members =
      cy_onnx_has(n, "membership_values") ? tensor_list(im, n, "membership_values", &nmembers) : NULL;
  const int64_t *missing = cy_onnx_ints(im, n, "nodes_missing_value_tracks_true", &nmissing);
  const double *end = members + nmembers;
  e->room = e->nnodes + e->nleaves + nmembers + 1;
  e->f.feature = CY_NEW_ARRAY(im->arena, int64_t, e->room);
  e->f.value = CY_NEW_ARRAY(im->arena, double, e->room);
  e->f.mode = CY_NEW_ARRAY(im->arena, const char *, e->room);
  e->f.missing = CY_NEW_ARRAY(im->arena, int64_t, e->room);
  for (int side = 0; side < 2; side++)
    e->f.child[side] = CY_NEW_ARRAY(im->arena, int64_t, e->room);
  e->f.n = e->nnodes + e->nleaves;
  for (uint32_t i = e->nnodes; i < e->f.n; i++)
    set_node(e, i, 0, 0, "LEAF", i, i, 0);
  for (uint32_t i = 0; i < e->nnodes; i++) {
    int64_t yes = ensemble_child(e, i, 1), no = ensemble_child(e, i, 0),
            gap = missing && nmissing == e->nnodes ? missing[i] : 0;
    if (yes < 0 || no < 0 || feature[i] < 0 || feature[i] >= features || modes[i] < 0 || modes[i] > 6)
      return cy_build_error(im->g, NULL, "node %u names a child, a feature or a mode that does not exist", i);
    if (modes[i] < 6)
      set_node(e, i, feature[i], splits[i], names[(int)modes[i]], yes, no, gap);
    else if (!members || !set_chain(im, e, i, feature, &members, end, gap))
      return members != NULL
                 ? false
                 : cy_build_error(im->g, "attribute 'membership_values'", "expected values for node %u, found none", i);
  }
  if (!missing)
    e->f.missing = NULL;
  return true;
}

static bool read_ensemble(cy_importer *im, const cy_onnx_node *n, ensemble *e, int64_t features) {
  uint32_t c[7] = {0}, roots;
  const int64_t *feature = cy_onnx_ints(im, n, "nodes_featureids", &e->nnodes),
                *root = cy_onnx_ints(im, n, "tree_roots", &roots);
  e->child[1] = cy_onnx_ints(im, n, "nodes_truenodeids", &c[0]);
  e->child[0] = cy_onnx_ints(im, n, "nodes_falsenodeids", &c[1]);
  e->leaf[1] = cy_onnx_ints(im, n, "nodes_trueleafs", &c[2]);
  e->leaf[0] = cy_onnx_ints(im, n, "nodes_falseleafs", &c[3]);
  const double *splits = tensor_list(im, n, "nodes_splits", &c[4]), *modes = tensor_list(im, n, "nodes_modes", &c[5]);
  if (!feature || !root || !splits || !modes || !e->child[0] || !e->child[1] || !e->leaf[0] || !e->leaf[1])
    return cy_build_error(
        im->g, NULL,
        "expected the attributes tree_roots, nodes_featureids, nodes_truenodeids, nodes_falsenodeids, "
        "nodes_trueleafs, nodes_falseleafs, nodes_splits and nodes_modes");
  for (int i = 0; i < 6; i++)
    if (c[i] != e->nnodes)
      return cy_build_error(im->g, NULL, "the nodes_* lists differ in length: nodes_featureids has %u, another one %u",
                            e->nnodes, c[i]);
  if (!fill_ensemble(im, n, e, feature, splits, modes, features))
    return false;
  make_sets(im, &e->f);
  e->f.root = CY_NEW_ARRAY(im->arena, struct root, roots + 1);
  e->f.known = CY_NEW_ARRAY(im->arena, uint32_t, e->f.n + 1);
  for (uint32_t k = 0; k < roots; k++) {
    if (root[k] < 0 || root[k] >= (int64_t)e->nnodes)
      return cy_build_error(im->g, "attribute 'tree_roots'", "tree %u has no root", k);
    if (!add_root(im, &e->f, root[k], k))
      return false;
  }
  return roots > 0;
}

/* What the leaves add to each target: [nodes and leaves, targets] of x's type. */
static cy_val ensemble_weights(cy_importer *im, const ensemble *e, const int64_t *target, const double *weight,
                               int64_t targets, cy_dtype dtype) {
  double *table = CY_NEW_ARRAY(im->arena, double, (size_t)e->f.n *(size_t)targets + 1);
  for (uint32_t i = 0; i < e->nleaves; i++) {
    if (target[i] < 0 || target[i] >= targets)
      return cy_build_error(im->g, "attribute 'leaf_targetids'", "expected a target below %lld, found %lld",
                            (long long)targets, (long long)target[i]);
    table[(size_t)(e->nnodes + i) * (size_t)targets + (size_t)target[i]] = weight[i];
  }
  int64_t dims[2] = {e->f.n, targets};
  return CAST(cy_onnx_ml_constant(im, CY_F64, table, dims, 2), dtype);
}

IMPORT(tree_ensemble) {
  ensemble e = {0};
  uint32_t weights;
  int64_t features, targets = cy_onnx_int(im, n, "n_targets", 1), how = cy_onnx_int(im, n, "aggregate_function", 1);
  int64_t post = cy_onnx_int(im, n, "post_transform", 0);
  cy_val x = feature_rows(im, n);
  const int64_t *target = cy_onnx_ints(im, n, "leaf_targetids", &e.nleaves);
  const double *weight = tensor_list(im, n, "leaf_weights", &weights);
  if (!x || !target || !weight || weights != e.nleaves || targets < 1 || targets > 1 << 20 || how < 0 || how > 3 ||
      post < 0 || post > 4)
    return x && cy_build_error(im->g, NULL,
                               "expected leaf_targetids and leaf_weights of one length, n_targets of at least 1, "
                               "aggregate_function 0 to 3 and post_transform 0 to 4");
  if (!cy_dim_is_const(im->g, cy_onnx_type(im, x)->dim[1], &features))
    features = INT64_MAX;
  e.f.dtype = (cy_dtype)cy_onnx_type(im, x)->dtype;
  if (!read_ensemble(im, n, &e, features))
    return false;
  cy_val table = ensemble_weights(im, &e, target, weight, targets, e.f.dtype);
  cy_op op = how == 2 ? CY_OP_reduce_min : how == 3 ? CY_OP_reduce_max : CY_OP_reduce_sum;
  cy_val scores = table ? walk(im, &e.f, x, table, op) : 0;
  if (scores && how == 0)
    scores = DIV(scores, LIKE(scores, e.f.ntrees));
  return scores && cy_importer_set(im, n, 0, cy_onnx_ml_transformed(im, scores, (int)post));
}
