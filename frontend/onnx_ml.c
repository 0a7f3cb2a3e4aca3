/* onnx_ml.c - ai.onnx.ml: trees, linear models and the usual preparation of tabular data.
 *
 * A tree ensemble is walked for all rows and trees at once: a tensor [trees, rows] holds the node each walk stands on,
 * and one step per level of the deepest tree replaces every node by its child. Leaves are their own children. Rows come
 * last so that a kernel's lanes are rows of one tree, whose nodes stay in the first-level cache.
 *
 * Labels may be strings; what looks labels up is in onnx_ml_lookup.c. Scores and labels follow what ONNX Runtime does
 * where the specification is silent (binary models with one weight column).
 */
#include "frontend/import_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define X (n->in[0])

static cy_val constant(cy_importer *im, cy_dtype dtype, const void *bytes, const int64_t *dims, int rank) {
  cy_dim d[CY_MAX_RANK];
  uint64_t count = 1;
  for (int i = 0; i < rank; i++) {
    d[i] = cy_dim_const(im->g, dims[i]);
    count *= (uint64_t)dims[i];
  }
  cy_type t = cy_type_make(dtype, rank, d);
  uint64_t size = count * (uint64_t)cy_dtype_of(dtype)->bits / 8;
  return cy_build_const(im->g, &t, cy_arena_copy(cy_graph_arena(im->g), bytes, size), size);
}

static cy_val constant_ints(cy_importer *im, const int64_t *v, uint32_t n) {
  int64_t dims[1] = {n};
  return constant(im, CY_I64, v, dims, 1);
}

cy_val cy_onnx_ml_floats(cy_importer *im, const double *v, uint32_t n) {
  float *f = CY_NEW_ARRAY(im->arena, float, n + 1);
  int64_t dims[1] = {n};
  for (uint32_t i = 0; i < n; i++)
    f[i] = (float)v[i];
  return constant(im, CY_F32, f, dims, 1);
}

/* The input as rows of f32: [features] becomes [1, features]. */
cy_val cy_onnx_ml_rows(cy_importer *im, const cy_onnx_node *n) {
  cy_val x = CAST(X, CY_F32);
  if (!x)
    return 0;
  const cy_type *t = cy_onnx_type(im, x);
  if (t->rank == 2)
    return x;
  if (t->rank != 1)
    return cy_build_error(im->g, "input 0", "expected a matrix of rows and features, found %s", cy_type_text(im->g, t));
  return cy_build_unsqueeze(im->g, x, 0);
}

int cy_onnx_ml_post(cy_importer *im, const cy_onnx_node *n) {
  return cy_onnx_word(im, n, "post_transform", "NONE", "NONE|SOFTMAX|LOGISTIC|SOFTMAX_ZERO|PROBIT");
}

static cy_val softmax(cy_importer *im, cy_val x) {
  cy_attr a = cy_attr_int(CY_ATTR_axis, cy_onnx_type(im, x)->rank - 1);
  return cy_build(im->g, CY_OP_softmax, &x, 1, &a, 1, NULL, 1);
}

cy_val cy_onnx_ml_transformed(cy_importer *im, cy_val scores, int post) {
  switch (post) {
  case POST_SOFTMAX:
    return softmax(im, scores);
  case POST_SOFTMAX_ZERO: /* zeros stay zero and take no part */
    return SELECT(BINARY(eq, scores, LIKE(scores, 0)), LIKE(scores, 0),
                  softmax(im, SELECT(BINARY(eq, scores, LIKE(scores, 0)), LIKE(scores, -INFINITY), scores)));
  case POST_LOGISTIC:
    return UNARY(sigmoid, scores);
  case POST_PROBIT:
    return cy_build_error(im->g, "attribute 'post_transform'",
                          "PROBIT is not supported; expected NONE, SOFTMAX, LOGISTIC or SOFTMAX_ZERO");
  default:
    return scores;
  }
}

/* The labels, integers or strings, or the class numbers where there are none. */
cy_val cy_onnx_ml_labels(cy_importer *im, const cy_onnx_node *n, const char *ints, const char *strings, uint32_t classes) {
  uint32_t count, texts;
  const int64_t *labels = cy_onnx_ints(im, n, ints, &count);
  cy_val named = labels && count ? 0 : cy_onnx_texts(im, n, strings, &texts);
  if (named && texts)
    return texts >= classes ? named
                            : cy_build_error(im->g, cy_arena_printf(im->arena, "attribute '%s'", strings),
                                             "expected a label for each of %u classes, found %u", classes, texts);
  int64_t *numbers = CY_NEW_ARRAY(im->arena, int64_t, classes + 1);
  for (uint32_t i = 0; i < classes; i++)
    numbers[i] = labels && i < count ? labels[i] : i;
  return constant_ints(im, numbers, classes);
}

cy_val cy_onnx_ml_best(cy_importer *im, cy_val labels, cy_val scores) {
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, 1), cy_attr_int(CY_ATTR_keepdims, 0), cy_attr_int(CY_ATTR_select_last, 0)};
  return cy_build_gather(im->g, labels, cy_build(im->g, CY_OP_argmax, &scores, 1, a, 3, NULL, 1), 0);
}

static cy_val column_pair(cy_importer *im, cy_val low, cy_val high) {
  cy_val pair[2] = {low, high};
  return low && high ? cy_build_concat(im->g, pair, 2, 1) : 0;
}

/* Two classes, one column of scores s [rows, 1]: the label by a threshold, and both columns of scores. */
static bool set_binary(cy_importer *im, const cy_onnx_node *n, cy_val labels, cy_val s, int post, bool probability) {
  cy_val wins = CAST(BINARY(gt, s, LIKE(s, probability ? 0.5 : 0)), CY_I64);
  cy_val other = probability ? SUB(LIKE(s, 1), s) : UNARY(neg, s);
  if (post == POST_LOGISTIC) {
    other = UNARY(sigmoid, UNARY(neg, s));
    s = UNARY(sigmoid, s);
  }
  return cy_importer_set(im, n, 0, cy_build_gather(im->g, labels, cy_build_squeeze(im->g, wins, 1), 0)) &&
         cy_importer_set(im, n, 1, column_pair(im, other, s));
}

/* ---- tree ensembles ---------------------------------------------------------------------------------------------- */

typedef struct forest {
  cy_dtype dtype; /* of features and thresholds; CY_NONE: f32 */
  uint32_t n, ntrees;
  const int64_t *tree, *id, *feature, *yes, *no, *missing;
  const double *value;
  const char *const *mode;
  int64_t *child[2], *root; /* indices of nodes */
  uint32_t depth;
  struct place {
    int64_t tree, id;
    uint32_t index;
  } *order; /* sorted by tree and id */
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

/* Levels below node i; UINT32_MAX when there is a cycle. */
static uint32_t depth_of(const forest *f, uint32_t i, uint32_t level) {
  if (is_leaf(f, i))
    return 0;
  if (level > f->n || level > 512)
    return UINT32_MAX;
  uint32_t deepest = 0;
  for (int side = 0; side < 2; side++) {
    uint32_t d = depth_of(f, (uint32_t)f->child[side][i], level + 1);
    if (d == UINT32_MAX)
      return d;
    deepest = d > deepest ? d : deepest;
  }
  return deepest + 1;
}

static bool read_lists(cy_importer *im, const cy_onnx_node *n, forest *f) {
  uint32_t c[6];
  f->tree = cy_onnx_ints(im, n, "nodes_treeids", &f->n);
  f->id = cy_onnx_ints(im, n, "nodes_nodeids", &c[0]);
  f->feature = cy_onnx_ints(im, n, "nodes_featureids", &c[1]);
  f->yes = cy_onnx_ints(im, n, "nodes_truenodeids", &c[2]);
  f->no = cy_onnx_ints(im, n, "nodes_falsenodeids", &c[3]);
  f->value = cy_onnx_floats(im, n, "nodes_values", &c[4]);
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
  f->root = CY_NEW_ARRAY(im->arena, int64_t, f->n + 1);
  for (uint32_t i = 0; i < f->n; i++)
    f->order[i] = (struct place){f->tree[i], f->id[i], i};
  qsort(f->order, f->n, sizeof *f->order, by_place);
  for (int side = 0; side < 2; side++) {
    f->child[side] = CY_NEW_ARRAY(im->arena, int64_t, f->n + 1);
    for (uint32_t i = 0; i < f->n; i++) {
      int64_t at = is_leaf(f, i) ? i : find_place(f, f->tree[i], side ? f->yes[i] : f->no[i]);
      if (at < 0)
        return cy_build_error(im->g, NULL, "node %lld of tree %lld names a child that does not exist", (long long)f->id[i],
                              (long long)f->tree[i]);
      if (!is_leaf(f, i) && (f->feature[i] < 0 || f->feature[i] >= features))
        return cy_build_error(im->g, "attribute 'nodes_featureids'", "expected a feature below %lld, found %lld",
                              (long long)features, (long long)f->feature[i]);
      f->child[side][i] = at;
    }
  }
  for (uint32_t i = 0; i < f->n; i++) { /* the first node listed of a tree is its root */
    bool first = true;
    for (uint32_t k = 0; k < f->ntrees && first; k++)
      first = f->tree[f->root[k]] != f->tree[i];
    if (!first)
      continue;
    f->root[f->ntrees++] = i;
    uint32_t d = depth_of(f, i, 0);
    if (d == UINT32_MAX)
      return cy_build_error(im->g, NULL, "tree %lld is no tree: its nodes form a cycle", (long long)f->tree[i]);
    f->depth = d > f->depth ? d : f->depth;
  }
  return true;
}

/* Does x go to the true child? One comparison when all nodes agree on it, else each node's own. */
static cy_val decision(cy_importer *im, const forest *f, cy_val x, cy_val threshold, cy_val at) {
  static const struct {
    const char *name;
    cy_op op;
  } modes[] = {{"BRANCH_LEQ", CY_OP_le}, {"BRANCH_LT", CY_OP_lt}, {"BRANCH_GTE", CY_OP_ge},
               {"BRANCH_GT", CY_OP_gt},  {"BRANCH_EQ", CY_OP_eq}, {"BRANCH_NEQ", CY_OP_ne}};
  int64_t *which = CY_NEW_ARRAY(im->arena, int64_t, f->n + 1);
  bool used[6] = {false}, tracked = false;
  for (uint32_t i = 0; i < f->n; i++)
    for (int m = 0; m < 6 && !is_leaf(f, i); m++)
      if (!strcmp(f->mode[i], modes[m].name)) {
        which[i] = m;
        used[m] = true;
        tracked |= f->missing && f->missing[i];
      }
  cy_val yes = 0, mode = 0;
  for (int m = 0; m < 6; m++) {
    if (!used[m])
      continue;
    cy_val holds = cy_build_binary(im->g, modes[m].op, x, threshold);
    if (yes && !mode)
      mode = cy_build_gather(im->g, constant_ints(im, which, f->n), at, 0);
    yes = yes ? SELECT(BINARY(eq, mode, LIKE(mode, m)), holds, yes) : holds;
  }
  if (yes && f->missing && (tracked || used[5])) /* of NaN, every other comparison is false */
    yes = SELECT(UNARY(isnan, x), CAST(cy_build_gather(im->g, constant_ints(im, f->missing, f->n), at, 0), CY_BOOL), yes);
  return yes;
}

static cy_val constant_indices(cy_importer *im, const int64_t *v, uint32_t n) {
  int32_t *narrow = CY_NEW_ARRAY(im->arena, int32_t, n + 1);
  int64_t dims[1] = {n};
  for (uint32_t i = 0; i < n; i++)
    narrow[i] = (int32_t)v[i];
  return constant(im, CY_I32, narrow, dims, 1);
}

/* [2 * nodes]: where a walk goes from node i is at 2i, or at 2i + 1 if its condition holds. */
static cy_val children(cy_importer *im, const forest *f) {
  int64_t *both = CY_NEW_ARRAY(im->arena, int64_t, 2 * (size_t)f->n + 1);
  for (uint32_t i = 0; i < f->n; i++)
    for (int side = 0; side < 2; side++)
      both[2 * (size_t)i + (size_t)side] = f->child[side][i];
  return constant_indices(im, both, 2 * f->n);
}

/* The leaf that every row reaches in every tree: [trees, rows]. */
static cy_val walk(cy_importer *im, const forest *f, cy_val x) {
  static const int64_t swapped[2] = {1, 0};
  cy_graph *g = im->g;
  cy_dim dims[2] = {cy_dim_const(g, f->ntrees), cy_onnx_type(im, x)->dim[0]};
  cy_val at = cy_build_expand(g, cy_build_unsqueeze(g, constant_indices(im, f->root, f->ntrees), 1), dims, 2);
  cy_val feature = constant_indices(im, f->feature, f->n), value = cy_onnx_ml_floats(im, f->value, f->n);
  if (f->dtype == CY_F64) {
    int64_t count[1] = {f->n};
    value = constant(im, CY_F64, f->value, count, 1);
  }
  cy_val next = children(im, f), columns = cy_build_transpose(g, x, swapped);
  for (uint32_t level = 0; at && level < f->depth; level++) {
    cy_val in[2] = {columns, cy_build_gather(g, feature, at, 0)};
    cy_attr axis = cy_attr_int(CY_ATTR_axis, 0);
    cy_val seen = in[1] ? cy_build(g, CY_OP_gather_elements, in, 2, &axis, 1, NULL, 1) : 0;
    cy_val goes = seen ? decision(im, f, seen, cy_build_gather(g, value, at, 0), at) : 0;
    at = goes ? cy_build_gather(g, next, ADD(MUL(at, LIKE(at, 2)), CAST(goes, CY_I32)), 0) : 0;
  }
  return at;
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
  const double *weight = cy_onnx_floats(im, n, w->weight, &c[2]);
  if (!tree || !node || !id || !weight || c[0] != count || c[1] != count || c[2] != count)
    return cy_build_error(im->g, NULL, "expected the attributes %s, %s, %s and %s as lists of one length", w->tree,
                          w->node, w->id, w->weight);
  float *table = CY_NEW_ARRAY(im->arena, float, (size_t)f->n * w->columns + 1);
  bool *seen = CY_NEW_ARRAY(im->arena, bool, w->columns + 1);
  w->all_positive = true;
  for (uint32_t i = 0; i < count; i++) {
    int64_t at = find_place(f, tree[i], node[i]);
    if (at < 0 || id[i] < 0 || id[i] >= w->columns)
      return cy_build_error(im->g, NULL, "entry %u of %s names a node or column that does not exist", i, w->weight);
    table[(size_t)at * w->columns + (size_t)id[i]] += (float)weight[i];
    w->all_positive &= weight[i] >= 0;
    w->distinct += !seen[id[i]];
    seen[id[i]] = true;
  }
  int64_t dims[2] = {f->n, w->columns};
  return constant(im, CY_F32, table, dims, 2);
}

/* [rows, columns]: the leaves' weights combined over the trees (op), without base values. 0 after a diagnostic. */
static cy_val forest_scores(cy_importer *im, const cy_onnx_node *n, leaf_weights *w, cy_op op) {
  forest f = {0};
  int64_t features, trees_axis = 0;
  cy_val x = cy_onnx_ml_rows(im, n);
  if (!x || !read_lists(im, n, &f))
    return 0;
  if (!cy_dim_is_const(im->g, cy_onnx_type(im, x)->dim[1], &features))
    features = INT64_MAX;
  if (!link_nodes(im, &f, features))
    return 0;
  cy_val table = weight_table(im, n, &f, w), leaves = table ? walk(im, &f, x) : 0;
  return leaves ? cy_build_reduce(im->g, op, cy_build_gather(im->g, table, leaves, 0), &trees_axis, 1, false) : 0;
}

static cy_val with_base(cy_importer *im, const cy_onnx_node *n, cy_val scores, uint32_t columns) {
  uint32_t count;
  const double *base = cy_onnx_floats(im, n, "base_values", &count);
  return base && scores && (count == columns || count == 1) ? ADD(scores, cy_onnx_ml_floats(im, base, count)) : scores;
}

IMPORT(tree_classifier) {
  leaf_weights w = {.tree = "class_treeids", .node = "class_nodeids", .id = "class_ids", .weight = "class_weights"};
  uint32_t ints = 0, strings = 0, bases = 0;
  cy_onnx_ints(im, n, "classlabels_int64s", &ints);
  cy_onnx_strings(im, n, "classlabels_strings", &strings);
  cy_onnx_floats(im, n, "base_values", &bases);
  w.columns = ints ? ints : strings ? strings : 1;
  int post = cy_onnx_ml_post(im, n);
  cy_val labels = cy_onnx_ml_labels(im, n, "classlabels_int64s", "classlabels_strings", w.columns);
  cy_val scores = labels && post >= 0 ? forest_scores(im, n, &w, CY_OP_reduce_sum) : 0;
  if (!scores)
    return false;
  if (w.columns == 2 && w.distinct == 1) { /* one column decides between two classes: it is the one that holds weights */
    int64_t axis = 1;
    cy_val s = cy_build_reduce(im->g, CY_OP_reduce_sum, scores, &axis, 1, true);
    return set_binary(im, n, labels, with_base(im, n, s, bases == 1), post, w.all_positive);
  }
  scores = with_base(im, n, scores, w.columns);
  return scores && cy_importer_set(im, n, 0, cy_onnx_ml_best(im, labels, scores)) &&
         cy_importer_set(im, n, 1, cy_onnx_ml_transformed(im, scores, post));
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
  return scores && cy_importer_set(im, n, 0, cy_onnx_ml_transformed(im, scores, post));
}

/* ---- TreeEnsemble of version 5: nodes and leaves are numbered through ---- */

typedef struct ensemble {
  forest f;
  uint32_t nnodes, nleaves, room; /* nodes as written; f.n grows by the chains of set memberships */
  const int64_t *child[2], *leaf[2];
} ensemble;

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
  e->f.root = CY_NEW_ARRAY(im->arena, int64_t, roots + 1);
  for (uint32_t k = 0; k < roots; k++) {
    uint32_t d = root[k] < 0 || root[k] >= (int64_t)e->nnodes ? UINT32_MAX : depth_of(&e->f, (uint32_t)root[k], 0);
    if (d == UINT32_MAX)
      return cy_build_error(im->g, "attribute 'tree_roots'", "tree %u has no root, or its nodes form a cycle", k);
    e->f.root[e->f.ntrees++] = root[k];
    e->f.depth = d > e->f.depth ? d : e->f.depth;
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
  return CAST(constant(im, CY_F64, table, dims, 2), dtype);
}

IMPORT(tree_ensemble) {
  ensemble e = {0};
  uint32_t weights;
  int64_t features, trees_axis = 0, targets = cy_onnx_int(im, n, "n_targets", 1),
                    how = cy_onnx_int(im, n, "aggregate_function", 1);
  int64_t post = cy_onnx_int(im, n, "post_transform", 0);
  bool wide = cy_onnx_type(im, X)->dtype == CY_F64;
  const cy_type *t = cy_onnx_type(im, X);
  cy_val x = wide && t->rank == 2 ? X : cy_onnx_ml_rows(im, n);
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
  cy_val table = ensemble_weights(im, &e, target, weight, targets, e.f.dtype), leaves = table ? walk(im, &e.f, x) : 0;
  cy_op op = how == 2 ? CY_OP_reduce_min : how == 3 ? CY_OP_reduce_max : CY_OP_reduce_sum;
  cy_val scores =
      leaves ? cy_build_reduce(im->g, op, cy_build_gather(im->g, table, leaves, 0), &trees_axis, 1, false) : 0;
  if (scores && how == 0)
    scores = DIV(scores, LIKE(scores, e.f.ntrees));
  return scores && cy_importer_set(im, n, 0, cy_onnx_ml_transformed(im, scores, (int)post));
}

/* ---- linear models ----------------------------------------------------------------------------------------------- */

/* x [rows, f] * coefficients [columns, f]^T + intercepts */
static cy_val linear_scores(cy_importer *im, const cy_onnx_node *n, const char *bias_name, uint32_t *out_columns) {
  uint32_t ncoef, nbias, columns;
  int64_t features, perm[2] = {1, 0};
  const double *coef = cy_onnx_floats(im, n, "coefficients", &ncoef), *bias = cy_onnx_floats(im, n, bias_name, &nbias);
  cy_val x = cy_onnx_ml_rows(im, n);
  if (!x)
    return 0;
  if (!coef || !cy_dim_is_const(im->g, cy_onnx_type(im, x)->dim[1], &features) || features < 1 || ncoef % features)
    return cy_build_error(im->g, "attribute 'coefficients'",
                          "expected a multiple of the number of features, found %u numbers for %s", coef ? ncoef : 0,
                          cy_type_text(im->g, cy_onnx_type(im, x)));
  columns = (uint32_t)(ncoef / features);
  cy_dim dims[2] = {cy_dim_const(im->g, columns), cy_dim_const(im->g, features)};
  cy_val weights = cy_build_transpose(im->g, cy_build_reshape(im->g, cy_onnx_ml_floats(im, coef, ncoef), dims, 2), perm);
  cy_val scores = cy_build_matmul(im->g, x, weights, CY_F32);
  *out_columns = columns;
  return bias && (nbias == columns || nbias == 1) ? ADD(scores, cy_onnx_ml_floats(im, bias, nbias)) : scores;
}

IMPORT(linear_classifier) {
  uint32_t columns, ints = 0, strings = 0;
  int post = cy_onnx_ml_post(im, n);
  cy_val scores = post >= 0 ? linear_scores(im, n, "intercepts", &columns) : 0;
  if (!scores)
    return false;
  cy_onnx_ints(im, n, "classlabels_ints", &ints);
  cy_onnx_strings(im, n, "classlabels_strings", &strings);
  ints = ints ? ints : strings;
  cy_val labels = cy_onnx_ml_labels(im, n, "classlabels_ints", "classlabels_strings", ints > columns ? ints : columns);
  if (!labels)
    return false;
  if (columns == 1 && ints == 2)
    return set_binary(im, n, labels, scores, post, post == POST_NONE);
  return cy_importer_set(im, n, 0, cy_onnx_ml_best(im, labels, scores)) &&
         cy_importer_set(im, n, 1, cy_onnx_ml_transformed(im, scores, post));
}

IMPORT(linear_regressor) {
  uint32_t columns;
  int post = cy_onnx_ml_post(im, n);
  cy_val scores = post >= 0 ? linear_scores(im, n, "intercepts", &columns) : 0;
  return scores && cy_importer_set(im, n, 0, cy_onnx_ml_transformed(im, scores, post));
}

/* ---- preparation ------------------------------------------------------------------------------------------------- */

IMPORT(scaler) {
  uint32_t noffset, nscale;
  const double *offset = cy_onnx_floats(im, n, "offset", &noffset), *scale = cy_onnx_floats(im, n, "scale", &nscale);
  cy_val x = CAST(X, CY_F32);
  if (offset)
    x = SUB(x, cy_onnx_ml_floats(im, offset, noffset));
  if (scale)
    x = MUL(x, cy_onnx_ml_floats(im, scale, nscale));
  return x && cy_importer_set(im, n, 0, x);
}

IMPORT(normalizer) {
  int how = cy_onnx_word(im, n, "norm", "MAX", "MAX|L1|L2");
  cy_val x = CAST(X, CY_F32);
  if (how < 0 || !x)
    return false;
  int64_t axis = cy_onnx_type(im, x)->rank - 1;
  cy_val size = how == 2 ? MUL(x, x) : how == 1 ? UNARY(abs, x) : x;
  size = cy_build_reduce(im->g, how == 0 ? CY_OP_reduce_max : CY_OP_reduce_sum, size, &axis, 1, true);
  if (how == 2)
    size = UNARY(sqrt, size);
  return size && cy_importer_set(im, n, 0, SELECT(BINARY(eq, size, LIKE(size, 0)), x, DIV(x, size)));
}

IMPORT(binarizer) {
  return cy_importer_set(
      im, n, 0,
      CAST(BINARY(gt, X, LIKE(X, cy_onnx_float(im, n, "threshold", 0))), (cy_dtype)cy_onnx_type(im, X)->dtype));
}

IMPORT(array_feature_extractor) {
  const cy_type *t = cy_onnx_type(im, X);
  cy_val y = cy_onnx_type(im, n->in[1])->rank == 1 ? n->in[1] : 0;
  cy_dim all[1] = {cy_type_elems(im->g, cy_onnx_type(im, n->in[1]))};
  if (!y)
    y = cy_build_reshape(im->g, n->in[1], all, 1);
  cy_val x = t->rank == 1 ? cy_build_unsqueeze(im->g, X, 0) : X;
  return y && x && cy_importer_set(im, n, 0, cy_build_gather(im->g, x, y, cy_onnx_type(im, x)->rank - 1));
}

IMPORT(feature_vectorizer) {
  cy_val parts[CY_ONNX_MIN_IN];
  if (n->nin > CY_ONNX_MIN_IN)
    return cy_build_error(im->g, NULL, "expected at most %d inputs, found %u", CY_ONNX_MIN_IN, n->nin);
  for (uint32_t i = 0; i < n->nin; i++) {
    parts[i] = CAST(n->in[i], CY_F32);
    if (parts[i] && cy_onnx_type(im, parts[i])->rank == 1)
      parts[i] = cy_build_unsqueeze(im->g, parts[i], 0);
    if (!parts[i])
      return false;
  }
  return cy_importer_set(im, n, 0, n->nin == 1 ? parts[0] : cy_build_concat(im->g, parts, n->nin, 1));
}

IMPORT(imputer) {
  bool is_float = cy_dtype_is_float((cy_dtype)cy_onnx_type(im, X)->dtype);
  uint32_t count;
  double missing = is_float ? cy_onnx_float(im, n, "replaced_value_float", 0)
                            : (double)cy_onnx_int(im, n, "replaced_value_int64", 0);
  cy_val fill;
  if (is_float) {
    const double *v = cy_onnx_floats(im, n, "imputed_value_floats", &count);
    fill = v ? CAST(cy_onnx_ml_floats(im, v, count), (cy_dtype)cy_onnx_type(im, X)->dtype) : 0;
  } else {
    const int64_t *v = cy_onnx_ints(im, n, "imputed_value_int64s", &count);
    fill = v ? CAST(constant_ints(im, v, count), (cy_dtype)cy_onnx_type(im, X)->dtype) : 0;
  }
  if (!fill)
    return cy_build_error(
        im->g, NULL, "expected a list 'imputed_value_floats' or 'imputed_value_int64s' that fits the input's type");
  cy_val is_missing = isnan(missing) ? UNARY(isnan, X) : BINARY(eq, X, LIKE(X, missing));
  return cy_importer_set(im, n, 0, SELECT(is_missing, fill, X));
}
