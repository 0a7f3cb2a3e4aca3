/* SPDX-License-Identifier: Apache-2.0 */
/* fold_test.c - what is evaluated while building: constants, and shapes that stay symbolic. */
#include "irtest.h"

#include <math.h>

GRAPH_TEST(constants) {
  cy_val a = numbers("f32[2,2]", (const double[]){1, 2, 3, 4}), b = numbers("f32[2]", (const double[]){10, 20});
  cy_val s = cy_build_binary(g, CY_OP_add, a, b);
  CHECK(cy_value_is_const(g, s) && cy_value_of(g, s)->node == 0);
  CHECK_STR_EQ(floats_text(s), "11,22,13,24");
  CHECK_INT_EQ(cy_node_count(g), 0);
  const int64_t perm[] = {1, 0}, axis0[] = {0};
  CHECK_STR_EQ(floats_text(cy_build_transpose(g, a, perm)), "1,3,2,4");
  CHECK_STR_EQ(floats_text(cy_build_reduce(g, CY_OP_reduce_sum, a, axis0, 1, false)), "4,6");
  CHECK_STR_EQ(floats_text(cy_build_reduce(g, CY_OP_reduce_max, a, perm, 2, false)), "4");
  CHECK_STR_EQ(floats_text(cy_build_reduce(g, CY_OP_argmax, a, perm, 1, false)), "1,1");
  CHECK_STR_EQ(floats_text(cy_build_concat(g, (cy_val[]){a, a}, 2, 1)), "1,2,1,2,3,4,3,4");
  cy_dim pads[4] = {cy_dim_const(g, 1), cy_dim_const(g, 0), cy_dim_const(g, 0), cy_dim_const(g, 1)};
  CHECK_STR_EQ(floats_text(cy_build_pad(g, a, pads, CY_PAD_CONSTANT, cy_build_scalar(g, CY_F32, 9))), "9,9,9,1,2,9,3,4,9");
  CHECK_STR_EQ(floats_text(cy_build_pad(g, a, pads, CY_PAD_EDGE, 0)), "1,2,2,1,2,2,3,4,4");
  cy_val i = numbers("i64[3]", (const double[]){-1, 0, 1});
  CHECK_STR_EQ(floats_text(cy_build_gather(g, a, i, 0)), "3,4,1,2,3,4");
  cy_attr cum[3] = {cy_attr_int(CY_ATTR_axis, 0), cy_attr_int(CY_ATTR_exclusive, 0), cy_attr_int(CY_ATTR_reverse, 1)};
  CHECK_STR_EQ(floats_text(cy_build(g, CY_OP_cumsum, &a, 1, cum, 3, NULL, 0)), "4,6,3,4");
  cy_dim n[1] = {cy_dim_const(g, 4)};
  CHECK_STR_EQ(floats_text(cy_build_iota(g, CY_F16, n, 1, 0)), "0,1,2,3");
  CHECK_STR_EQ(floats_text(cy_build_select(g, numbers("bool[2]", (const double[]){1, 0}), b, cy_build_like(g, b, 7))),
               "10,7");
  CHECK_STR_EQ(floats_text(cy_build_cast(g, numbers("f32[3]", (const double[]){-1.5, NAN, 300}), CY_U8)), "0,0,255");
  CHECK_STR_EQ(floats_text(cy_build_binary(g, CY_OP_pow, b, numbers("i32[]", (const double[]){2}))), "100,400");
  double v;
  CHECK(cy_value_is_splat(g, cy_build_expand(g, cy_build_scalar(g, CY_I8, 3), n, 1), &v) && v == 3);
}

/* Shape of x as a tensor. */
static cy_val shape_of(cy_val x) {
  const cy_type *t = &cy_value_of(g, x)->type;
  return cy_build_dims(g, t->dim, t->rank);
}

GRAPH_TEST(shape_arithmetic) {
  cy_val x = input("x", "f32[b,s,768]"), shape = shape_of(x);
  cy_val zero = cy_build_ints(g, (const int64_t[]){0}, 1), one = cy_build_ints(g, (const int64_t[]){1}, 1);
  cy_val b = cy_build_gather(g, shape, zero, 0), s = cy_build_gather(g, shape, one, 0);
  CHECK_STR_EQ(elems_text(shape), "b,s,768");
  CHECK_STR_EQ(elems_text(b), "b");
  cy_val heads = cy_build_ints(g, (const int64_t[]){12, 64}, 2);
  cy_val full = cy_build_concat(g, (cy_val[]){b, s, heads}, 3, 0);
  CHECK_STR_EQ(elems_text(full), "b,s,12,64");
  CHECK_STR_EQ(elems_text(cy_build_reduce(g, CY_OP_reduce_prod, full, (const int64_t[]){0}, 1, false)), "768*b*s");
  CHECK_STR_EQ(elems_text(cy_build_slice_axis(g, shape, 0, cy_dim_const(g, 1), cy_dim_const(g, 2))), "s,768");
  CHECK_STR_EQ(elems_text(cy_build_binary(g, CY_OP_div, cy_build_binary(g, CY_OP_mul, s, cy_build_scalar_int(g, CY_I64, 6)),
                                          cy_build_scalar_int(g, CY_I64, 4))),
               "s+s/2");
  CHECK_STR_EQ(elems_text(cy_build_binary(g, CY_OP_eq, s, cy_build_scalar_int(g, CY_I64, -1))), "0");
  CHECK_STR_EQ(elems_text(cy_build_binary(g, CY_OP_ge, s, cy_build_scalar_int(g, CY_I64, 0))), "1");
  CHECK_STR_EQ(elems_text(cy_build_binary(g, CY_OP_eq, s, b)), "?");
  CHECK_STR_EQ(elems_text(cy_build_select(g, cy_build_binary(g, CY_OP_lt, s, zero), b, s)), "s");
  CHECK_STR_EQ(elems_text(cy_build_binary(g, CY_OP_div, cy_build_binary(g, CY_OP_sub, s, one),
                                          cy_build_scalar_int(g, CY_I64, 2))),
               "(s+1)/2-1");
  CHECK_STR_EQ(elems_text(cy_build_cast(g, shape, CY_U8)), "?");
  CHECK_STR_EQ(elems_text(cy_build_squeeze(g, s, 0)), "s");
  CHECK_INT_EQ(cy_diag_errors(diag), 0);
}

GRAPH_TEST(float_detours) { /* how exporters compute sizes of a resize */
  cy_val x = input("x", "f32[n,3,h,w]");
  cy_val f = cy_build_cast(g, shape_of(x), CY_F32);
  CHECK_STR_EQ(elems_text(cy_build_binary(g, CY_OP_mul, f, cy_build_scalar(g, CY_F32, 2))), "2*n,6,2*h,2*w");
  cy_val half = cy_build_binary(g, CY_OP_div, f, cy_build_scalar(g, CY_F32, 2));
  CHECK_STR_EQ(elems_text(half), "?");
  CHECK_STR_EQ(elems_text(cy_build_cast(g, cy_build_unary(g, CY_OP_floor, half), CY_I64)), "n/2,1,h/2,w/2");
  CHECK_STR_EQ(elems_text(cy_build_unary(g, CY_OP_ceil, half)), "(n+1)/2,2,(h+1)/2,(w+1)/2");
  cy_val three = cy_build_scalar(g, CY_F32, 3), more = cy_build_binary(g, CY_OP_add, three, half);
  CHECK_STR_EQ(elems_text(cy_build_unary(g, CY_OP_ceil, more)), "(n+1)/2+3,5,(h+1)/2+3,(w+1)/2+3");
  CHECK_STR_EQ(elems_text(cy_build_unary(g, CY_OP_floor, cy_build_binary(g, CY_OP_sub, half, three))),
               "n/2-3,-2,h/2-3,w/2-3");
  CHECK_STR_EQ(elems_text(cy_build_unary(g, CY_OP_floor, cy_build_binary(g, CY_OP_sub, three, half))), "?");
  CHECK_STR_EQ(elems_text(cy_build_unary(g, CY_OP_floor, cy_build_binary(g, CY_OP_add, half, half))), "?");
}

GRAPH_TEST(quotient_of_what_may_be_negative) { /* truncated; known where a requirement says that it is not negative */
  cy_val s = cy_build_gather(g, shape_of(input("x", "f32[s]")), cy_build_ints(g, (const int64_t[]){0}, 1), 0);
  cy_val two = cy_build_scalar_int(g, CY_I64, 2), four = cy_build_scalar_int(g, CY_I64, 4);
  const cy_requirement *list;
  CHECK_STR_EQ(elems_text(cy_build_binary(g, CY_OP_div, cy_build_binary(g, CY_OP_sub, s, two), four)), "?");
  cy_graph_record(g, true);
  CHECK_STR_EQ(elems_text(cy_build_binary(g, CY_OP_div, cy_build_binary(g, CY_OP_sub, s, two), four)), "(s+2)/4-1");
  CHECK_INT_EQ(cy_graph_requirements(g, &list), 1);
  CHECK_STR_EQ(elems_text(cy_build_binary(g, CY_OP_div, cy_build_binary(g, CY_OP_sub, two, s), four)), "?");
  cy_val far = cy_build_scalar_int(g, CY_I64, 1000);
  CHECK_STR_EQ(elems_text(cy_build_binary(g, CY_OP_div, cy_build_binary(g, CY_OP_sub, s, far), four)), "?");
  CHECK_INT_EQ(cy_graph_requirements(g, &list), 1);
  cy_graph_record(g, false);
}

GRAPH_TEST(becomes_constant) {
  cy_val x = input("x", "f32[b,s]"), shape = shape_of(x);
  cy_val ratio = cy_build_binary(g, CY_OP_div, shape, shape);
  CHECK(cy_value_is_const(g, ratio));
  CHECK_STR_EQ(floats_text(ratio), "1,1");
  CHECK(!cy_value_is_const(g, shape) && cy_value_of(g, shape)->node != 0);
}

/* Contents as they are when the unknown ones are read at run time, which are "*". */
static const char *read_text(cy_val v) {
  uint32_t n;
  const cy_dim *d = cy_value_elems_or_read(g, v, &n);
  char *s = cy_arena_printf(cy_graph_arena(g), "%s", d ? "" : "?");
  for (uint32_t i = 0; d && i < n; i++)
    s = cy_arena_printf(cy_graph_arena(g), "%s%s%s", s, i ? "," : "",
                        cy_dim_has_data_sym(g, d[i]) ? "*" : cy_dim_text(g, d[i]));
  return s;
}

GRAPH_TEST(lists_known_in_part) { /* ends of slices, as TensorFlow's are written in ONNX */
  cy_val at = input("at", "i32[1]"), zero = numbers("i32[1]", (const double[]){0});
  cy_val list = cy_build_concat(g, (cy_val[]){at, zero}, 2, 0), huge = numbers("i32[]", (const double[]){1e9});
  cy_val far = numbers("f32[2]", (const double[]){1e9, 1e9}), last = numbers("bool[2]", (const double[]){0, 1});
  cy_val ends = cy_build_binary(g, CY_OP_max, cy_build_cast(g, list, CY_F32), far);
  ends = cy_build_cast(g, ends, CY_I32);
  cy_val back = cy_build_binary(g, CY_OP_and, cy_build_binary(g, CY_OP_eq, ends, huge), last);
  CHECK_STR_EQ(elems_text(list), "?");
  CHECK_STR_EQ(read_text(cy_build_select(g, back, numbers("i32[]", (const double[]){-7}), ends)), "*,-7");
  CHECK_STR_EQ(read_text(ends), "*,1000000000");
  CHECK_STR_EQ(read_text(list), "*,0");
  /* what is no number of the type is not known: 2^24 + 1 as f32 */
  cy_val wide = cy_build_concat(g, (cy_val[]){at, numbers("i32[1]", (const double[]){16777217})}, 2, 0);
  CHECK_STR_EQ(read_text(cy_build_cast(g, cy_build_cast(g, wide, CY_F32), CY_I64)), "*,*");
  /* an element chosen by an unknown index is not known, nor is a sum over one */
  cy_val x = input("x", "f32[b,s]");
  cy_val chosen = cy_build_gather(g, shape_of(x), cy_build_concat(g, (cy_val[]){zero, at}, 2, 0), 0);
  CHECK_STR_EQ(read_text(chosen), "b,*");
  cy_val other = cy_build_concat(g, (cy_val[]){input("to", "i32[1]"), zero}, 2, 0);
  CHECK_STR_EQ(read_text(cy_build_reduce(g, CY_OP_reduce_sum, other, (const int64_t[]){0}, 1, true)), "*");
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"constants", constants},
                                     {"shape_arithmetic", shape_arithmetic},
                                     {"float_detours", float_detours},
                                     {"quotient_of_what_may_be_negative", quotient_of_what_may_be_negative},
                                     {"becomes_constant", becomes_constant},
                                     {"lists_known_in_part", lists_known_in_part}};
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
