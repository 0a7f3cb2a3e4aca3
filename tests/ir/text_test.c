/* SPDX-License-Identifier: Apache-2.0 */
/* text_test.c - the text form: round trips, reading errors with their lines, and what the verifier refuses. */
#include "irtest.h"

static const char *print(cy_graph *graph) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  cy_graph_print(graph, f);
  fclose(f);
  const char *copy = cy_arena_copy(cy_graph_arena(g), text, size + 1);
  free(text);
  return copy;
}

/* Text -> graph -> text; `expected` NULL: the same text. */
static void round_trip(const char *text, const char *expected) {
  cy_graph *again = cy_graph_parse(text, strlen(text), "text", diag);
  if (!again) {
    CHECK_FAIL("cannot read\n%s\n%s", text, errors());
    return;
  }
  CHECK_STR_EQ(print(again), expected ? expected : text);
  cy_graph_destroy(again);
}

GRAPH_TEST(as_written) {
  round_trip("meta licence = MIT\n"
             "meta \"a key\" = \"two\\x0alines, \\\"quoted\\\"\"\n"
             "meta \"\" = \"\"\n"
             "sym batch\n"
             "sym seq >= 1 <= 512\n"
             "sym s3 = data(%k, 0) >= 0\n"
             "graph @net(%x: f32[batch,3,seq,2*seq+1], %k: i64[1]) {\n"
             "  @w = const f32[64,3,1,1] data(0x5e3f09c2a1b4d877)\n"
             "  @b = const f16[2] {1, -0.333251953}\n"
             "  @n = const f32[3] {nan, inf, 0.1}\n"
             "  @m = const u4[3] {1, 15, 0}\n"
             "  %c = conv %x, @w {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1} : f32[batch,64,seq,2*seq+1] "
             "layout=[0,2,3,1]  ; from \"Conv_3\"\n"
             "  %\"a/b\" = exp %c : f32[batch,64,seq,2*seq+1] inlined\n"
             "  %s = slice %x {starts=[0,0,0,seq], steps=[1,1,1,-1]} : f32[batch,3,seq,seq]\n"
             "  %e = expand %\"a/b\" : f32[s3,batch,64,seq,2*seq+1]\n"
             "  %v, %i = topk %x {axis=1, largest=1, sorted=1} : f32[batch,2,seq,2*seq+1], i64[batch,2,seq,2*seq+1]\n"
             "  return %e, out=%v, %i, %s, @b, @n, @m\n"
             "}\n",
             NULL);
}

GRAPH_TEST(blocks) {
  round_trip("graph @\"with blocks\"(%c: bool[], %x: f32[4]) {\n"
             "  @one = const f32[] {1}\n"
             "  %y = if %c {then=() {\n"
             "      %a = add %x, @one : f32[4]\n"
             "      return %a\n"
             "    }, else=() {\n"
             "      return %x\n"
             "    }} : f32[4]\n"
             "  %z = loop _, %c, %y {body=(%i: i64[], %d: bool[], %h: f32[4]) {\n"
             "      %h2 = neg %h : f32[4]\n"
             "      return %d, %h2\n"
             "    }} : f32[4]\n"
             "  return %z\n"
             "}\n",
             NULL);
}

GRAPH_TEST(strings_and_containers) {
  round_trip("sym n\n"
             "graph @g(%s: string[n], %q: seq(f32[?,3]), %m: map(i64,string), %p: opt(seq(map(string,f32)))) {\n"
             "  @t = const string[3] {\"a\", \"q\\\"\\\\\\x0a\", \"\"}\n"
             "  @none = const opt(f32[*]) {0}\n"
             "  @x = const f32[1,3] {1, 2, 3}\n"
             "  %i = concat %s, @t {axis=0} : string[n+3]\n"
             "  %e = seq_make : seq(i32[-])\n"
             "  %f = seq_insert %q, @x : seq(f32[?,3])\n"
             "  return %i, %e, @none, %m, %p, %f\n"
             "}\n",
             NULL);
}

GRAPH_TEST(types_may_be_left_out) {
  round_trip("graph @g(%x: f32[a,4]) { %y = neg %x %z = add %x, %y return %z }",
             "sym a\ngraph @g(%x: f32[a,4]) {\n  %y = neg %x : f32[a,4]\n  %z = add %x, %y : f32[a,4]\n  return %z\n}\n");
}

GRAPH_TEST(built) { /* names that clash or are missing, folded shapes, data symbols */
  uint32_t n;
  cy_val x = input("x", "f32[b,s]"), k = input("k", "i64[2]"), y = cy_build_unary(g, CY_OP_exp, x);
  cy_value_of(g, y)->name = cy_intern(g, "v9");
  y = cy_build_unary(g, CY_OP_neg, y);
  y = cy_build_binary(g, CY_OP_add, y, cy_build_scalar(g, CY_F32, 0.1));
  cy_value_of(g, y)->name = cy_intern(g, "x");
  y = cy_build_expand(g, cy_build_reshape(g, y, (cy_dim[]){cy_type_elems(g, &cy_value_of(g, x)->type)}, 1),
                      (cy_dim[]){cy_value_elems_or_read(g, k, &n)[1], cy_type_elems(g, &cy_value_of(g, x)->type)}, 2);
  cy_graph_add_output(g, "result", y);
  CHECK(cy_graph_verify(g, NULL, 0));
  const char *text = print(g);
  CHECK_STR_HAS(text, "= data(%k, 1)");
  CHECK_STR_HAS(text, "{0.1}");
  CHECK_STR_HAS(text, "return result=%v");
  round_trip(text, NULL);
}

GRAPH_TEST(reading_errors) {
  static const char *const cases[][2] = {
      {"graph @g(%x: f32[2]) {\n  %y = frob %x\n  return %y\n}", "line 2: expected an op, found 'frob %x'"},
      {"graph @g(%x: f32[2]) {\n\n  %y = add %x, %z\n  return %y\n}", "line 3: value 'z' is not defined"},
      {"graph @g(%x: f32[2]) {\n  %y = neg %x : f32[3]\n  return %y\n}",
       "expected the type f32[2], not f32[3], of 'y'"},
      {"graph @g(%x: f32[2], %y: f32[3]) {\n  %z = add %x, %y\n  return %z\n}",
       "line 2: op 'add': expected shapes that broadcast"},
      {"graph @g(%x: f32[2]) {\n  %y = softmax %x\n  return %y\n}", "without its attribute 'axis'"},
      {"graph @g(%q: f32[1,6,5,8], %k: f32[1,4,5,8]) {\n  %y = attention %q, %k, %k {scale=1}\n  return %y\n}",
       "fewer heads that divide"},
      {"graph @g(%q: f32[1,2,5,8], %k: f32[1,2,5,9]) {\n  %y = attention %q, %k, %k {scale=1}\n  return %y\n}",
       "size of a head of k: expected 8, found 9"},
      {"graph @g(%x: f32[2]) {\n  %y = softmax %x {axis=0, group=1}\n  return %y\n}", "has no attribute 'group'"},
      {"graph @g(%x: f32[2]) {\n  %x = neg %x\n  return %x\n}", "value 'x' is defined twice"},
      {"graph @g(%x: q32[2]) {\n  return %x\n}", "expected a type such as f32[2,3]"},
      {"graph @g(%x: ref[]) {\n  return %x\n}", "expected a type such as f32[2,3]"},
      {"graph @g(%x: seq(f32)) {\n  return %x\n}", "seq(f32[*])"},
      {"graph @g() {\n  @c = const string[2] {\"a\", 2}\n  return @c\n}", "expected a text in double quotes"},
      {"graph @g(%x: seq(f32[2]), %y: i32[2]) {\n  %z = seq_insert %x, %y : seq(f32[2])\n  return %z\n}",
       "seq(f32[2]) cannot hold i32[2]"},
      {"graph @g(%x: string[2]) {\n  %y = add %x, %x\n  return %y\n}", "expected numbers, found string[2]"},
      {"graph @g(%x: opt(f32[2])) {\n  %y = neg %x\n  return %y\n}", "expected numbers, found opt(f32[2])"},
      {"graph @g(%x: i32[2]) {\n  %y = exp %x\n  return %y\n}", "expected a floating-point tensor, found i32[2]"},
      {"graph @g(%x: bool[2]) {\n  %y = softmax %x {axis=0}\n  return %y\n}",
       "expected a floating-point tensor, found bool[2]"},
      {"graph @g(%x: f32[2]) {\n  %y = xor %x, %x\n  return %y\n}", "expected a bool or integer tensor, found f32[2]"},
      {"graph @g(%x: string[2]) {\n  %y = cumsum %x {axis=0, exclusive=0, reverse=0}\n  return %y\n}",
       "expected numbers, found string[2]"},
      {"graph @g(%x: string[2]) {\n  %y = reduce_max %x {axes=[0], keepdims=0}\n  return %y\n}",
       "expected numbers, found string[2]"},
      {"graph @g(%x: map(string,f32)) {\n  %y = seq_length %x\n  return %y\n}",
       "that is a sequence, found map(string,f32)"},
      {"graph @g() {\n  @c = const i4[300000000] data(1)\n  return @c\n}",
       "expected at most 268435456 elements by data(..)"},
      {"graph @g(%x: f32[2+]) {\n  return %x\n}", "expected a dim"},
      {"graph @g() {\n  @c = const f32[3] {1, 2}\n  return @c\n}", "line 2: expected ','"},
      {"graph @g() {\n  @c = const f32[99999999999] data(0x1)\n  return @c\n}", "below 2 GiB"},
      {"graph @g(%x: f32[2]) {\n  return %x\n} more", "expected the end"},
      {"graph @g(%x: f32[2]) {\n  return", "expected a name"},
      {"graph @g(%c: bool[]) {\n  %y = if %c {then=() { %a = iota {axis=0} : f32[4] return %a }, else=() { return %a "
       "}} : f32[4]\n"
       "  return %y\n}",
       "uses 'a' before it is defined"},
      {"", "expected 'graph'"},
  };
  for (int i = 0; i < CHECK_COUNT(cases); i++) {
    cy_diag_sink *own = cy_diag_create(), *all = diag;
    CHECK(cy_graph_parse(cases[i][0], strlen(cases[i][0]), "bad.txt", own) == NULL);
    diag = own;
    CHECK_STR_HAS(errors(), cases[i][1]);
    diag = all;
    cy_diag_destroy(own);
  }
}

GRAPH_TEST(truncated) { /* every prefix is refused or read, never worse */
  static const char text[] = "sym b >= 1\ngraph @g(%x: f32[b,3], %q: opt(seq(f32[?,3])), %m: map(string,f32)) {\n  @t = const string[1] {\"\\x41\"}\n  @w = const f32[2] {1, 2}\n  %y = reduce_sum %x {axes=[1], "
                             "keepdims=0} : f32[b]\n  %z = if @w {then=() {return %y}, else=() {return %y}} : f32[b]\n return q=%y\n}";
  for (size_t n = 0; n < sizeof text; n++)
    cy_graph_destroy(cy_graph_parse(text, n, "cut.txt", diag));
}

GRAPH_TEST(verifier_refuses) {
  char why[256];
  cy_val x = input("x", "f32[4]"), a = cy_build_unary(g, CY_OP_exp, x), b = cy_build_unary(g, CY_OP_neg, a);
  cy_graph_add_output(g, "y", b);
  CHECK(cy_graph_verify(g, why, sizeof why));
  cy_block_info *top = cy_block_of(g, 1);
  cy_node first = top->nodes[0];
  top->nodes[0] = top->nodes[1];
  top->nodes[1] = first;
  CHECK(!cy_graph_verify(g, why, sizeof why));
  CHECK_STR_HAS(why, "before it is defined");
  top->nodes[0] = first;
  CHECK(!cy_graph_verify(g, why, sizeof why));
  CHECK_STR_HAS(why, "two places");
  top->nodes[1] = cy_value_of(g, b)->node;
  cy_value_of(g, b)->type = type("f32[5]");
  CHECK(!cy_graph_verify(g, why, sizeof why));
  CHECK_STR_HAS(why, "expected type f32[4], found f32[5]");
  cy_value_of(g, b)->type = type("f32[4]");
  cy_value_of(g, b)->layout[0] = 1;
  CHECK(!cy_graph_verify(g, why, sizeof why));
  CHECK_STR_HAS(why, "no permutation");
  cy_value_of(g, b)->layout[0] = 0;
  cy_node_of(g, first)->in[0] = 0;
  CHECK(!cy_graph_verify(g, why, sizeof why));
  CHECK_STR_HAS(why, "has no input 0");
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"as_written", as_written}, {"blocks", blocks},
                                     {"strings_and_containers", strings_and_containers},
                                     {"types_may_be_left_out", types_may_be_left_out}, {"built", built},
                                     {"reading_errors", reading_errors}, {"truncated", truncated},
                                     {"verifier_refuses", verifier_refuses}};
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
