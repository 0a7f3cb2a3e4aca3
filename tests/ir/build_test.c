/* SPDX-License-Identifier: Apache-2.0 */
/* build_test.c - building nodes: inference, what builds nothing, errors, editing. */
#include "irtest.h"

GRAPH_TEST(elementwise) {
  cy_val a = input("a", "f32[4,1,s]"), b = input("b", "f32[3,s]"), c = input("c", "f32[3,7]"), d = input("d", "f32[t]");
  CHECK_STR_EQ(type_text(cy_build_binary(g, CY_OP_add, a, b)), "f32[4,3,s]");
  CHECK_STR_EQ(type_text(cy_build_binary(g, CY_OP_mul, a, c)), "f32[4,3,7]");
  CHECK_STR_EQ(type_text(cy_build_binary(g, CY_OP_lt, b, d)), "bool[3,join(s,t)]");
  CHECK_STR_EQ(type_text(cy_build_unary(g, CY_OP_exp, a)), "f32[4,1,s]");
  CHECK_STR_EQ(type_text(cy_build_cast(g, a, CY_F16)), "f16[4,1,s]");
  CHECK(cy_build_cast(g, a, CY_F32) == a);
  CHECK_INT_EQ(cy_diag_errors(diag), 0);
}

GRAPH_TEST(errors_name_both) {
  cy_origin o = {cy_intern(g, "Add_1"), cy_intern(g, "Add"), cy_intern(g, "main"), 7, NULL};
  cy_val a = input("a", "f32[2,3]"), b = input("b", "f32[4,3]"), i = input("i", "i64[3]");
  cy_build_origin(g, &o);
  CHECK(cy_build_binary(g, CY_OP_add, a, b) == 0);
  CHECK_STR_HAS(errors(), "test.onnx: error: graph 'main': node 'Add_1' (#7, Add): expected shapes that broadcast, found "
                          "f32[2,3] and f32[4,3]");
  CHECK(cy_build_binary(g, CY_OP_add, a, i) == 0);
  CHECK_STR_HAS(errors(), "expected inputs of one type, found f32[2,3] and i64[3]");
  int before = cy_diag_errors(diag);
  CHECK(cy_build_binary(g, CY_OP_add, a, 0) == 0);
  CHECK_INT_EQ(cy_diag_errors(diag), before);
  CHECK(cy_build(g, CY_OP_softmax, &a, 1, NULL, 0, NULL, 0) == 0);
  CHECK_STR_HAS(errors(), "without its attribute 'axis'");
  CHECK_INT_EQ(cy_node_count(g), 0);
}

static cy_val conv(cy_val x, cy_val w, int64_t stride, int64_t pad) {
  int64_t strides[2] = {stride, stride}, pads[4] = {pad, pad, pad, pad}, ones[2] = {1, 1};
  cy_attr a[4] = {cy_attr_ints(CY_ATTR_strides, strides, 2), cy_attr_ints(CY_ATTR_pads, pads, 4),
                  cy_attr_ints(CY_ATTR_dilations, ones, 2), cy_attr_int(CY_ATTR_group, 1)};
  cy_type t = {.dtype = CY_F32};
  return cy_build(g, CY_OP_conv, (cy_val[]){x, w}, 2, a, 4, &t, 1);
}

GRAPH_TEST(contractions) {
  cy_val x = input("x", "f32[n,3,h,w]"), w = input("w", "f32[64,3,7,7]"), a = input("a", "f32[b,s,768]"),
         m = input("m", "f32[768,3072]"), k = input("k", "f32[100,5]");
  CHECK_STR_EQ(type_text(conv(x, w, 2, 3)), "f32[n,64,(h+1)/2,(w+1)/2]");
  CHECK_STR_EQ(type_text(conv(x, w, 1, 3)), "f32[n,64,h,w]");
  CHECK_STR_EQ(type_text(cy_build_matmul(g, a, m, CY_F32)), "f32[b,s,3072]");
  CHECK(cy_build_matmul(g, a, k, CY_F32) == 0);
  CHECK_STR_HAS(errors(), "inner dims");
  const cy_node_info *n = cy_node_of(g, 1);
  CHECK_INT_EQ(cy_attr_find(n, CY_ATTR_pads)->kind, CY_KIND_INTS);
}

GRAPH_TEST(shapes) {
  cy_val x = input("x", "f32[b,12,s,64]");
  const int64_t perm[] = {0, 2, 1, 3}, same[] = {0, 1, 2, 3};
  cy_val t = cy_build_transpose(g, x, perm);
  CHECK_STR_EQ(type_text(t), "f32[b,s,12,64]");
  CHECK(cy_build_transpose(g, x, same) == x);
  cy_type flat = type("f32[b,s,768]");
  cy_val r = cy_build_reshape(g, t, flat.dim, 3);
  CHECK(cy_build_reshape(g, r, cy_value_of(g, t)->type.dim, 4) == t);
  cy_type other = type("f32[b*s,768]");
  cy_val r2 = cy_build_reshape(g, r, other.dim, 2);
  CHECK_INT_EQ(cy_node_of(g, cy_value_of(g, r2)->node)->in[0], t);
  CHECK_STR_EQ(type_text(cy_build_concat(g, (cy_val[]){x, x}, 2, -2)), "f32[b,12,2*s,64]");
  CHECK_STR_EQ(type_text(cy_build_slice_axis(g, x, 1, cy_dim_const(g, 2), cy_dim_const(g, 5))), "f32[b,5,s,64]");
  CHECK_STR_EQ(type_text(cy_build_reduce(g, CY_OP_reduce_sum, x, (const int64_t[]){-1, 1}, 2, false)), "f32[b,s]");
  CHECK_STR_EQ(type_text(cy_build_reduce(g, CY_OP_argmax, x, (const int64_t[]){1}, 1, true)), "i64[b,1,s,64]");
  CHECK_STR_EQ(type_text(cy_build_unsqueeze(g, cy_build_reduce(g, CY_OP_reduce_max, x, perm, 1, false), -1)),
               "f32[12,s,64,1]");
  CHECK_STR_EQ(type_text(cy_build_gather(g, x, input("i", "i64[2,k]"), 1)), "f32[b,2,k,s,64]");
  CHECK_INT_EQ(cy_diag_errors(diag), 0);
}

GRAPH_TEST(data_dependent) {
  cy_val x = input("x", "f32[b,4]");
  cy_dim count = cy_dim_sym(g, cy_sym_new(g, NULL, CY_SYM_COUNT)), dims[2] = {cy_dim_const(g, 2), count};
  cy_type t = cy_type_make(CY_I64, 2, dims);
  cy_val nz = cy_build(g, CY_OP_nonzero, &x, 1, NULL, 0, &t, 1);
  CHECK_INT_EQ(cy_sym_of(g, 1 + (cy_sym_of(g, 1)->kind != CY_SYM_COUNT))->value, nz);
  uint32_t n;
  cy_val k = input("k", "i64[2]");
  const cy_dim *d = cy_value_elems_or_read(g, k, &n);
  CHECK(d && n == 2 && cy_dim_has_data_sym(g, d[0]) && cy_value_elems(g, k, &n) == d);
  CHECK_STR_EQ(type_text(cy_build_expand(g, cy_build_scalar(g, CY_F32, 1), d, 2)),
               cy_arena_printf(cy_graph_arena(g), "f32[%s,%s]", cy_dim_text(g, d[0]), cy_dim_text(g, d[1])));
}

GRAPH_TEST(editing) {
  cy_val x = input("x", "f32[8]"), v = x;
  for (int i = 0; i < 20000; i++)
    v = cy_build_unary(g, i & 1 ? CY_OP_abs : CY_OP_neg, v);
  cy_graph_add_output(g, "y", v);
  cy_build_unary(g, CY_OP_exp, v);
  CHECK_INT_EQ(cy_graph_sweep(g), 1);
  cy_arena *scratch = cy_arena_create();
  cy_uses uses = cy_graph_uses(g, scratch);
  CHECK_INT_EQ(uses.start[x + 1] - uses.start[x], 1);
  CHECK_INT_EQ(uses.list[uses.start[v]], 0);
  cy_arena_destroy(scratch);
  for (cy_node n = 1; n <= 20000; n++) { /* every abs(y) becomes y */
    const cy_node_info *info = cy_node_of(g, n);
    if (info->op == CY_OP_abs)
      cy_graph_replace(g, info->out[0], info->in[0]);
  }
  CHECK_INT_EQ(cy_graph_sweep(g), 10000);
  CHECK(cy_graph_verify(g, NULL, 0));
  /* inputs that a pass stored itself are replaced too */
  cy_val a = cy_build_unary(g, CY_OP_sin, x), b = cy_build_unary(g, CY_OP_cos, x), c = cy_build_unary(g, CY_OP_exp, a);
  cy_node_of(g, cy_value_of(g, c)->node)->in[0] = b;
  cy_graph_replace(g, b, a);
  CHECK_INT_EQ(cy_node_of(g, cy_value_of(g, c)->node)->in[0], a);
  cy_build_before(g, cy_value_of(g, a)->node);
  cy_val e = cy_build_unary(g, CY_OP_tan, x);
  cy_node_of(g, cy_value_of(g, a)->node)->in[0] = e;
  CHECK(cy_graph_verify(g, NULL, 0));
}

GRAPH_TEST(control_flow) {
  cy_val c = input("c", "bool[]"), x = input("x", "f32[4]");
  cy_block yes = cy_block_create(g, 1), no = cy_block_create(g, 1);
  cy_build_in(g, yes);
  cy_val a = cy_build_unary(g, CY_OP_exp, x);
  cy_block_set_results(g, yes, &a, 1);
  cy_build_in(g, no);
  cy_val b = cy_build_unary(g, CY_OP_neg, x);
  cy_block_set_results(g, no, &b, 1);
  cy_build_in(g, 1);
  cy_attr attrs[2] = {cy_attr_block(CY_ATTR_then, yes), cy_attr_block(CY_ATTR_else, no)};
  cy_type t = type("f32[4]");
  cy_val y = cy_build(g, CY_OP_if, &c, 1, attrs, 2, &t, 1);
  CHECK_STR_EQ(type_text(y), "f32[4]");
  cy_graph_add_output(g, "y", y);
  CHECK_INT_EQ(cy_graph_sweep(g), 0);
  CHECK(cy_graph_verify(g, NULL, 0));
  t.dtype = CY_I32;
  CHECK(cy_build(g, CY_OP_if, &c, 1, attrs, 2, &t, 1) == 0);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"elementwise", elementwise}, {"errors_name_both", errors_name_both},
                                     {"contractions", contractions}, {"shapes", shapes},
                                     {"data_dependent", data_dependent}, {"editing", editing},
                                     {"control_flow", control_flow}};
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
