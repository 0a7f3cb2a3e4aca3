/* SPDX-License-Identifier: Apache-2.0 */
/* temps.h - temporary files and child processes that are gone in the end, whatever the end was.
 *
 * Sets nest: what is made last is destroyed first. SIGINT, SIGTERM and SIGHUP end the children of all sets, wait for
 * them, remove the files of all sets and then do what they did before. One thread of a process makes sets and children;
 * other threads that run meanwhile block these signals (cy_temps_thread), so that the handler finds that one thread
 * stopped.
 */
#ifndef CY_TEMPS_H
#define CY_TEMPS_H

#include "ir/ir.h"

#include <pthread.h>
#include <spawn.h>
#include <sys/types.h>

typedef struct cy_temps cy_temps;

cy_temps *cy_temps_create(cy_diag_sink *diag);                 /* NULL after a diagnostic */
cy_temps *cy_temps_adopt(const char *dir);                     /* of a directory that somebody has made for it */
void cy_temps_destroy(cy_temps *t);                            /* removes files and directory */
const char *cy_temps_file(cy_temps *t, const char *base_name); /* a path in the directory; lives as long as t */
const char *cy_temps_near(cy_temps *t, const char *output);    /* where to write it first: beside it, as a rule */
int cy_temps_commit(const char *near, const char *output,
                    cy_diag_sink *diag); /* puts it there: 0, -1 after a diagnostic */

/* ---- files and their names ---- */
bool cy_file_write(const char *path, const void *data, size_t bytes); /* a whole file; errno says why not */
int cy_cannot_write(cy_diag_sink *diag, const char *path);            /* files a diagnostic by errno; -1 */
bool cy_path_is_device(const char *path);                             /* something that is no file and no directory */
const char *cy_path_base(const char *path);                           /* behind the last slash */
char *cy_path_with_ending(const char *path, const char *ending);      /* in place of what it has; free() it */

/* Children of this process. fork() as it is known, but the child does not outlive its parent; posix_spawnp(), 0 or an
 * errno; the status of waitpid(), after which the child is forgotten. At most CY_CHILDREN at a time. */
enum { CY_CHILDREN = 64 };
enum { CY_EXIT_NO_MEMORY = 3 }; /* exit code of a forked child that had no memory */
pid_t cy_temps_fork(void);
int cy_temps_spawn(pid_t *out_pid, const char *file, const posix_spawn_file_actions_t *actions, char *const argv[]);
int cy_temps_wait(pid_t child);
int cy_temps_ended(const pid_t *list, int n); /* waits for one of these children; its index, for cy_temps_wait() */
/* pthread_create() of a thread that gets no signals. */
int cy_temps_thread(pthread_t *out_thread, void *(*run)(void *), void *data);

#endif
