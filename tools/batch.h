/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h - many compilations out of one process; see batch.c for the form of the list and of what is printed. */
#ifndef CY_TOOLS_BATCH_H
#define CY_TOOLS_BATCH_H

/* Runs every line of `list`, at most n_jobs at a time, each by compile_main() in a forked child (argv[0] is "cytoc").
 * Returns 0 when all of them exited with 0, else 1. The calling process must not have started threads. */
int cy_batch_run(const char *list, int n_jobs, int (*compile_main)(int argc, char **argv));

#endif
