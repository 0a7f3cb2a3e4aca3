/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_generate.c - com.microsoft's GreedySearch, Sampling, BeamSearch and WhisperBeamSearch: a decoder that writes a text
 * token by token.
 *
 * In:  a node with subgraphs. `decoder` gives scores of the next token and the keys and values of all tokens so far
 *      ("present"), which it gets back with the next one ("past"). The first scores come from the prompt: of `init_decoder`
 *      or `decoder` (GPT), or of `encoder`, which also reads the source (T5, Whisper); T5's newer encoders only read it.
 * Out: the first call, the choice of a token, and a loop of decoder and choice, which ends when all sequences have ended or
 *      are full. The prompt is read once for all beams. onnx_search.c has the choice.
 */
#include "frontend/control/control.h"
#include "generate.h"

#include <string.h>

#define X (n->in[0])

enum { GPT, T5, WHISPER };

/* Which inputs of the node are what: BeamSearch has more of them than GreedySearch. 0: none. */
typedef struct input_places {
  uint8_t max_length, min_length, beams, returned, length_penalty, repetition_penalty, words, first_words, mask, prompt,
      timestamps, temperature, present, seed;
} input_places;

#define OF_GREEDY .max_length = 1, .min_length = 2, .repetition_penalty = 3, .words = 4, .first_words = 5, .mask = 6
#define OF_BEAMS                                                                                                       \
  .max_length = 1, .min_length = 2, .beams = 3, .returned = 4, .length_penalty = 5, .repetition_penalty = 6,           \
  .words = 7, .first_words = 8, .mask = 9, .prompt = 10, .timestamps = 11

static const input_places places_of[] = {[GENERATE_GREEDY] = {OF_GREEDY},
                                         [GENERATE_SAMPLE] = {OF_GREEDY, .present = 7, .seed = 8},
                                         [GENERATE_BEAMS] = {OF_BEAMS},
                                         [GENERATE_WHISPER] = {OF_BEAMS, .temperature = 14}};

/* What a decoder's inputs are, in their order. */
enum { IDS, POSITIONS, MASK, HIDDEN, CACHES };

typedef struct decoder {
  const Onnx__GraphProto *graph;
  uint32_t role[CACHES + 1]; /* [what] the input's number plus 1; 0: it has none. CACHES: the first of them */
  uint32_t caches;           /* that grow */
  uint32_t crossed;          /* those behind them, of the source, which stay as they are */
} decoder;

typedef struct generation {
  cy_importer *im;
  const cy_onnx_node *n;
  cy_search search;
  const input_places *at;
  int64_t model;
  decoder next;
  int row_axis, length_axis; /* of caches */
  bool whole;                /* the decoder gets all tokens each time */
  bool wants_scores;
  uint32_t states[CY_SEARCH_STATES], nstates; /* those that the loop carries */
  cy_val ids, mask;                           /* of the prompt, i32 [batch, prompt]; mask of T5: of the source */
  cy_val counts;                              /* GPT: tokens of the prompt that are no padding, i32 [batch, 1] */
  cy_val hidden, *crossed;                    /* of the source */
} generation;

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }

static const char *input_text(const Onnx__GraphProto *graph, uint32_t k) {
  return k < graph->n_input && graph->input[k]->name ? graph->input[k]->name : "";
}

/* ---- inputs of the node ---- */

/* An integer input of one element as a dim; `otherwise` where it is absent. */
static bool read_dim(const generation *q, uint32_t k, const char *item, int64_t min, int64_t otherwise, cy_dim *out) {
  cy_importer *im = q->im;
  cy_val v = k ? q->n->in[k] : 0;
  *out = num(im, otherwise);
  if (!v)
    return true;
  uint32_t count = 0;
  const cy_type *t = cy_onnx_type(im, v);
  const cy_dim *e = cy_dtype_is_int(t->dtype) ? cy_value_elems_or_read(im->g, v, &count) : NULL;
  int64_t known;
  if (!e || count != 1)
    return cy_build_error(im->g, item, "expected one integer, found %s", cy_type_text(im->g, t));
  if (cy_dim_is_const(im->g, e[0], &known) && known < min)
    return cy_build_error(im->g, item, "expected at least %lld, found %lld", (long long)min, (long long)known);
  *out = e[0];
  return true;
}

/* An input of one element as a scalar; 0 where it is absent, or is known to be `nothing`, which has no effect. */
static bool read_scalar(const generation *q, uint32_t k, const char *item, cy_dtype dtype, double nothing,
                        cy_val *out) {
  cy_importer *im = q->im;
  cy_val v = k ? q->n->in[k] : 0;
  uint32_t count;
  *out = 0;
  if (!v)
    return true;
  const cy_type *t = cy_onnx_type(im, v);
  int64_t size;
  if (t->rank > 1 || (t->rank && cy_dim_is_const(im->g, t->dim[0], &size) && size != 1))
    return cy_build_error(im->g, item, "expected one number, found %s", cy_type_text(im->g, t));
  v = CAST(v, dtype);
  const double *known = v ? cy_value_floats(im->g, v, &count) : NULL;
  if (known && count == 1 && known[0] == nothing)
    return true;
  *out = cy_build_reshape(im->g, v, NULL, 0);
  return *out != 0;
}

static bool read_words(const generation *q, uint32_t k, const char *item, int rank, cy_val *out) {
  cy_importer *im = q->im;
  cy_val v = k ? q->n->in[k] : 0;
  *out = 0;
  if (!v)
    return true;
  if (cy_onnx_type(im, v)->rank != rank)
    return cy_build_error(im->g, item, "expected a mask [%svocabulary], found %s", rank == 2 ? "batch, " : "",
                          cy_type_text(im->g, cy_onnx_type(im, v)));
  v = CAST(v, CY_BOOL);
  *out = rank == 1 ? cy_build_unsqueeze(im->g, v, 0) : v;
  return *out != 0;
}

static bool read_token(generation *q, const char *name, int64_t otherwise, int64_t *out) {
  *out = cy_onnx_int(q->im, q->n, name, otherwise);
  return *out >= 0 || cy_build_error(q->im->g, cy_arena_printf(q->im->arena, "attribute '%s'", name),
                                     "expected a token's number, found %lld", (long long)*out);
}

/* What only Sampling has. */
static bool read_sampling(generation *q) {
  cy_importer *im = q->im;
  const cy_onnx_node *n = q->n;
  cy_search *s = &q->search;
  double temperature = cy_onnx_float(im, n, "temperature", 1), penalty = cy_onnx_float(im, n, "presence_penalty", 0);
  s->top_p = cy_onnx_float(im, n, "top_p", 0);
  s->filter = cy_onnx_float(im, n, "filter_value", -1e20);
  s->custom = cy_onnx_int(im, n, "custom", 0) != 0;
  s->min = cy_onnx_int(im, n, "min_tokens_to_keep", 0);
  if (temperature > 0 && temperature != 1)
    s->temperature = cy_build_scalar(im->g, CY_F32, temperature);
  cy_val present = n->in[q->at->present];
  if (present && cy_onnx_type(im, present)->rank != 2)
    return cy_build_error(im->g, "input 'presence_mask'", "expected [batch, vocabulary], found %s",
                          cy_type_text(im->g, cy_onnx_type(im, present)));
  if (present && penalty != 0)
    s->present = MUL(CAST(present, CY_F32), cy_build_scalar(im->g, CY_F32, penalty));
  if (cy_onnx_wants(n, 1))
    return cy_build_error(im->g, "output 'filtered_logits'",
                          "expected none, as ONNX Runtime fills it in debug builds only: leave it out");
  return read_scalar(q, q->at->seed, "input 'seed'", CY_I64, 0, &s->seed);
}

/* Sizes that must hold when it runs. */
static bool at_most(const generation *q, cy_dim a, cy_dim b, const char *what) {
  cy_importer *im = q->im;
  int64_t x, y;
  if (cy_dim_is_const(im->g, a, &x) && cy_dim_is_const(im->g, b, &y) && x > y)
    return cy_build_error(im->g, what, "expected at most %lld, found %lld", (long long)y, (long long)x);
  cy_graph_require(im->g, a, b, CY_REQUIRE_AT_MOST);
  return true;
}

/* What of WhisperBeamSearch only GPUs compute. */
static bool read_whisper(generation *q) {
  static const struct {
    const char *item;
    uint32_t input, output; /* 0: none */
  } others[] = {{"input 'cross_qk_layer_head'", 12, 0},
                {"input 'extra_decoding_ids'", 13, 0},
                {"output 'cross_qk'", 0, 3},
                {"output 'non_speech_probs'", 0, 4}};
  cy_importer *im = q->im;
  const cy_onnx_node *n = q->n;
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if ((others[i].input && n->in[others[i].input]) || (others[i].output && cy_onnx_wants(n, others[i].output)))
      return cy_build_error(im->g, others[i].item, "expected none, as on ONNX Runtime's CPUs: export without it");
  if (cy_onnx_int(im, n, "decoder_output_cross_qk", 0))
    return cy_build_error(im->g, "attribute 'decoder_output_cross_qk'",
                          "expected 0, as on ONNX Runtime's CPUs: export without products of queries and keys");
  return true;
}

/* Whisper's rules of time stamps hold where the input logits_processor is 1. Without their tokens, as of BeamSearch, a run
 * that wants them is refused. */
static bool read_stamps(generation *q) {
  static const char item[] = "input 'logits_processor'";
  cy_importer *im = q->im;
  const cy_onnx_node *n = q->n;
  cy_search *s = &q->search;
  cy_dim rules;
  s->stamps.start = cy_onnx_int(im, n, "decoder_start_token_id", -1);
  s->stamps.start_of_lm = cy_onnx_int(im, n, "start_of_lm_token_id", -1);
  s->stamps.translate = cy_onnx_int(im, n, "translate_token_id", -1);
  s->stamps.transcribe = cy_onnx_int(im, n, "transcribe_token_id", -1);
  s->stamps.no_stamps = cy_onnx_int(im, n, "no_timestamps_token_id", -1);
  s->stamps.first = cy_onnx_int(im, n, "beginning_timestamp_token_id", -1);
  if (q->model != WHISPER)
    return true;
  if (s->stamps.first < 1)
    return read_dim(q, q->at->timestamps, item, 0, 0, &rules) && at_most(q, rules, num(im, 0), item);
  if (!read_scalar(q, q->at->timestamps, item, CY_I64, 0, &s->timed))
    return false;
  s->timed = s->timed ? BINARY(eq, s->timed, cy_build_scalar_int(im->g, CY_I64, 1)) : 0;
  return true;
}

static bool read_inputs(generation *q) {
  cy_search *s = &q->search;
  const input_places *at = q->at;
  return read_dim(q, at->max_length, "input 'max_length'", 1, 4096, &s->length) &&
         read_dim(q, at->beams, "input 'num_beams'", 1, 1, &s->beams) &&
         read_dim(q, at->returned, "input 'num_return_sequences'", 1, 1, &s->returned) &&
         read_scalar(q, at->min_length, "input 'min_length'", CY_I64, 0, &s->min_length) &&
         read_scalar(q, at->repetition_penalty, "input 'repetition_penalty'", CY_F32, 1, &s->repetition_penalty) &&
         read_scalar(q, at->length_penalty, "input 'length_penalty'", CY_F32, 1, &s->length_penalty) &&
         read_scalar(q, at->temperature, "input 'temperature'", CY_F32, 1, &s->temperature) &&
         read_words(q, at->words, "input 'vocab_mask'", 1, &s->words) &&
         read_words(q, at->first_words, "input 'prefix_vocab_mask'", 2, &s->first_words) &&
         (s->kind != CY_SEARCH_SAMPLE || read_sampling(q)) && read_stamps(q) &&
         (q->n->arg != GENERATE_WHISPER || read_whisper(q));
}

static bool read_attributes(generation *q) {
  cy_importer *im = q->im;
  const cy_onnx_node *n = q->n;
  cy_search *s = &q->search;
  s->ngram = cy_onnx_int(im, n, "no_repeat_ngram_size", 0);
  s->early_stopping = cy_onnx_int(im, n, "early_stopping", 0) == 1;
  q->model = cy_onnx_int(im, n, "model_type", n->arg == GENERATE_WHISPER ? WHISPER : GPT);
  if (q->model < GPT || q->model > (s->kind == CY_SEARCH_BEAMS ? WHISPER : GPT))
    return cy_build_error(im->g, "attribute 'model_type'", "expected 0 (GPT)%s, found %lld",
                          s->kind == CY_SEARCH_BEAMS ? ", 1 (T5) or 2 (Whisper)" : "", (long long)q->model);
  if (s->ngram < 0 || s->ngram > 256)
    return cy_build_error(im->g, "attribute 'no_repeat_ngram_size'", "expected 0 to 256, found %lld",
                          (long long)s->ngram);
  return read_token(q, "eos_token_id", -1, &s->eos) && read_token(q, "pad_token_id", -1, &s->pad);
}

/* ---- decoders ---- */

/* Finds out what the inputs are, and checks their number. */
static bool describe(const generation *q, const char *attribute, decoder *d) {
  static const char *const names[] = {"input_ids", "position_ids", "attention_mask|encoder_attention_mask",
                                      "encoder_hidden_states"};
  cy_importer *im = q->im;
  uint32_t k = 0;
  *d = (decoder){.graph = d->graph};
  for (int i = IDS; i < CACHES; i++) {
    const char *name = input_text(d->graph, k), *found = *name ? strstr(names[i], name) : NULL;
    size_t length = strlen(name);
    if (found && (found == names[i] || found[-1] == '|') && (!found[length] || found[length] == '|'))
      d->role[i] = ++k;
  }
  d->role[CACHES] = k + 1;
  d->caches = d->graph->n_output ? (uint32_t)d->graph->n_output - 1 : 0;
  d->crossed = q->model == GPT ? 0 : d->caches;
  bool gpt = q->model == GPT, complete = d->role[IDS] && (!gpt || (d->role[POSITIONS] && d->role[MASK]));
  if (complete && d->caches && d->graph->n_input == k + d->caches + d->crossed)
    return true;
  return cy_build_error(
      im->g, attribute,
      "expected inputs input_ids, %s, and as many caches %s as it has outputs behind the scores, found "
      "%zu inputs and %zu outputs; caches that past and present share are not supported: export "
      "without past_present_share_buffer",
      gpt ? "position_ids, attention_mask" : "encoder_attention_mask (T5)",
      gpt ? "past_0, .." : "past_key_self_0, .., and of the source past_key_cross_0, ..", d->graph->n_input,
      d->graph->n_output);
}

/* Caches of no tokens. */
static cy_val empty_cache(const generation *q, const decoder *d, uint32_t k) {
  cy_importer *im = q->im;
  uint32_t input = d->role[CACHES] - 1 + k;
  const Onnx__TypeProto *type = d->graph->input[input]->type;
  const Onnx__TypeProto__Tensor *t =
      type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? type->tensor_type : NULL;
  int rank = q->row_axis ? 5 : 4;
  if (!t || !t->shape || t->shape->n_dim != (size_t)rank || t->elem_type <= 0 || t->elem_type >= CY_REF)
    return cy_build_error(im->g, cy_arena_printf(im->arena, "input '%s' of the decoder", input_text(d->graph, input)),
                          "expected a declared element type and %d dimensions", rank);
  cy_dim dims[5];
  for (int i = 0; i < rank; i++) {
    const Onnx__TensorShapeProto__Dimension *e = t->shape->dim[i];
    bool known = e->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    dims[i] = i == q->row_axis ? q->search.batch : num(im, i == q->length_axis ? 0 : known ? e->dim_value : -1);
    if (cy_dim_is(im->g, dims[i], -1))
      return cy_build_error(im->g, cy_arena_printf(im->arena, "input '%s' of the decoder", input_text(d->graph, input)),
                            "expected a declared size of axis %d: heads and their size must be known", i);
  }
  return cy_onnx_fill(im, cy_build_scalar(im->g, (cy_dtype)t->elem_type, 0), dims, rank);
}

/* Scores of the last token, f32 [rows, vocab]; all of them where the vocabulary is not known yet. */
static cy_val last_scores(const generation *q, cy_val logits) {
  cy_importer *im = q->im;
  const cy_type t = *cy_onnx_type(im, logits);
  if (t.rank != 3)
    return cy_build_error(im->g, "attribute 'decoder'", "expected scores [batch, tokens, vocabulary], found %s",
                          cy_type_text(im->g, &t));
  cy_val last = cy_build_slice_axis(im->g, logits, 1, cy_dim_addi(im->g, t.dim[1], -1), num(im, 1));
  last = cy_build_squeeze(im->g, last, 1);
  if (q->search.vocab && q->search.vocab != t.dim[2])
    last = cy_build_slice_axis(im->g, last, 1, num(im, 0), q->search.vocab);
  return CAST(last, CY_F32);
}

/* One call of a decoder. given: [IDS .. HIDDEN]; caches: those that grow, replaced by their successors. */
static bool call(const generation *q, const decoder *d, const cy_val *given, cy_val *caches, const cy_val *crossed,
                 cy_val *out_logits) {
  cy_importer *im = q->im;
  uint32_t count = (uint32_t)d->graph->n_input;
  cy_val *in = CY_NEW_ARRAY(im->arena, cy_val, count + 1), *out = CY_NEW_ARRAY(im->arena, cy_val, d->caches + 2);
  for (int i = IDS; i < CACHES; i++) {
    if (!d->role[i])
      continue;
    if (!given[i])
      return false;
    in[d->role[i] - 1] = given[i];
  }
  memcpy(in + d->role[CACHES] - 1, caches, sizeof *in * d->caches);
  if (d->crossed)
    memcpy(in + d->role[CACHES] - 1 + d->caches, crossed, sizeof *in * d->crossed);
  bool ok = cy_import_subgraph(im, q->n, d->graph, in, count, out);
  cy_onnx_at(im, q->n);
  if (!ok)
    return false;
  int rank = q->row_axis ? 5 : 4;
  for (uint32_t k = 0; k < d->caches; k++)
    if (cy_onnx_type(im, out[1 + k])->rank != rank)
      return cy_build_error(im->g, "attribute 'decoder'", "expected output %u to be a cache of %d dimensions, found %s",
                            k + 1, rank, cy_type_text(im->g, cy_onnx_type(im, out[1 + k])));
  memcpy(caches, out + 1, sizeof *out * d->caches);
  *out_logits = last_scores(q, out[0]);
  return *out_logits != 0;
}

/* The first call, of GPT: positions count what is no padding. */
static bool read_prompt(generation *q, cy_val *caches, cy_val *out_logits) {
  static const int64_t axis1[1] = {1};
  cy_importer *im = q->im;
  const cy_onnx_node *n = q->n;
  decoder first = q->next;
  if (cy_onnx_has(n, "init_decoder")) {
    first.graph = cy_onnx_graph(im, n, "init_decoder");
    if (!first.graph || !describe(q, "attribute 'init_decoder'", &first))
      return false;
    if (first.caches != q->next.caches)
      return cy_build_error(im->g, "attribute 'init_decoder'", "expected %u caches as of 'decoder', found %u",
                            q->next.caches, first.caches);
  }
  const cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, 1), cy_attr_int(CY_ATTR_exclusive, 1),
                        cy_attr_int(CY_ATTR_reverse, 0)};
  cy_val real = CAST(BINARY(ne, q->ids, cy_build_scalar_int(im->g, CY_I32, q->search.pad)), CY_I32);
  cy_val before = real ? cy_build(im->g, CY_OP_cumsum, &real, 1, a, 3, NULL, 0) : 0;
  q->mask = q->at->mask && n->in[q->at->mask] ? CAST(n->in[q->at->mask], CY_I32) : real;
  q->counts = cy_build_reduce(im->g, CY_OP_reduce_sum, real, axis1, 1, true);
  cy_val given[CACHES] = {[IDS] = q->ids, [POSITIONS] = MUL(real, before), [MASK] = q->mask};
  for (uint32_t k = 0; k < first.caches; k++)
    if (!(caches[k] = empty_cache(q, &first, k)))
      return false;
  return q->counts && call(q, &first, given, caches, NULL, out_logits);
}

/* The tokens that the text of an encoder and decoder begins with. */
static bool start_text(generation *q) {
  cy_importer *im = q->im;
  const cy_onnx_node *n = q->n;
  cy_dim dims[2] = {q->search.batch, num(im, 1)};
  int64_t start;
  if (q->model == WHISPER && n->in[q->at->prompt]) {
    q->ids = n->in[q->at->prompt];
    const cy_type *t = cy_onnx_type(im, q->ids);
    return (t->rank == 2 && t->dtype == CY_I32) ||
           cy_build_error(im->g, "input 'decoder_input_ids'", "expected i32 [batch, tokens], found %s",
                          cy_type_text(im->g, t));
  }
  return read_token(q, "decoder_start_token_id", -1, &start) &&
         (q->ids = cy_onnx_fill(im, cy_build_scalar_int(im->g, CY_I32, start), dims, 2));
}

/* T5: padding is what stands in front of all else. */
static cy_val source_mask(const generation *q) {
  cy_importer *im = q->im;
  const cy_onnx_node *n = q->n;
  if (n->in[q->at->mask])
    return CAST(n->in[q->at->mask], CY_I32);
  const cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, 1), cy_attr_int(CY_ATTR_exclusive, 0),
                        cy_attr_int(CY_ATTR_reverse, 0)};
  cy_val real = CAST(BINARY(ne, X, cy_build_scalar_int(im->g, CY_I32, q->search.pad)), CY_I32);
  return real ? MIN(cy_build(im->g, CY_OP_cumsum, &real, 1, a, 3, NULL, 0), LIKE(real, 1)) : 0;
}

/* The first call, of T5 and Whisper. Encoders give the first scores, a state of the source, and the caches of the text's
 * beginning and of the source; newer ones of T5 only the latter, and the decoder reads the beginning. */
static bool read_source(generation *q, cy_val *caches, cy_val *out_logits) {
  cy_importer *im = q->im;
  const cy_onnx_node *n = q->n;
  const Onnx__GraphProto *graph = cy_onnx_graph(im, n, "encoder");
  uint32_t count = q->next.caches, inputs = 0;
  if (!graph || !start_text(q))
    return false;
  bool early = graph->n_output == 2u * count + 2, late = graph->n_output == count && q->model == T5;
  cy_val in[3] = {X}, *out = CY_NEW_ARRAY(im->arena, cy_val, 2 * count + 3);
  inputs = 1;
  if (q->model == T5 && !(in[inputs++] = q->mask = source_mask(q)))
    return false;
  if (early)
    in[inputs++] = q->ids;
  if ((!early && !late) || graph->n_input != inputs)
    return cy_build_error(im->g, "attribute 'encoder'",
                          "expected inputs encoder_input_ids%s, decoder_input_ids, and outputs logits, "
                          "encoder_hidden_states and %u caches%s, found %zu inputs and %zu outputs",
                          q->model == T5 ? ", encoder_attention_mask" : "", 2 * count,
                          q->model == T5 ? ", or neither decoder_input_ids nor what comes of them" : "", graph->n_input,
                          graph->n_output);
  bool ok = cy_import_subgraph(im, n, graph, in, inputs, out);
  cy_onnx_at(im, n);
  if (!ok)
    return false;
  q->crossed = CY_NEW_ARRAY(im->arena, cy_val, count);
  memcpy(q->crossed, out + (early ? 2 + count : 0), sizeof *out * count);
  if (early) {
    memcpy(caches, out + 2, sizeof *out * count);
    *out_logits = last_scores(q, out[0]);
    q->hidden = cy_search_rows(&q->search, out[1]);
  } else {
    cy_val given[CACHES] = {[IDS] = q->ids, [MASK] = q->mask};
    for (uint32_t k = 0; k < count; k++)
      if (!(caches[k] = empty_cache(q, &q->next, k)))
        return false;
    if (q->next.role[HIDDEN] || !call(q, &q->next, given, caches, q->crossed, out_logits))
      return q->next.role[HIDDEN] &&
             cy_build_error(im->g, "attribute 'decoder'",
                            "expected no input encoder_hidden_states, which the encoder does not give");
  }
  for (uint32_t k = 0; k < count; k++)
    if (!(q->crossed[k] = cy_search_rows(&q->search, q->crossed[k])))
      return false;
  return *out_logits && (!early || q->hidden);
}

/* ---- the loop ---- */

/* Caches in the order of the rows from which the new ones go on; `shared`: of the batch, before there are beams. */
static bool reorder(const generation *q, cy_val *caches, cy_val from, bool shared) {
  cy_importer *im = q->im;
  const cy_search *s = &q->search;
  cy_val beams = cy_build_dim_scalar(im->g, s->beams);
  if (!from || cy_dim_is(im->g, s->beams, 1))
    return true;
  /* ONNX Runtime leaves a single beam's caches where they are, also those of sequences that are done; so it does with those
   * of an encoder, which are the same for all beams. */
  cy_val own = cy_build_iota(im->g, CY_I64, &s->rows, 1, 0);
  from = shared && q->model != GPT ? own : SELECT(BINARY(eq, beams, cy_build_scalar_int(im->g, CY_I64, 1)), own, from);
  if (shared)
    from = DIV(from, beams);
  for (uint32_t k = 0; k < q->next.caches; k++)
    if (!(caches[k] = cy_build_gather(im->g, caches[k], from, q->row_axis)))
      return false;
  return true;
}

static cy_dim dim_of(cy_importer *im, cy_val v, int i) { return cy_onnx_type(im, v)->dim[i]; }

/* What the decoder gets with a token behind `past` ones. */
static bool step_inputs(const generation *q, const cy_search_state *state, cy_dim past, cy_val *given) {
  cy_importer *im = q->im;
  const cy_search *s = &q->search;
  given[IDS] =
      q->whole ? cy_build_slice_axis(im->g, state->v[CY_SEARCH_SEQUENCES], 1, num(im, 0), cy_dim_addi(im->g, past, 1))
               : state->v[CY_SEARCH_TOKENS];
  given[HIDDEN] = q->hidden;
  given[MASK] = q->mask;
  given[POSITIONS] = 0;
  if (q->model != GPT)
    return true;
  cy_dim new = cy_dim_sub(im->g, past, s->prompt), rest[2] = {s->rows, cy_dim_addi(im->g, new, 1)};
  cy_val mask[2] = {q->mask, cy_onnx_fill(im, cy_build_scalar_int(im->g, CY_I32, 1), rest, 2)};
  given[MASK] = cy_build_concat(im->g, mask, 2, 1);
  given[POSITIONS] = ADD(q->counts, CAST(cy_build_dim_scalar(im->g, new), CY_I32));
  return given[MASK] && given[POSITIONS];
}

static bool fill_iteration(cy_importer *im, void *context, const cy_val *carried, cy_val *results) {
  const generation *q = context;
  const cy_val *past = carried + q->nstates;
  cy_search_state state = {0};
  cy_val *caches = results + 1 + q->nstates, given[CACHES], logits, from, scores;
  for (uint32_t i = 0; i < q->nstates; i++)
    state.v[q->states[i]] = carried[i];
  memcpy(caches, past, sizeof *past * q->next.caches);
  cy_dim length = dim_of(im, past[0], q->length_axis);
  if (!step_inputs(q, &state, length, given) || !call(q, &q->next, given, caches, q->crossed, &logits) ||
      !cy_search_step(&q->search, &state, logits, cy_dim_addi(im->g, length, 1), false, &from, &scores) ||
      !reorder(q, caches, from, false))
    return false;
  results[0] = cy_search_goes_on(&q->search, &state);
  for (uint32_t i = 0; i < q->nstates; i++)
    results[1 + i] = state.v[q->states[i]];
  if (q->wants_scores)
    results[1 + q->nstates + q->next.caches] = scores;
  return results[0] != 0;
}

/* Tokens behind the first one. Out: the state at the end, and scores [iterations, batch, beams, vocab] if they are
 * wanted. */
static bool run_loop(generation *q, cy_search_state *state, const cy_val *caches, cy_val *out_scores) {
  cy_importer *im = q->im;
  const cy_search *s = &q->search;
  for (uint32_t i = 0; i < CY_SEARCH_STATES; i++)
    if (state->v[i])
      q->states[q->nstates++] = i;
  uint32_t count = q->nstates + q->next.caches;
  cy_val *initial = CY_NEW_ARRAY(im->arena, cy_val, count), *out = CY_NEW_ARRAY(im->arena, cy_val, count + 1);
  for (uint32_t i = 0; i < q->nstates; i++)
    initial[i] = state->v[q->states[i]];
  memcpy(initial + q->nstates, caches, sizeof *caches * q->next.caches);
  cy_dim iterations = cy_dim_addi(im->g, cy_dim_sub(im->g, s->length, s->prompt), -1);
  cy_loop loop = {.trips = cy_build_dim_scalar(im->g, iterations),
                  .cond = cy_search_goes_on(s, state),
                  .ncarried = count,
                  .nscans = q->wants_scores,
                  .initial = initial,
                  .fill = fill_iteration,
                  .context = q};
  q->counts = cy_search_rows(&q->search, q->counts);
  q->mask = cy_search_rows(&q->search, q->mask);
  if (!loop.cond || !cy_onnx_loop(im, q->n, &loop, out))
    return false;
  for (uint32_t i = 0; i < q->nstates; i++)
    state->v[q->states[i]] = out[i];
  *out_scores = q->wants_scores ? out[count] : 0;
  return true;
}

/* Scores of all iterations, those that did not take place as zeros. */
static cy_val all_scores(const generation *q, cy_val first, cy_val later) {
  cy_importer *im = q->im;
  const cy_search *s = &q->search;
  cy_dim iterations = cy_dim_sub(im->g, s->length, s->prompt), none = num(im, 0), pads[8] = {none, none, none, none};
  cy_val both[2] = {cy_build_unsqueeze(im->g, first, 0), later};
  cy_val all = cy_build_concat(im->g, both, 2, 0);
  if (!all)
    return 0;
  pads[4] = cy_dim_sub(im->g, iterations, dim_of(im, all, 0));
  pads[5] = pads[6] = pads[7] = none;
  all = cy_build_pad(im->g, all, pads, CY_PAD_CONSTANT, 0);
  return cy_build_reshape(im->g, all, (cy_dim[]){iterations, s->batch, s->beams, s->vocab}, 4);
}

static bool check_vocabulary(generation *q, cy_val logits) {
  cy_importer *im = q->im;
  int64_t size = cy_onnx_int(im, q->n, "vocab_size", -1);
  cy_dim there = dim_of(im, logits, 1);
  q->search.vocab = size > 0 ? num(im, size) : there;
  int64_t width;
  if (size > 0 && cy_dim_is_const(im->g, there, &width) && width < size)
    return cy_build_error(im->g, "attribute 'vocab_size'", "expected at most the decoder's %lld scores, found %lld",
                          (long long)width, (long long)size);
  return true;
}

static bool generate(generation *q) {
  cy_importer *im = q->im;
  cy_search *s = &q->search;
  cy_search_state state;
  cy_val *caches = CY_NEW_ARRAY(im->arena, cy_val, q->next.caches), logits, from, scores[2] = {0}, out[3] = {0};
  cy_dim one = num(im, 1);
  if (!(q->model == GPT ? read_prompt(q, caches, &logits) : read_source(q, caches, &logits)))
    return false;
  s->prompt = dim_of(im, q->ids, 1);
  if (!check_vocabulary(q, logits) || !at_most(q, one, s->beams, "input 'num_beams'") ||
      !at_most(q, s->returned, s->beams, "input 'num_return_sequences'") ||
      !at_most(q, cy_dim_addi(im->g, s->prompt, 1), s->length, "tokens of the prompt, and one more, in 'max_length'"))
    return false;
  if (s->vocab != dim_of(im, logits, 1))
    logits = cy_build_slice_axis(im->g, logits, 1, num(im, 0), s->vocab);
  if (!cy_search_start(s, q->ids, &state) ||
      !cy_search_step(s, &state, cy_search_rows(&q->search, logits), s->prompt, true, &from, &scores[0]) ||
      !reorder(q, caches, from, true) || !run_loop(q, &state, caches, &scores[1]) ||
      !cy_search_finish(s, &state, &out[0], &out[1]))
    return false;
  out[2] = q->wants_scores ? all_scores(q, scores[0], scores[1]) : 0;
  for (uint32_t k = 0; k < q->n->nout && k < 3; k++)
    if (cy_onnx_wants(q->n, k) && !cy_importer_set(im, q->n, k, out[k]))
      return false;
  return true;
}

/* Does the decoder declare that it wants one token at a time? */
static bool wants_one(const decoder *d) {
  const Onnx__TypeProto *t = d->graph->input[d->role[IDS] - 1]->type;
  if (!t || t->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !t->tensor_type || !t->tensor_type->shape ||
      t->tensor_type->shape->n_dim != 2)
    return false;
  const Onnx__TensorShapeProto__Dimension *e = t->tensor_type->shape->dim[1];
  return e->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && e->dim_value == 1;
}

IMPORT(generate) {
  cy_search_kind kind = n->arg == GENERATE_GREEDY   ? CY_SEARCH_GREEDY
                        : n->arg == GENERATE_SAMPLE ? CY_SEARCH_SAMPLE
                                                    : CY_SEARCH_BEAMS;
  generation q = {.im = im, .n = n, .at = &places_of[n->arg], .search = {.im = im, .kind = kind}};
  const cy_type t = *cy_onnx_type(im, X);
  if (!read_attributes(&q))
    return false;
  bool gpt = q.model == GPT, sound = q.model == WHISPER;
  if (t.rank != (sound ? 3 : 2) || (sound ? !cy_dtype_is_float((cy_dtype)t.dtype) : t.dtype != CY_I32))
    return cy_build_error(im->g, "input 'input_ids'", "expected %s, found %s",
                          sound ? "floats [batch, features, frames]" : "i32 [batch, tokens]", cy_type_text(im->g, &t));
  q.row_axis = gpt ? 1 : 0;
  q.length_axis = gpt ? 3 : 2;
  q.ids = X;
  q.wants_scores = kind == CY_SEARCH_BEAMS && cy_onnx_wants(n, 2);
  q.search.batch = t.dim[0];
  q.next.graph = cy_onnx_graph(im, n, "decoder");
  if (!q.next.graph || !describe(&q, "attribute 'decoder'", &q.next) || !read_inputs(&q))
    return false;
  q.whole = !gpt && !wants_one(&q.next);
  q.search.rows = cy_dim_mul(im->g, q.search.batch, q.search.beams);
  return generate(&q);
}
