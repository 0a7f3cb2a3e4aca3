/* SPDX-License-Identifier: Apache-2.0 */
/* carried.h - what cytoc carries for the linker, once per architecture `a`, in the order in which the linker reads it: name
 * and file name, by the system that libraries are for. For C and the assembler: the Makefile gives link_files.S the file of
 * each as CY_FILE_name. */
#ifndef CY_CARRIED_H
#define CY_CARRIED_H

/* query: runtime/shared. runtime: libcyto.a. The others: names of the C library's functions, by tools/make/stub.sh. */
#define CY_CARRIED_linux(X, a)                                                                                         \
  X(a, query, "query.o")                                                                                               \
  X(a, runtime, "libcyto.a")                                                                                           \
  X(a, libm, "libm.so")                                                                                                \
  X(a, libpthread, "libpthread.so")                                                                                    \
  X(a, libdl, "libdl.so")                                                                                              \
  X(a, libc, "libc.so")

/* The others: names of what Windows has of these libraries, by tools/make/stub_windows.sh. */
#define CY_CARRIED_windows(X, a)                                                                                       \
  X(a, query, "query.o")                                                                                               \
  X(a, runtime, "libcyto.a")                                                                                           \
  X(a, kernel32, "libkernel32.a")                                                                                      \
  X(a, ucrtbase, "libucrtbase.a")

#endif
