/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cyrt_choose.h - what the files about NVIDIA's libraries share: finding them (cuda_find.c), what each offers for a problem
 * (cudnn_solver.c, cublaslt.c), constants as they want them (cuda_copies.c), remembered choices (cuda_choices.c).
 * Who chooses and runs is cuda_choose.c.
 */
#ifndef CYRT_CHOOSE_H
#define CYRT_CHOOSE_H

#include "cyrt_cublaslt.h"
#include "cyrt_cudnn.h"

/* ---- cuda_find.c ---- */

typedef struct cuda_sought {
  const char *variable;        /* CYTO_CUDNN: names the folder */
  const char *const *names;    /* of the library, the best first; ends with NULL */
  const char *const *packages; /* folders of Python's packages below nvidia/; ends with NULL */
  const char *pip, *option;    /* for people */
} cuda_sought;
typedef struct cuda_found {
  void *library;
  char path[500];
} cuda_found;
/* Opens the library, of its names from `first` on. out->library is NULL with CYTO_OK when there is none, where `where` then
 * says which places were looked at; one that cannot be opened is an error. */
cyto_status cyrt_cuda_find(const cuda_sought *what, int first, cuda_found *out, char where[400], cyto_error *error);
cyto_status cyrt_sought_unusable(const cuda_sought *what, const char *path, const char *why, cyto_error *error);

/* ---- what libraries offer ---- */

struct cuda_solver;
/* What a library could do for a problem. */
typedef struct cuda_offer {
  const struct cuda_solver *by;
  int32_t n; /* candidates, best first by the library's own guess */
  union {
    cudnn_graph graph;
    cublaslt_product product;
  };
} cuda_offer;
/* One candidate, ready to run. */
typedef struct cuda_plan {
  const struct cuda_solver *by; /* NULL: there is none */
  int64_t workspace;            /* bytes */
  int32_t weight;               /* as how many plans it counts that are timed: making one may take a second */
  int32_t candidate;
  cudnn_plan cudnn;
} cuda_plan;

typedef struct cuda_solver {
  const char *name;
  int32_t required;                               /* a failing call is an error; 0: our own kernel is taken then */
  int (*ready)(const cuda_state *state);          /* the library is there and has a handle */
  int (*takes)(const cyrt_cuda_problem *problem); /* can it be asked at all, constants being as it wants them? */
  /* Fills the offer, of no candidates where the library has none. The offer is the caller's to forget either way. */
  int32_t (*ask)(cuda_state *state, const cyrt_cuda_problem *problem, void *const pointers[CYRT_PROBLEM_TENSORS],
                 cuda_offer *out, cyto_error *error);
  void (*forget)(cuda_state *state, cuda_offer *offer);
  int (*make)(cuda_state *state, const cuda_offer *offer, int32_t candidate, cuda_plan *out); /* 0: it cannot be made */
  void (*unmake)(cuda_state *state, cuda_plan *plan);
  /* On the context's stream. */
  int32_t (*run)(cuda_state *state, const cuda_plan *plan, const cuda_offer *offer, const cyrt_cuda_problem *problem,
                 void *const pointers[CYRT_PROBLEM_TENSORS], void *workspace, cyto_error *error);
} cuda_solver;
extern const cuda_solver cyrt_cudnn_solver, cyrt_cublaslt_solver;

int64_t cyrt_problem_element(int64_t dtype); /* bytes; 0: no dtype that libraries are given */

/* ---- cuda_copies.c ---- */

typedef struct cuda_copy cuda_copy; /* a constant in another layout or type, on the device */
/* Has the problem read copies of constants in the layout that libraries want, and says so in it. While a run is recorded none is
 * made. */
int32_t cyrt_copies_use(cyrt_frame *frame, cyrt_cuda_problem *problem, void *pointers[CYRT_PROBLEM_TENSORS]);
void cyrt_copies_free(cuda_state *state, cuda_copy *list);
enum {
  CYRT_PROBLEM_REARRANGED = 1 << 16
}; /* a flag: weights of a transposed convolution are a copy with channels innermost */

/* ---- cuda_choose.c ---- */

enum { CUDA_CHOICE_LISTS = 256 };
typedef struct cuda_plans {                       /* of a context */
  void *cudnn, *cublaslt;                         /* handles; NULL: not in use */
  char failed[CYRT_CUDA_LIBRARIES][300];          /* what a library failed with first; "": it did not */
  struct cuda_chosen *entries[CUDA_CHOICE_LISTS]; /* by hash */
  uint8_t *sizes;                                 /* [n_kernels]: how many entries each has */
  cuda_copy *copies;
  cuda_block workspace;
  int32_t decided; /* since choices were saved */
} cuda_plans;

/* ---- cuda_choices.c: which of several ways was the fastest, kept in the user's cache folder ---- */

typedef struct cuda_choices cuda_choices;
/* `about` names everything that the choices rest on, in one line: another text, another file. Without a folder (neither
 * XDG_CACHE_HOME nor HOME) they live as long as this does. NULL: no memory. */
cuda_choices *cyrt_choices_open(const char *about);
void cyrt_choices_close(cuda_choices *c);
/* Thread-safe. find: 1 when there is one. */
int cyrt_choices_find(cuda_choices *c, uint64_t key, int32_t *out_choice);
void cyrt_choices_add(cuda_choices *c, uint64_t key, int32_t choice, double own_us, double best_us);
/* Writes what was added; a folder that cannot be written costs only the time of choosing again. */
void cyrt_choices_save(cuda_choices *c);

#endif
