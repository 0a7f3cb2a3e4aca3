/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - the process that a job is done in; see worker.c. */
#ifndef CYTOC_WORKER_H
#define CYTOC_WORKER_H

#include "cytoc.h"

/* Open files that the caller and the worker share: all but `socket` are in memory. */
typedef enum worker_file {
  WORKER_SOCKET,
  WORKER_LOG,
  WORKER_REPORT,
  WORKER_LIBRARY,
  WORKER_HEADER,
  WORKER_EXTERNAL,
  WORKER_FILES
} worker_file;

/* In the forked child: does the job and exits. It closes all other open files. folder: its own, for what is temporary;
 * parent: the caller's process. */
_Noreturn void worker_main(const cytoc_job *job, const int files[WORKER_FILES], const char *folder, long parent);

#endif
