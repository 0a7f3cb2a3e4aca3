/* golden_test.c - goldens of the passes: a graph as text, the passes to run, lines to find or not to find in the result.
 *
 * Reads tests/passes/PASS/NAME.txt (or the files named as arguments; the working directory is the repository's root). In a file:
 *   ; run: --passes=a,b         what to run; without it, the pass that the folder is named after. -ON runs the table at level N
 *   ; check: TEXT               a line of the printed result contains TEXT, after the line of the check before
 *   ; check-not: TEXT           no line does
 *   ; count: N TEXT             exactly N lines do
 * {{regex}} in TEXT is an extended regular expression; spaces match any run of spaces. Every result is verified, and printed when a check
 * fails. With --print, results are printed only.
 */
#include "passes/passes.h"
#include "tests/check.h"

#include <dirent.h>
#include <regex.h>
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

/* A check's text as an extended regular expression. */
static void to_regex(const char *text, size_t len, char *out) {
  for (size_t i = 0; i < len; i++) {
    const char *end = !strncmp(text + i, "{{", 2) ? strstr(text + i, "}}") : NULL;
    if (end && end < text + len) {
      size_t n = (size_t)(end - text) - i - 2;
      memcpy(out, text + i + 2, n);
      out += n;
      i += n + 3;
    } else if (text[i] == ' ') {
      memcpy(out, " +", 2);
      out += 2;
    } else {
      if (strchr(".[]()*+?{}|^$\\", text[i]))
        *out++ = '\\';
      *out++ = text[i];
    }
  }
  *out = 0;
}

/* The first match of the check in text; NULL when there is none. Sets where it ends. */
static const char *find(const char *text, const char *check, size_t len, const char **out_end) {
  char pattern[4096];
  regex_t re;
  regmatch_t m;
  if (len > sizeof pattern / 4)
    return NULL;
  to_regex(check, len, pattern);
  if (regcomp(&re, pattern, REG_EXTENDED | REG_NEWLINE))
    return NULL;
  int rc = regexec(&re, text, 1, &m, 0);
  regfree(&re);
  if (rc)
    return NULL;
  if (out_end)
    *out_end = text + m.rm_eo;
  return text + m.rm_so;
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

static int count_lines(const char *text, const char *check, size_t len) {
  int n = 0;
  for (const char *at = text, *end; (at = find(at, check, len, &end)); n++) {
    at = strchr(end, '\n');
    if (!at)
      return n + 1;
  }
  return n;
}

/* Holds every directive of `source` against the result; the first that fails is reported. */
static bool check_result(const char *path, const char *source, const char *result) {
  const char *at = result;
  int line_number = 0, checks = 0;
  for (const char *line = source; *line; line_number++) {
    const char *eol = strchr(line, '\n'), *text, *end;
    size_t len = eol ? (size_t)(eol - line) : strlen(line), n;
    bool ok = true;
    if ((text = directive(line, len, "; check:", &n))) {
      ok = find(at, text, n, &end) != NULL;
      const char *next = ok ? strchr(end, '\n') : NULL;
      at = ok ? (next ? next : end) : at;
      checks++;
    } else if ((text = directive(line, len, "; check-not:", &n))) {
      ok = !find(result, text, n, NULL);
      checks++;
    } else if ((text = directive(line, len, "; count:", &n))) {
      char *rest;
      long want = strtol(text, &rest, 10);
      rest += *rest == ' ';
      ok = count_lines(result, rest, n - (size_t)(rest - text)) == want;
      checks++;
    }
    if (!ok) {
      fprintf(stderr, "%s:%d: failed: %.*s\n---- result\n%s----\n", path, line_number + 1, (int)len, line, result);
      return false;
    }
    line += len + (eol != NULL);
  }
  if (!checks)
    fprintf(stderr, "%s: has no checks\n", path);
  return checks > 0;
}

/* Options of the run line, or the folder's name as the pass. `store` holds the strings. */
static cy_pass_options options_of(const char *path, const char *source, char *store, size_t capacity) {
  cy_pass_options o = {.verify = true, .opt_level = 2};
  const char *run = strstr(source, "; run:");
  size_t n = run ? strcspn(run, "\n") : 0;
  const char *passes = run ? strstr(run, "--passes=") : NULL, *level = run ? strstr(run, "-O") : NULL;
  if (passes && passes < run + n) {
    snprintf(store, capacity, "%.*s", (int)strcspn(passes + 9, " \n"), passes + 9);
    o.only = store;
  } else if (level && level < run + n) {
    o.opt_level = atoi(level + 2);
  } else {
    const char *slash = strrchr(path, '/'), *start = slash;
    while (start && start > path && start[-1] != '/')
      start--;
    snprintf(store, capacity, "%.*s", slash ? (int)(slash - start) : 0, slash ? start : "");
    o.only = store;
  }
  return o;
}

static void run_file(const char *path, bool print) {
  size_t len;
  char store[256], why[1024] = "", *source = read_all(path, &len), *result = NULL;
  size_t size;
  cy_diag_sink *diag = cy_diag_create();
  cy_graph *g = source ? cy_graph_parse(source, len, path, diag) : NULL;
  bool ok = g != NULL;
  if (g) {
    cy_pass_options o = options_of(path, source, store, sizeof store);
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
    check_passed++;
  else
    check_failed++;
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
    CHECK(n > 0);
  }
  return check_done();
}
