/* terminal.c - colours and the line of progress: see terminal.h. */
#define _GNU_SOURCE
#include "tools/terminal.h"

#include "ir/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

void terminal_progress_begin(terminal_progress *p, const char *what) {
  *p = (terminal_progress){.what = what, .began_ms = cy_clock_ms(), .on = is_terminal(stderr) && !is_dumb()};
}

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

static void draw(terminal_progress *p, int64_t done, int64_t total, double now) {
  char line[512], time[40] = "", parts[80] = "";
  double stage_s = (now - p->stage_ms) * 1e-3;
  time_text((now - p->began_ms) * 1e-3, time, sizeof time);
  if (total > 0)
    snprintf(parts, sizeof parts, " %lld of %lld", (long long)done, (long long)total);
  int n =
      snprintf(line, sizeof line, "%s%s%s%s, %s", p->what ? p->what : "", p->what ? ": " : "", p->stage, parts, time);
  if (total > 0 && done > 0 && done < total) {
    time_text(stage_s / (double)done * (double)(total - done), time, sizeof time);
    n += snprintf(line + n, sizeof line - (size_t)n, ", about %s left", time);
  }
  int room = columns() - 1;
  const char *from = n > room ? line + n - room : line; /* the end says more than the beginning of a path */
  bool colours = terminal_has_colours(stderr);
  fprintf(stderr, "\r\033[K%s%s%s", colours ? "\033[36m" : "", from, colours ? "\033[0m" : "");
  fflush(stderr);
  p->visible = true;
  p->shown_ms = now;
}

void terminal_progress_show(terminal_progress *p, const char *stage, int64_t done, int64_t total) {
  if (!p->on)
    return;
  double now = cy_clock_ms();
  bool changed = strcmp(stage, p->stage) != 0;
  if (changed) {
    snprintf(p->stage, sizeof p->stage, "%s", stage);
    p->stage_ms = now;
  }
  if (now - p->began_ms >= FIRST_MS && (changed || now - p->shown_ms >= BETWEEN_MS))
    draw(p, done, total, now);
}

void terminal_progress_wipe(terminal_progress *p) {
  if (!p->visible)
    return;
  fputs("\r\033[K", stderr);
  fflush(stderr);
  p->visible = false;
}
