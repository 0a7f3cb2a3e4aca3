/* SPDX-License-Identifier: Apache-2.0 */
/* generate.h - what the importers of GreedySearch, Sampling and BeamSearch share: onnx_generate.c runs decoders in a loop,
 * onnx_search.c chooses tokens by their scores.
 *
 * Rows are the sequences that grow at once: `beams` of each of the batch, those of one element side by side.
 */
#ifndef CY_FRONTEND_GENERATE_H
#define CY_FRONTEND_GENERATE_H

#include "frontend/import_int.h"

typedef enum cy_search_kind { CY_SEARCH_GREEDY, CY_SEARCH_SAMPLE, CY_SEARCH_BEAMS } cy_search_kind;

typedef struct cy_search {
  cy_importer *im;
  cy_search_kind kind;
  bool early_stopping;
  int64_t eos, pad, ngram; /* ngram: of this many tokens none comes twice; 0: any may */
  cy_dim batch, beams, rows, vocab;
  cy_dim prompt, length;                     /* tokens that are given; at most, those included */
  cy_dim returned;                           /* sequences of each element */
  cy_val min_length;                         /* i64; here and below 0: there is none */
  cy_val repetition_penalty, length_penalty; /* f32 */
  cy_val words, first_words; /* bool [1 or batch, vocab]: which may be chosen; first_words: as the first */
  cy_val temperature;        /* f32 */
  cy_val timed;              /* bool: Whisper's rules of time stamps are in force, whose tokens are these: */
  struct {
    int64_t start, start_of_lm, translate, transcribe, no_stamps, first; /* stamps are all tokens from `first` on */
  } stamps;
  /* Sampling only */
  cy_val present;       /* f32 [batch, vocab]: what is taken from the scores */
  cy_val seed;          /* i64 */
  double top_p, filter; /* the share of the most probable tokens, and the score of all others */
  int64_t min;        /* of the former there are so many at least */
  bool custom;          /* top_p counts from the most probable one on */
} cy_search;

/* What a search carries from token to token. */
enum {
  CY_SEARCH_TOKENS,    /* i32 [rows, 1]: the last ones */
  CY_SEARCH_SEQUENCES, /* i32 [rows, length], filled up with pad */
  CY_SEARCH_SEEN,      /* bool [rows, vocab]: the tokens in them; with a repetition penalty only */
  CY_SEARCH_DONE,      /* bool [batch] */
  CY_SEARCH_RANDOM,    /* i64 [batch]: Sampling's generator */
  /* beams only; hypotheses are sequences that have come to their end, the best ones of each element */
  CY_SEARCH_SCORES,      /* f32 [batch, beams] */
  CY_SEARCH_KEPT,        /* i32 [batch, beams, length]: hypotheses, in falling order of their scores */
  CY_SEARCH_KEPT_SCORES, /* f32 [batch, beams] */
  CY_SEARCH_KEPT_COUNT,  /* i64 [batch] */
  CY_SEARCH_STATES
};

typedef struct cy_search_state {
  cy_val v[CY_SEARCH_STATES]; /* 0: not needed */
} cy_search_state;

cy_val cy_search_rows(const cy_search *s, cy_val x); /* x [batch, ..] for every beam: [rows, ..] */
/* ids: i32 [batch, prompt]. */
bool cy_search_start(const cy_search *s, cy_val ids, cy_search_state *out);
/* A token for each row. logits: f32 [rows, vocab]; length: of the sequences so far; `first`: token of a row.
 * Out: the row that each goes on from, i64 [rows]; the scores of all tokens, f32 [batch, beams, vocab]. */
bool cy_search_step(const cy_search *s, cy_search_state *state, cy_val logits, cy_dim length, bool first,
                    cy_val *out_from, cy_val *out_scores);
cy_val cy_search_goes_on(const cy_search *s, const cy_search_state *state); /* bool scalar */
/* i32 [batch, returned, length], or [batch, length] without beams; f32 [batch, returned] */
bool cy_search_finish(const cy_search *s, cy_search_state *state, cy_val *out_sequences, cy_val *out_scores);

/* onnx_sample.c: the generator at first; a token for each element, i64 [batch], by scores [batch, vocab]. */
cy_val cy_search_seed(const cy_search *s);
cy_val cy_search_sample(const cy_search *s, cy_val scores, cy_val *state);

#endif
