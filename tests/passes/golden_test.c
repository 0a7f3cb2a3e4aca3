/* golden_test.c - goldens of the passes: a graph as text, the passes to run, text to find or not to find in the result.
 *
 * Reads tests/passes/PASS/NAME.txt (or the files named as arguments; the working directory is the repository's root).
 * In a file, the same directives as everywhere (tests/golden.py), so that the compiler's command line can be held
 * against them, too: ; run: --passes=a,b         what to run, or -ON for the table at level N ; check: TEXT the printed
 * result has TEXT (blanks count as one), after what the check before found ; check-not: TEXT           it has not ;
 * check-count N: TEXT       it has, N times Every result is verified, and printed when a check fails. With --print,
 * results are printed only.
 */
#include "passes/passes.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 1024 };

static char *read_all(const char *path, size_t *out_len) {
  FILE *f = fopen(path, "rb");
  if (!f)
    return NULL;
  size_t cap = 1 << 16, len = 0;
  char *text = malloc(cap + 1);
  for (size_t got; text && (got = fread(text + len, 1, cap - len, f)) > 0;) {
    len += got;
    if (len == cap)
      text = realloc(text, (cap *= 2) + 1);
  }
  fclose(f);
  if (text)
    text[len] = 0;
  *out_len = len;
  return text;
}

/* text with every run of blanks as one space; allocated. */
static char *flatten(const char *text, size_t len) {
  char *flat = malloc(len + 1), *to = flat;
  for (size_t i = 0; flat && i < len; i++)
    if (text[i] != ' ' && text[i] != '\t')
      *to++ = text[i];
    else if (to == flat || to[-1] != ' ')
      *to++ = ' ';
  if (flat)
    *to = 0;
  return flat;
}

/* The rest of a line that starts with key (after the comment sign), trimmed; NULL otherwise. */
static const char *directive(const char *line, size_t len, const char *key, size_t *out_len) {
  size_t n = strlen(key);
  if (len < n || strncmp(line, key, n))
    return NULL;
  const char *p = line + n, *end = line + len;
  while (p < end && *p == ' ')
    p++;
  while (end > p && (end[-1] == ' ' || end[-1] == '\r'))
    end--;
  *out_len = (size_t)(end - p);
  return p;
}

static int count_of(const char *text, const char *want) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, want)); at += strlen(want))
    n++;
  return n;
}

/* One directive against the flat result; moves *at behind what a check found. -1: none, 0: fails, 1: holds. */
static int check_line(const char *line, size_t len, const char *result, const char **at) {
  size_t n;
  int ok = -1;
  char *want = NULL;
  const char *text, *found;
  if ((text = directive(line, len, "; check:", &n))) {
    want = flatten(text, n);
    found = strstr(*at, want);
    *at = found ? found + strlen(want) : *at;
    ok = found != NULL;
  } else if ((text = directive(line, len, "; check-not:", &n))) {
    want = flatten(text, n);
    ok = !strstr(result, want);
  } else if ((text = directive(line, len, "; check-count", &n))) {
    char *rest;
    long times = strtol(text, &rest, 10);
    rest += strspn(rest, ": ");
    want = flatten(rest, n - (size_t)(rest - text));
    ok = count_of(result, want) == times;
  }
  free(want);
  return ok;
}

/* Holds every directive of `source` against the result; the first that fails is reported. */
static bool check_result(const char *path, const char *source, const char *result) {
  char *flat = flatten(result, strlen(result));
  const char *at = flat;
  int checks = 0, ok = 1;
  for (const char *line = source; *line && ok;) {
    size_t len = strcspn(line, "\n");
    int one = check_line(line, len, flat, &at);
    checks += one >= 0;
    ok = one != 0;
    if (!ok)
      fprintf(stderr, "%s: failed: %.*s\n---- result\n%s----\n", path, (int)len, line, result);
    line += len + (line[len] == '\n');
  }
  free(flat);
  if (ok && !checks)
    fprintf(stderr, "%s: has no checks\n", path);
  return ok && checks;
}

/* Of sm_: multiplies halves, whatever the product; of znver4: bf16, where no filter has a channel of its own. */
static bool every_half(const void *target, cy_dtype half, const cy_graph *g, const cy_node_info *n,
                       const int64_t *sizes) {
  (void)target, (void)half, (void)g, (void)n, (void)sizes;
  return true;
}

static bool some_bf16(const void *target, cy_dtype half, const cy_graph *g, const cy_node_info *n,
                      const int64_t *sizes) {
  (void)target, (void)g, (void)sizes;
  return half == CY_BF16 &&
         (!n || n->op == CY_OP_matmul || (n->op == CY_OP_conv && cy_attr_get_int(n, CY_ATTR_group, 1) == 1));
}

/* Options of the run line; `store` holds the strings. */
static cy_pass_options options_of(const char *source, char *store, size_t capacity) {
  cy_pass_options o = {.verify = true, .opt_level = 2, .most_head = 512};
  const char *run = strstr(source, "; run:");
  size_t n = run ? strcspn(run, "\n") : 0;
  const char *passes = run ? strstr(run, "--passes=") : NULL, *level = run ? strstr(run, "-O") : NULL;
  if (passes && passes < run + n) {
    snprintf(store, capacity, "%.*s", (int)strcspn(passes + 9, " \n"), passes + 9);
    o.only = store;
  } else if (level && level < run + n) {
    o.opt_level = atoi(level + 2);
  }
  const char *half = run ? strstr(run, "--target=sm_") : NULL;
  const char *mixed = run ? strstr(run, "--target=znver4") : NULL;
  o.half_factors = half && half < run + n ? every_half : mixed && mixed < run + n ? some_bf16 : NULL;
  o.half_weights = o.half_factors != every_half;
  o.busy_parts = o.half_factors == every_half ? 256 : 0;
  const char *f16 = run ? strstr(run, "--fp16") : NULL, *bf16 = run ? strstr(run, "--bf16") : NULL;
  const char *io = run ? strstr(run, "--half-io") : NULL;
  o.half = f16 && f16 < run + n ? CY_F16 : bf16 && bf16 < run + n ? CY_BF16 : 0;
  o.half_io = io && io < run + n;
  o.exact_f16 = !o.half && o.half_weights;
  return o;
}

static int checks_passed, checks_failed;

static void run_file(const char *path, bool print) {
  size_t len;
  char store[256], why[1024] = "", *source = read_all(path, &len), *result = NULL;
  size_t size;
  cy_diag_sink *diag = cy_diag_create();
  cy_graph *g = source ? cy_graph_parse(source, len, path, diag) : NULL;
  bool ok = g != NULL;
  if (g) {
    cy_pass_options o = options_of(source, store, sizeof store);
    ok = !cy_passes_run(g, &o, NULL) && !cy_diag_errors(diag);
    FILE *f = open_memstream(&result, &size);
    cy_graph_print(g, f);
    fclose(f);
    if (print)
      printf("%s", result);
    else if (ok && !cy_graph_verify(g, why, sizeof why)) {
      fprintf(stderr, "%s: %s\n", path, why);
      ok = false;
    } else
      ok = ok && check_result(path, source, result);
  }
  if (!ok)
    fprintf(stderr, "%s: FAILED\n", path);
  cy_diag_print(diag, stderr);
  if (ok)
    checks_passed++;
  else
    checks_failed++;
  if (g)
    cy_graph_destroy(g);
  cy_diag_destroy(diag);
  free(result);
  free(source);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* All .txt files of all folders under root, sorted. */
static int list_files(const char *root, char **out) {
  int n = 0;
  DIR *dirs = opendir(root);
  for (struct dirent *d; dirs && (d = readdir(dirs));) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/%s", root, d->d_name);
    DIR *files = d->d_name[0] == '.' ? NULL : opendir(folder);
    for (struct dirent *f; files && (f = readdir(files));) {
      size_t len = strlen(f->d_name);
      if (n < MAX_FILES && len > 4 && !strcmp(f->d_name + len - 4, ".txt")) {
        out[n] = malloc(strlen(folder) + len + 2);
        sprintf(out[n++], "%s/%s", folder, f->d_name);
      }
    }
    if (files)
      closedir(files);
  }
  if (dirs)
    closedir(dirs);
  qsort(out, (size_t)n, sizeof *out, by_name);
  return n;
}

int main(int argc, char **argv) {
  bool print = argc > 1 && !strcmp(argv[1], "--print");
  int first = print ? 2 : 1;
  if (argc > first) {
    for (int i = first; i < argc; i++)
      run_file(argv[i], print);
  } else {
    static char *files[MAX_FILES];
    int n = list_files("tests/passes", files);
    for (int i = 0; i < n; i++) {
      run_file(files[i], print);
      free(files[i]);
    }
    checks_failed += n == 0;
  }
  printf("%d passed, %d failed, 0 skipped\n", checks_passed, checks_failed);
  return checks_failed != 0;
}
