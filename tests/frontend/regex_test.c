/* SPDX-License-Identifier: Apache-2.0 */
/* regex_test.c - regular expressions to programs: the syntax that is taken, and what is refused with which words. What
 * programs match is tested where they run (tests/rt/test_values.c) and by the standard's node tests.
 */
#include "../check.h"
#include "frontend/text/regex.h"

/* Runs the program on all branches by plain recursion; `steps` ends expressions that never do. */
static int walk(const int32_t *program, int32_t at, const char *text, const char *start, int *steps) {
  const int32_t *i = program + 3 * at;
  if (--*steps < 0)
    return 0;
  switch (i[0]) {
  case CY_RX_MATCH:
    return *text == 0;
  case CY_RX_JUMP:
    return walk(program, i[1], text, start, steps);
  case CY_RX_SPLIT:
    return walk(program, i[1], text, start, steps) || walk(program, i[2], text, start, steps);
  case CY_RX_ASSERT:
    return (i[1] == CY_RX_AT_BEGIN ? text == start
            : i[1] == CY_RX_AT_END ? *text == 0
                                   : 1) &&
           walk(program, at + 1, text, start, steps);
  default:
    break;
  }
  int in = 0;
  for (int32_t k = 0; k < i[2] && *text; k++)
    in |= *text >= program[i[1] + 3 * k] && *text <= program[i[1] + 3 * k + 1];
  return *text && in == (i[0] == CY_RX_IN) && walk(program, at + 1, text + 1, start, steps);
}

static int matches(const char *pattern, const char *text) {
  cy_arena *arena = cy_arena_create();
  const char *error = NULL;
  uint32_t words;
  const int32_t *program = cy_regex_compile(arena, pattern, strlen(pattern), &words, &error);
  int steps = 20000, found = program ? walk(program, 0, text, text, &steps) : -1;
  if (!program)
    fprintf(stderr, "'%s': %s\n", pattern, error);
  cy_arena_destroy(arena);
  return found;
}

static void syntax(void) {
  static const struct {
    const char *pattern, *text;
    int matches;
  } cases[] = {
      {"", "", 1},
      {"", "a", 0},
      {"abc", "abc", 1},
      {"abc", "abcd", 0},
      {"a|bc|", "bc", 1},
      {"a|bc|", "", 1},
      {"a|bc", "abc", 0},
      {"a*", "aaa", 1},
      {"a+", "", 0},
      {"a?b", "b", 1},
      {"a{2,3}", "a", 0},
      {"a{2,3}", "aaa", 1},
      {"a{2,3}", "aaaa", 0},
      {"a{2,}", "aaaaa", 1},
      {"a{2}", "aa", 1},
      {"a{,2}", "a{,2}", 1},
      {"x{0}y", "y", 1},
      {"(ab)*?c", "ababc", 1},
      {"(?:a|b)+", "abba", 1},
      {"(?P<name>a)b", "ab", 1},
      {"[a-c]x", "bx", 1},
      {"[^a-c]x", "bx", 0},
      {"[^a-c]x", "dx", 1},
      {"[]a]", "]", 1},
      {"[a-]", "-", 1},
      {"[\\d_]+", "12_3", 1},
      {"[[:alpha:]]+", "abZ", 1},
      {"[[:^alpha:]]", "1", 1},
      {"\\d\\D\\w\\W\\s\\S", "1a_- x", 1},
      {".", "\n", 0},
      {"(?s).", "\n", 1},
      {"(?i)aBc", "AbC", 1},
      {"(?i:a)B", "Ab", 0},
      {"a(?i)b", "aB", 1},
      {"^a$", "a", 1},
      {"a^b", "ab", 0},
      {"\\Aa\\z", "a", 1},
      {"\\Qa.b\\E", "a.b", 1},
      {"\\Qa.b\\E", "axb", 0},
      {"\\x41\\x{42}\\t", "AB\t", 1},
      {"\\.\\*", ".*", 1},
      {"((a|b){2}){2}", "abba", 1},
  };
  for (int i = 0; i < CHECK_COUNT(cases); i++) {
    int found = matches(cases[i].pattern, cases[i].text);
    if (found != cases[i].matches)
      CHECK_FAIL("'%s' on '%s': expected %d, found %d", cases[i].pattern, cases[i].text, cases[i].matches, found);
  }
}

static void refused(void) {
  static const char *const cases[][2] = {{"(a", "has no ')'"},
                                         {"a)", "has no group"},
                                         {"[a", "has no ']'"},
                                         {"*a", "nothing to repeat"},
                                         {"a\\", "ends in a backslash"},
                                         {"(a)\\1", "back-references"},
                                         {"\\pL", "Unicode properties"},
                                         {"(?=a)", "unsupported group"},
                                         {"(?<=a)b", "unsupported group"},
                                         {"a{1001}", "above 1000"},
                                         {"a{3,2}", "out of order"},
                                         {"[z-a]", "ends before it starts"},
                                         {"[[:what:]]", "unknown class"},
                                         {"((((a{1000}){1000}){1000}){1000})", "too large"},
                                         {"\\xg", "hexadecimal"},
                                         {"\xff", "UTF-8"},
                                         {"(?i)\xc3\xa4", "ASCII letters only"},
                                         {"(?i)[a-\xc3\xa4]", "ASCII letters only"},
                                         {"[\\p{Lu}]", "write the ranges"},
                                         {"(?P<a", "has no '>'"},
                                         {"\\y", "unknown or unsupported escape"}};
  for (int i = 0; i < CHECK_COUNT(cases); i++) {
    cy_arena *arena = cy_arena_create();
    const char *error = NULL;
    uint32_t words;
    CHECK(cy_regex_compile(arena, cases[i][0], strlen(cases[i][0]), &words, &error) == NULL);
    CHECK_STR_HAS(error ? error : "(none)", cases[i][1]);
    cy_arena_destroy(arena);
  }
}

static void nesting(void) {
  char pattern[1024];
  memset(pattern, '(', sizeof pattern);
  cy_arena *arena = cy_arena_create();
  const char *error = NULL;
  uint32_t words;
  CHECK(cy_regex_compile(arena, pattern, sizeof pattern, &words, &error) == NULL);
  CHECK_STR_HAS(error, "nested");
  cy_arena_destroy(arena);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"syntax", syntax}, {"refused", refused}, {"nesting", nesting}};
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
