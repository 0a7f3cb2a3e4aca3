/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.c - colours and the line of progress: see terminal.h. */
#define _GNU_SOURCE
#include "tools/terminal.h"

#include "ir/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

static bool is_terminal(FILE *out) { return isatty(fileno(out)); }

static bool is_dumb(void) {
  const char *term = getenv("TERM");
  return !term || !strcmp(term, "dumb");
}

bool terminal_has_colours(FILE *out) {
  const char *no = getenv("NO_COLOR");
  return is_terminal(out) && !is_dumb() && !(no && *no);
}

/* The first of these words in a line, with a colon before it and one behind it, is its severity. */
static const struct {
  const char *word, *colour;
} severities[] = {{": error: ", "\033[1;31m"}, {": warning: ", "\033[1;35m"}, {": note: ", "\033[1;36m"}};

void terminal_line(FILE *out, const char *line) {
  const char *at = NULL;
  size_t row = 0;
  for (size_t i = 0; terminal_has_colours(out) && i < sizeof severities / sizeof *severities; i++) {
    const char *found = strstr(line, severities[i].word);
    if (found && (!at || found < at)) {
      at = found;
      row = i;
    }
  }
  if (!at) {
    fprintf(out, "%s\n", line);
    return;
  }
  int word = (int)strlen(severities[row].word) - 4; /* without the two colons and blanks */
  fprintf(out, "\033[1m%.*s:\033[0m %s%.*s:\033[0m%s\n", (int)(at - line), line, severities[row].colour, word, at + 2,
          at + 3 + word);
}

/* ---- progress ---- */

static const double FIRST_MS = 1000, BETWEEN_MS = 100;

/* What the timer's handler draws. */
static terminal_progress *shown;

static int columns(void) {
  struct winsize size;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

/* "4 s", "2 min 05 s" */
static void time_text(double seconds, char *text, size_t room) {
  long s = (long)(seconds + 0.5);
  if (s < 60)
    snprintf(text, room, "%ld s", s);
  else
    snprintf(text, room, "%ld min %02ld s", s / 60, s % 60);
}

/* "m.onnx: kernels 12 of 80, 3 s, about 17 s left" */
static int progress_text(const terminal_progress *p, double now, char *text, size_t room) {
  char taken[40], left[40], parts[60] = "";
  time_text((now - p->began_ms) * 1e-3, taken, sizeof taken);
  if (p->total > 0)
    snprintf(parts, sizeof parts, " %lld of %lld", (long long)p->done, (long long)p->total);
  int n = snprintf(text, room, "%.200s%s%s%s, %s", p->what ? p->what : "", p->what ? ": " : "", p->stage, parts, taken);
  if (p->done <= 0 || p->done >= p->total)
    return n;
  double rest_ms = (p->done_ms - p->stage_ms) / (double)p->done * (double)(p->total - p->done) - (now - p->done_ms);
  time_text(rest_ms > 0 ? rest_ms * 1e-3 : 0, left, sizeof left);
  return n + snprintf(text + n, room - (size_t)n, ", about %s left", left);
}

/* Called by the handler, too: numbers into a buffer, one write. The cursor goes back to the beginning of the line, so that
 * a message of a process that is being waited for stands there. */
static void draw(terminal_progress *p, double now) {
  char text[512], line[600];
  int n = progress_text(p, now, text, sizeof text), room = columns() - 1;
  const char *from = n > room ? text + n - room : text; /* the end says more than the beginning of a path */
  n = snprintf(line, sizeof line, "\r\033[K%s%s%s\r", p->colours ? "\033[36m" : "", from, p->colours ? "\033[0m" : "");
  if (write(STDERR_FILENO, line, (size_t)n) == n)
    p->visible = true;
}

static void tick(int number) {
  (void)number;
  int saved = errno;
  double now = cy_clock_ms();
  if (shown && *shown->stage && now - shown->began_ms >= FIRST_MS)
    draw(shown, now);
  errno = saved;
}

static void set_timer(double ms) {
  suseconds_t us = (suseconds_t)(ms * 1e3);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, us}, {0, us}}, NULL);
}

static void hold_timer(bool hold) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

void terminal_progress_begin(terminal_progress *p, const char *what) {
  *p = (terminal_progress){.what = what,
                           .began_ms = cy_clock_ms(),
                           .on = is_terminal(stderr) && !is_dumb() && !shown,
                           .colours = terminal_has_colours(stderr)};
  if (!p->on)
    return;
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  static char kept[1 << 20];
  if (is_terminal(stdout))
    setvbuf(stdout, kept, _IOFBF, sizeof kept);
  shown = p;
  sigaction(SIGALRM, &action, NULL);
  set_timer(BETWEEN_MS);
}

void terminal_progress_show(terminal_progress *p, const char *stage, int64_t done, int64_t total) {
  if (!p->on)
    return;
  hold_timer(true);
  if (strcmp(stage, p->stage)) {
    snprintf(p->stage, sizeof p->stage, "%s", stage);
    p->stage_ms = p->done_ms = cy_clock_ms();
  } else if (done != p->done) {
    p->done_ms = cy_clock_ms();
  }
  p->done = done;
  p->total = total;
  hold_timer(false);
}

void terminal_progress_end(terminal_progress *p) {
  if (!p->on)
    return;
  set_timer(0);
  signal(SIGALRM, SIG_IGN); /* one may be on its way */
  shown = NULL;
  p->on = false;
  static const char wipe[] = "\r\033[K";
  if (p->visible && write(STDERR_FILENO, wipe, sizeof wipe - 1) < 0)
    p->visible = false;
  fflush(stdout);
}
