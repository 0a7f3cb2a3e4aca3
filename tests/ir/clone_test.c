/* SPDX-License-Identifier: Apache-2.0 */
/* clone_test.c - copies of graphs: the same ids and text, and no edit of one shows in the other. */
#include "irtest.h"

static const char text[] = "meta labels = \"a,b\"\n"
                           "sym batch\n"
                           "sym seq >= 1 <= 512\n"
                           "sym s3 = data(%k, 0) >= 0\n"
                           "graph @net(%x: f32[batch,seq], %k: i64[1], %c: bool[]) {\n"
                           "  @w = const f32[8,8] data(0x5e3f09c2a1b4d877)\n"
                           "  @two = const f32[] {2}\n"
                           "  @t = const string[2] {\"one\", \"two\"}\n"
                           "  %a = mul %x, @two : f32[batch,seq]  ; from \"Mul_1\"\n"
                           "  %e = expand %a : f32[s3,batch,seq]\n"
                           "  %y = if %c {then=() {\n"
                           "      %h = add %a, @two : f32[batch,seq]\n"
                           "      return %h\n"
                           "    }, else=() {\n"
                           "      return %x\n"
                           "    }} : f32[batch,seq]\n"
                           "  %z = loop _, %c, %y {body=(%i: i64[], %d: bool[], %v: f32[batch,seq]) {\n"
                           "      %v2 = neg %v : f32[batch,seq]\n"
                           "      return %d, %v2\n"
                           "    }} : f32[batch,seq]\n"
                           "  return %z, %e, @w, @t\n"
                           "}\n";

static const char *print(cy_graph *graph) {
  char *out = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&out, &size);
  cy_graph_print(graph, f);
  fclose(f);
  const char *kept = cy_arena_copy(cy_graph_arena(g), out, size + 1);
  free(out);
  return kept;
}

static void check_valid(cy_graph *graph) {
  char why[512] = "";
  if (!cy_graph_verify(graph, why, sizeof why))
    CHECK_FAIL("%s", why);
}

static cy_val value_called(const cy_graph *graph, const char *name) {
  for (cy_val v = 1; v <= cy_value_count(graph); v++)
    if (!strcmp(cy_str_text(graph, cy_value_of(graph, v)->name), name))
      return v;
  return 0;
}

/* Everything that a pass may do to a graph. */
static void change(cy_graph *graph) {
  cy_val a = value_called(graph, "a"), x = value_called(graph, "x");
  cy_node neg = cy_value_of(graph, value_called(graph, "v2"))->node;
  cy_build_before(graph, cy_value_of(graph, value_called(graph, "e"))->node);
  cy_origin origin = {cy_intern(graph, "made here"), cy_intern(graph, "Exp"), 0, 3, NULL};
  cy_build_origin(graph, &origin);
  cy_val exp = cy_build_unary(graph, CY_OP_exp, a);
  cy_graph_replace(graph, a, exp);
  cy_node_of(graph, cy_value_of(graph, exp)->node)->in[0] = x; /* as passes do, past the use lists */
  cy_build_before(graph, neg);                                 /* inside the loop's body */
  cy_val twice = cy_build_binary(graph, CY_OP_add, cy_node_of(graph, neg)->in[0], cy_build_scalar(graph, CY_F32, 7));
  cy_node_of(graph, neg)->in[0] = twice;
  cy_build_in(graph, 1);
  cy_dim more = cy_dim_addi(graph, cy_dim_sym(graph, cy_sym_by_name(graph, "other")), 5);
  cy_type t = cy_type_make(CY_F32, 1, &more);
  cy_graph_add_output(graph, "more", cy_build_unary(graph, CY_OP_tanh, cy_graph_add_input(graph, "in", &t)));
  cy_graph_set_output(graph, 1, value_called(graph, "z"));
  cy_sym_of(graph, 2)->max = 9;
  cy_value_of(graph, x)->layout[0] = 1;
  cy_value_of(graph, x)->layout[1] = 0;
  cy_graph_add_metadata(graph, "more", "yes");
  cy_graph_record(graph, true);
  cy_graph_require(graph, more, cy_dim_sym(graph, 1), CY_REQUIRE_EQUAL);
  cy_text_add(graph, "three", 5);
  CHECK(cy_graph_sweep(graph) > 0);
}

static cy_graph *parsed(void) {
  cy_graph *from = cy_graph_parse(text, strlen(text), "text", diag);
  if (!from)
    CHECK_FAIL("%s", errors());
  return from;
}

GRAPH_TEST(same) {
  cy_graph *from = parsed();
  CHECK_REQUIRE(from);
  cy_graph_record(from, true);
  cy_graph_require(from, cy_dim_sym(from, 1), cy_dim_sym(from, 2), CY_REQUIRE_BROADCAST);
  cy_graph_record(from, false);
  cy_graph *to = cy_graph_clone(from);
  CHECK_STR_EQ(print(to), print(from));
  check_valid(to);
  CHECK_INT_EQ(cy_value_count(to), cy_value_count(from));
  CHECK_INT_EQ(cy_node_count(to), cy_node_count(from));
  CHECK_INT_EQ(cy_block_count(to), cy_block_count(from));
  CHECK_INT_EQ(cy_sym_count(to), cy_sym_count(from));
  for (cy_val v = 1; v <= cy_value_count(from); v++) {
    const cy_value *a = cy_value_of(from, v), *b = cy_value_of(to, v);
    CHECK(a != b && cy_type_equal(&a->type, &b->type) && a->node == b->node && a->name == b->name);
    CHECK(a->data.bytes == b->data.bytes && a->data.size == b->data.size); /* weights stay where they are */
  }
  for (cy_node n = 1; n <= cy_node_count(from); n++) {
    const cy_node_info *a = cy_node_of(from, n), *b = cy_node_of(to, n);
    CHECK(a->op == b->op && a->block == b->block && !memcmp(&a->origin, &b->origin, sizeof a->origin));
  }
  const cy_requirement *r;
  CHECK_INT_EQ(cy_graph_requirements(to, &r), 1);
  CHECK(r->kind == CY_REQUIRE_BROADCAST && r->block == 1);
  cy_graph_destroy(to);
  cy_graph_destroy(from);
}

/* What is known in both has one number in both, and is found, not made again. */
GRAPH_TEST(interned) {
  cy_graph *from = parsed();
  CHECK_REQUIRE(from);
  cy_graph *to = cy_graph_clone(from);
  CHECK_INT_EQ(cy_intern(to, "Mul_1"), cy_intern(from, "Mul_1"));
  CHECK_INT_EQ(cy_sym_by_name(to, "seq"), cy_sym_by_name(from, "seq"));
  CHECK_INT_EQ(cy_text_add(to, "two", 3), cy_text_add(from, "two", 3));
  uint32_t count = cy_sym_count(to);
  cy_dim twice = cy_dim_muli(to, cy_dim_sym(to, cy_sym_by_name(to, "seq")), 2);
  CHECK_INT_EQ(cy_dim_muli(to, cy_dim_sym(to, cy_sym_by_name(to, "seq")), 2), twice);
  CHECK_STR_EQ(cy_dim_text(to, twice), "2*seq");
  CHECK_INT_EQ(cy_sym_count(to), count);
  cy_graph_destroy(to);
  cy_graph_destroy(from);
}

GRAPH_TEST(apart) {
  cy_graph *from = parsed(), *changed = parsed();
  CHECK_REQUIRE(from && changed);
  change(changed);
  const char *before = print(from), *after = print(changed);
  CHECK(strcmp(before, after) != 0);
  for (int original = 0; original < 2; original++) {
    cy_graph *to = cy_graph_clone(from), *other = cy_graph_clone(to); /* a clone's clone is one, too */
    change(original ? to : other);
    CHECK_STR_EQ(print(original ? to : other), after);
    CHECK_STR_EQ(print(original ? other : to), before);
    CHECK_STR_EQ(print(from), before);
    check_valid(other);
    check_valid(to);
    change(original ? other : to); /* and what was left alone can be changed as well */
    CHECK_STR_EQ(print(original ? other : to), after);
    cy_graph_destroy(other);
    cy_graph_destroy(to);
  }
  check_valid(from);
  cy_graph_destroy(changed);
  cy_graph_destroy(from);
}

/* Room of lists that grow by doubling: no number of results or inputs makes a clone write into the other's. */
GRAPH_TEST(growing) {
  for (int n = 0; n <= 9; n++) {
    cy_graph *from = cy_graph_create(diag, "grown"), *to;
    cy_type t = cy_type_make(CY_F32, 0, NULL);
    for (int i = 0; i < n; i++)
      cy_graph_add_output(from, "y", cy_graph_add_input(from, "x", &t));
    to = cy_graph_clone(from);
    for (int i = 0; i < 9; i++) {
      cy_graph_add_output(to, "to", cy_graph_add_input(to, "to", &t));
      cy_graph_add_output(from, "from", cy_graph_add_input(from, "from", &t));
    }
    for (int i = 0; i < n + 9; i++) {
      const cy_port_info *a, *b;
      CHECK_INT_EQ(cy_graph_outputs(from, &a), n + 9);
      CHECK_INT_EQ(cy_graph_outputs(to, &b), n + 9);
      CHECK_STR_EQ(cy_str_text(from, a[i].name), i < n ? "y" : "from");
      CHECK_STR_EQ(cy_str_text(to, b[i].name), i < n ? "y" : "to");
      CHECK_INT_EQ(cy_block_of(from, 1)->results[i], a[i].value);
      CHECK_INT_EQ(cy_block_of(to, 1)->results[i], b[i].value);
    }
    check_valid(to);
    cy_graph_destroy(to);
    cy_graph_destroy(from);
  }
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"same", same}, {"interned", interned}, {"apart", apart}, {"growing", growing}};
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
