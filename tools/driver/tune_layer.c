/* SPDX-License-Identifier: Apache-2.0 */
/* tune_layer.c - a layer by itself, made from its description.
 *
 * In: "conv 64->128 k3x3 s1x1 d1x1 p1x1 g1 to 56x56 n1", "matmul m196 n768 k768 b1", as --explain=costs prints them. Out: a
 * graph with that layer alone, and the options that make its type. What the description leaves open (padding behind, the feature
 * map's last rows that no window reaches) is made up. Whether the layer became what was meant shows in the description that it
 * has then.
 */
#include "tune.h"

#include <stdlib.h>
#include <string.h>

enum { SPATIAL = 3 };
typedef struct layer {
  bool conv, two_inputs;
  int rank; /* spatial axes */
  int64_t cin, cout, groups, batch;
  int64_t kernel[SPATIAL], stride[SPATIAL], dilation[SPATIAL], pad[SPATIAL], out[SPATIAL];
  int64_t m, n, k;
} layer;

/* " k3x3": how many numbers there are; 0: it is something else. */
static int read_sizes(const char **p, const char *before, int64_t *out, int max) {
  size_t len = strlen(before);
  int n = 0;
  if (strncmp(*p, before, len))
    return 0;
  for (*p += len; n < max; (*p)++) {
    char *end;
    out[n] = strtoll(*p, &end, 10);
    if (end == *p || out[n] < 0)
      return 0;
    n++;
    *p = end;
    if (*end != 'x')
      return n;
  }
  return 0;
}

static bool read_conv(const char *p, layer *l) {
  l->conv = true;
  if (!read_sizes(&p, " ", &l->cin, 1) || !read_sizes(&p, "->", &l->cout, 1))
    return false;
  l->rank = read_sizes(&p, " k", l->kernel, SPATIAL);
  return l->rank && read_sizes(&p, " s", l->stride, SPATIAL) == l->rank &&
         read_sizes(&p, " d", l->dilation, SPATIAL) == l->rank && read_sizes(&p, " p", l->pad, SPATIAL) == l->rank &&
         read_sizes(&p, " g", &l->groups, 1) && l->groups > 0 && read_sizes(&p, " to ", l->out, SPATIAL) == l->rank &&
         read_sizes(&p, " n", &l->batch, 1) && !*p;
}

static bool read_matmul(const char *p, layer *l) {
  return read_sizes(&p, " m", &l->m, 1) && read_sizes(&p, " n", &l->n, 1) && read_sizes(&p, " k", &l->k, 1) &&
         read_sizes(&p, " b", &l->batch, 1) && !*p;
}

static bool read_layer(const char *text, layer *l) {
  const char *space = strchr(text, ' ');
  *l = (layer){.batch = 1};
  if (!space || !strncmp(text, "conv_transpose", 14))
    return false;
  l->two_inputs = space - text > 3 && !strncmp(space - 3, "_ab", 3);
  return !strncmp(text, "conv", 4) ? read_conv(space, l) : !strncmp(text, "matmul", 6) && read_matmul(space, l);
}

void cytoc_tune_layer_options(const char *text, cytoc_options *o) {
  size_t n = strcspn(text, " ");
  bool dot = n > 4 && !strncmp(text + n - 4, "_dot", 4);
  const char *end = text + n - (dot ? 4 : 0);
  o->fp16 = end - text > 4 && !strncmp(end - 4, "_f16", 4);
  o->bf16 = end - text > 5 && !strncmp(end - 5, "_bf16", 5);
  if (end - text < 5 || strncmp(end - 5, "_int8", 5) != 0)
    return;
  o->int8 = "dynamic";
  o->int8_prefer = "size"; /* whatever rounding its input takes, which is another layer's matter in a model */
  o->int8_min_snr = "off";
}

bool cytoc_tune_layer_known(const char *text) {
  layer l;
  return read_layer(text, &l);
}

static cy_type type_of(cy_graph *g, const int64_t *sizes, int rank) {
  cy_dim dims[SPATIAL + 2];
  for (int i = 0; i < rank; i++)
    dims[i] = cy_dim_const(g, sizes[i]);
  return cy_type_make(CY_F32, rank, dims);
}

static cy_val input(cy_graph *g, const char *name, const int64_t *sizes, int rank) {
  cy_type type = type_of(g, sizes, rank);
  return cy_graph_add_input(g, name, &type);
}

static cy_val weights(cy_graph *g, const int64_t *sizes, int rank) {
  uint64_t n = 1, state = 1;
  for (int i = 0; i < rank; i++)
    n *= (uint64_t)sizes[i];
  float *w = CY_NEW_ARRAY(cy_graph_arena(g), float, n + 1);
  for (uint64_t i = 0; i < 2 * n; i++) { /* small ones are more often, as in trained weights, which Winograd's algorithm of integers asks for */
    state = state * 6364136223846793005u + 1442695040888963407u;
    w[i / 2] = (i % 2 ? w[i / 2] : 0) + (float)(int32_t)(state >> 32) * 0x1p-32f;
  }
  cy_type type = type_of(g, sizes, rank);
  return cy_build_const(g, &type, w, n * sizeof *w);
}

/* A feature map's axes in memory: channels last, or in front of positions. */
static void order_axes(int rank, bool planar, int64_t *to_memory, int64_t *from_memory) {
  for (int i = 0; i < rank + 2; i++) {
    int64_t axis = planar || !i ? i : i == rank + 1 ? 1 : i + 1; /* the one that lies at place i */
    to_memory[i] = axis;
    from_memory[axis] = i;
  }
}

/* Most layers add a bias and have an activation, which take part in how sums are stored. */
static cy_val finished(cy_graph *g, cy_val y, int axis) {
  cy_type t = cy_value_of(g, y)->type;
  int64_t n = 0, sizes[SPATIAL + 2];
  for (int i = 0; i < t.rank; i++) {
    sizes[i] = 1;
    if (i == axis && cy_dim_is_const(g, t.dim[i], &n))
      sizes[i] = n;
  }
  cy_val biased = cy_build_binary(g, CY_OP_add, y, weights(g, sizes, t.rank));
  return cy_build_binary(g, CY_OP_max, biased, cy_build_like(g, biased, 0));
}

static cy_val build_conv(cy_graph *g, const layer *l, bool planar) {
  int64_t x[SPATIAL + 2] = {l->batch, l->cin}, w[SPATIAL + 2] = {l->cout, l->cin / l->groups},
                      y[SPATIAL + 2] = {l->batch, l->cout};
  cy_dim pads[2 * SPATIAL];
  int64_t to_memory[SPATIAL + 2], from_memory[SPATIAL + 2], stored[SPATIAL + 2];
  order_axes(l->rank, planar, to_memory, from_memory);
  for (int i = 0; i < l->rank; i++) {
    w[2 + i] = l->kernel[i];
    y[2 + i] = l->out[i];
    x[2 + i] = (l->out[i] - 1) * l->stride[i] + l->dilation[i] * (l->kernel[i] - 1) + 1 - 2 * l->pad[i];
    pads[i] = pads[l->rank + i] = cy_dim_const(g, l->pad[i]);
    if (x[2 + i] < 1)
      return 0;
  }
  uint32_t n = (uint32_t)l->rank;
  cy_attr a[] = {cy_attr_ints(CY_ATTR_strides, l->stride, n), cy_attr_dims(CY_ATTR_pads, pads, 2 * n),
                 cy_attr_ints(CY_ATTR_dilations, l->dilation, n), cy_attr_int(CY_ATTR_group, l->groups)};
  for (int i = 0; i < l->rank + 2; i++)
    stored[i] = x[to_memory[i]];
  cy_val in[] = {cy_build_transpose(g, input(g, "x", stored, l->rank + 2), from_memory), weights(g, w, l->rank + 2)};
  cy_type type = type_of(g, y, l->rank + 2);
  return cy_build_transpose(g, finished(g, cy_build(g, CY_OP_conv, in, 2, a, 4, &type, 1), 1), to_memory);
}

static cy_val build_matmul(cy_graph *g, const layer *l) {
  int64_t a[] = {l->batch, l->m, l->k}, b[] = {l->batch, l->k, l->n};
  int from = l->batch == 1 || !l->two_inputs; /* no batch, or one that the weights do not have */
  cy_val x = input(g, "x", a + (l->batch == 1), 3 - (l->batch == 1));
  if (l->two_inputs)
    return cy_build_matmul(g, x, input(g, "y", b + from, 3 - from), CY_F32);
  return finished(g, cy_build_matmul(g, x, weights(g, b + from, 3 - from), CY_F32), 2 - (l->batch == 1));
}

cy_graph *cytoc_tune_layer_graph(void *ctx, cy_diag_sink *diag) {
  const tune_layer_spec *spec = ctx;
  layer l;
  if (!read_layer(spec->text, &l))
    return NULL;
  cy_graph *g = cy_graph_create(diag, "layer");
  cy_val y = l.conv ? build_conv(g, &l, spec->planar) : build_matmul(g, &l);
  if (y) {
    cy_graph_add_output(g, "out", y);
    return g;
  }
  cy_graph_destroy(g);
  return NULL;
}
