/* profile.h - the table of cyto-run --profile. */
#ifndef CY_TOOLS_PROFILE_H
#define CY_TOOLS_PROFILE_H

/* Prints what the loaded library counted, a row per launch, beside the floors for `threads` cores (0: one), and the
 * mean sum of `runs` runs. Returns 0, or -1 when it counts nothing. */
int profile_print(const char *library, int threads, long runs);

#endif
