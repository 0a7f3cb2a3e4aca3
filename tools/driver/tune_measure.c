/* SPDX-License-Identifier: Apache-2.0 */
/* tune_measure.c - one layer's candidates, compiled, run in turns and timed.
 *
 * In: a layer's description and candidates. Out: the median of each one's cycles and how far its quartiles are apart. The
 * layer's kernel alone is timed, by the recording of --profile: what turns its operands into another layout is counted where
 * layouts are chosen. Libraries run in this process.
 */
#define _GNU_SOURCE
#include "codegen/temps.h"
#include "ir/clock.h"
#include "tune.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MIN_SAMPLES = 5, WARM_RUNS = 2, MAX_INPUTS = 2 };
enum { SWEPT = 4 << 20, LINE = 64, HUGE_PAGE = 2 << 20 }; /* bytes */
static const double MAX_MS = 1500; /* of runs of a layer */
static const double BEHIND = 1.2;  /* what took so many times the best in MIN_SAMPLES runs is out */

bool cytoc_tune_over(const tune_clock *c) {
  sigset_t pending;
  return (c->end_ms > 0 && cy_clock_ms() > c->end_ms) || (!sigpending(&pending) && sigismember(&pending, SIGINT) == 1);
}

/* ---- compiling ---- */

typedef struct expected {
  const char *layer, *candidate;
  bool found;
} expected;

static void look(void *ctx, const cy_candidates *c, uint32_t launches) {
  expected *e = ctx;
  (void)launches;
  e->found |= !strcmp(c->layer, e->layer) && c->chosen >= 0 && !strcmp(c->of[c->chosen].name, e->candidate);
}

/* What says how layers are computed stays; what is about the model or prints goes. */
static cytoc_options options_of(const cytoc_options *o, const char *layer, const char *path) {
  cytoc_options l = {.input = "layer",
                     .output = path,
                     .target = o->target,
                     .emit = "so",
                     .opt_level = o->opt_level,
                     .jobs = o->jobs,
                     .fast_algorithms = o->fast_algorithms,
                     .strict = o->strict,
                     .profile = true};
  cytoc_tune_layer_options(layer, &l);
  return l;
}

/* Writes the library; false: it cannot be had, or not by that candidate. candidate NULL: by any. */
static bool compile(const cytoc_session *s, const char *layer, const char *candidate, const char *path,
                    cy_diag_sink *diag) {
  cytoc_options o = options_of(s->o, layer, path);
  cy_choice forced = {.layer = layer, .candidate = candidate};
  cy_choices choices = {&forced, 1};
  expected e = {layer, candidate, false};
  tune_layer_spec spec = {layer, candidate && cy_candidate_is(candidate, "planar")};
  cytoc_session one = {.o = &o,
                       .diag = diag,
                       .make = cytoc_tune_layer_graph,
                       .make_ctx = &spec,
                       .choices = candidate ? &choices : NULL,
                       .visit = candidate ? look : NULL,
                       .visit_ctx = &e};
  int status = cytoc_session_compile(&one);
  free(one.written);
  return !status && (e.found || !candidate);
}

/* ---- running ---- */

/* What all contenders read and write. */
typedef struct ports {
  float *input[MAX_INPUTS], *output;
} ports;

static uint64_t elements_of(const cyto_port *port) {
  uint64_t n = 1;
  for (int32_t a = 0; a < port->rank; a++)
    n *= (uint64_t)port->dims[a];
  return n;
}

/* On large pages, as the arena of a context is. */
static float *room_for(uint64_t n) {
  uint64_t bytes = (n * sizeof(float) / HUGE_PAGE + 1) * HUGE_PAGE;
  float *room = aligned_alloc(HUGE_PAGE, bytes);
  if (!room)
    cy_no_memory();
  madvise(room, bytes, MADV_HUGEPAGE);
  return room;
}

static bool bind_ports(tune_contender *c, ports *p) {
  cyto_error error;
  cyto_port port;
  for (int32_t i = 0; i < cyto_model_input_count(c->model) && i < MAX_INPUTS; i++) {
    cyto_model_input(c->model, i, &port);
    uint64_t n = elements_of(&port);
    p->input[i] = p->input[i] ? p->input[i] : room_for(n);
    for (uint64_t at = 0; at < n; at++)
      p->input[i][at] = (float)(at * 2654435761u % 1024) / 512 - 1;
    if (cyto_bind_input(c->context, i, CYTO_F32, port.rank, port.dims, p->input[i], &error))
      return false;
  }
  cyto_model_output(c->model, 0, &port);
  uint64_t n = elements_of(&port);
  p->output = p->output ? p->output : room_for(n);
  return !cyto_bind_output(c->context, 0, p->output, n * sizeof *p->output, &error);
}

static void free_ports(ports *p) {
  for (int i = 0; i < MAX_INPUTS; i++)
    free(p->input[i]);
  free(p->output);
}

static bool is_layer(const char *ops) { return strstr(ops, "conv") || strstr(ops, "matmul"); }

/* In a model, other layers run in between: what a layer reads and writes is behind the second-level cache, but for its inputs. */
static void sweep(const tune_contender *c, const ports *shared) {
  static char swept[SWEPT];
  volatile char *p = swept;
  for (int i = 0; i < SWEPT; i += LINE)
    p[i]++;
  for (int32_t i = 0; i < cyto_model_input_count(c->model) && i < MAX_INPUTS; i++) {
    cyto_port port;
    cyto_model_input(c->model, i, &port);
    for (uint64_t at = 0; at < elements_of(&port); at += LINE / sizeof(float))
      *p = shared->input[i][at] > 0;
  }
}

/* One run's nanoseconds in the layer; < 0: it failed. */
static double run(tune_contender *c) {
  cyto_error error;
  if (cyto_trace_start(c->model, -1, &error))
    return -1;
  int status = cyto_run(c->context, &error);
  if (cyto_trace_stop(c->model, &error) || status)
    return -1;
  double ns = 0;
  cyto_trace_sums sums;
  for (int64_t i = 0; i < cyto_trace_step_count(c->model); i++)
    if (!cyto_trace_step(c->model, i, &sums) && is_layer(sums.ops))
      ns += (double)(sums.ns + sums.first_ns);
  return ns;
}

static void unload(tune_contender *c) {
  cyto_context_destroy(c->context);
  cyto_model_unload(c->model);
  c->context = NULL;
  c->model = NULL;
}

static bool load(tune_contender *c, const char *path, ports *shared, cyto_error *error) {
  cyto_options one_thread = {.threads = 1};
  bool ok = !cyto_model_load(path, &c->model, error) &&
            !cyto_context_create(c->model, &one_thread, &c->context, error) && bind_ports(c, shared);
  for (int i = 0; ok && i < WARM_RUNS; i++)
    ok = run(c) > 0;
  if (!ok)
    unload(c);
  return ok;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void summarise(tune_contender *c) {
  qsort(c->cycles, (size_t)c->n, sizeof *c->cycles, by_value);
  c->median = c->n ? c->cycles[c->n / 2] : 0;
  c->spread = c->n ? c->cycles[c->n * 3 / 4] - c->cycles[c->n / 4] : 0;
}

/* Leaves out what is far behind. */
static void leave_out(tune_contender *list, int n) {
  double best = 0;
  for (tune_contender *c = list; c < list + n; c++) {
    summarise(c);
    if (c->median > 0 && (best <= 0 || c->median < best))
      best = c->median;
  }
  for (tune_contender *c = list; c < list + n; c++)
    c->out = c->n && c->cycles[0] > BEHIND * best;
}

static int take_turns(const tune_clock *clock, tune_contender *list, int n, const ports *shared) {
  double began = cy_clock_ms();
  for (int round = 0; round < TUNE_SAMPLES; round++) {
    if (round >= MIN_SAMPLES && cy_clock_ms() - began > MAX_MS)
      break;
    if (round == MIN_SAMPLES)
      leave_out(list, n);
    for (tune_contender *c = list; c < list + n; c++) {
      if (cytoc_tune_over(clock))
        return -1;
      if (!c->model || c->out)
        continue;
      run(c); /* the others have pushed its memory out of all caches */
      sweep(c, shared);
      double ns = run(c);
      if (ns > 0)
        c->cycles[c->n++] = ns * clock->cycles_ns;
    }
  }
  for (tune_contender *c = list; c < list + n; c++)
    summarise(c);
  return 0;
}

/* One candidate's library, in this process. */
static void prepare(const cytoc_session *s, cy_temps *temps, const char *layer, tune_contender *c,
                    ports *shared) {
  cyto_error error;
  char name[80];
  snprintf(name, sizeof name, "%s.so.weights", c->name);
  cy_temps_file(temps, name);
  name[strlen(name) - strlen(".weights")] = 0;
  cy_diag_sink *quiet = cy_diag_create();
  const char *path = cy_temps_file(temps, name);
  if (compile(s, layer, c->name, path, quiet))
    load(c, path, shared, &error);
  cy_diag_destroy(quiet);
}

int cytoc_tune_measure(const cytoc_session *s, const tune_clock *clock, const char *layer, tune_contender *list,
                       int n) {
  ports shared = {0};
  cy_temps *temps = cy_temps_create(s->diag);
  int status = temps ? 0 : -1;
  for (tune_contender *c = list; c < list + n && !status; c++) {
    prepare(s, temps, layer, c, &shared);
    status = cytoc_tune_over(clock) ? -1 : 0;
  }
  if (!status)
    status = take_turns(clock, list, n, &shared);
  for (tune_contender *c = list; c < list + n; c++)
    if (c->model)
      unload(c);
  free_ports(&shared);
  cy_temps_destroy(temps);
  return status;
}

char *cytoc_tune_refused(const cytoc_session *s) {
  ports shared = {0};
  tune_contender c = {0};
  cyto_error error = {0};
  cy_diag_sink *quiet = cy_diag_create();
  cy_temps *temps = cy_temps_create(s->diag);
  const char *path = temps ? cy_temps_file(temps, "probe.so") : NULL, *why = NULL;
  char *copy = NULL;
  if (path && !compile(s, "matmul m8 n16 k16 b1", NULL, path, quiet))
    why = cy_diag_count(quiet) ? cy_diag_at(quiet, 0)->text : "it cannot be compiled for it";
  else if (path && !load(&c, path, &shared, &error))
    why = *error.message ? error.message : "it cannot be run";
  if (why && !(copy = strdup(why)))
    cy_no_memory();
  if (c.model)
    unload(&c);
  free_ports(&shared);
  cy_temps_destroy(temps);
  cy_diag_destroy(quiet);
  return copy;
}
