/* SPDX-License-Identifier: Apache-2.0 */
/* ir_int.h - what the files of ir/ share among themselves: the graph's inside, chunked tables, internal helpers.
 *
 * Nobody outside this folder includes it. A chunked table never moves its items: chunk k holds 256 << k of them, so a
 * pointer to an item stays valid while the table grows, and an id finds its chunk by its highest bit.
 *
 * Use lists. `uses` of a value lists nodes that may read it; replacing walks that list only. Callers may also store into
 * node->in[] themselves: every cy_node_of() marks the node as touched, and the next replacement first compares the inputs
 * of touched nodes with those it has seen (`seen`). So each call pays for itself and nothing scans the model.
 */
#ifndef CY_IR_INT_H
#define CY_IR_INT_H

#include "ir.h"

#include <string.h>

typedef struct cy_chunks {
  void *chunk[24];
  uint32_t count; /* ids 1 .. count are in use, slot 0 exists and stays zero */
  size_t item;
} cy_chunks;

static inline void *cy_chunks_at(const cy_chunks *c, uint32_t id) {
  uint32_t x = id + 256, k = 23 - (uint32_t)__builtin_clz(x);
  return (char *)c->chunk[k] + (size_t)(x - (256u << k)) * c->item;
}

/* A growing set of 32-bit ids found by hash; the owner of the ids compares. */
typedef struct cy_id_table {
  uint32_t *slot; /* 0: free */
  uint32_t size, used;
} cy_id_table;

typedef struct cy_use {
  cy_node node;
  uint32_t next;
} cy_use;

typedef struct cy_value_slot {
  cy_value v;
  uint32_t uses;  /* first cy_use, 0 none */
  uint64_t seed;  /* of the pseudo-random bytes of an elided constant (parse.c); 0: real data */
} cy_value_slot;

typedef struct cy_node_slot {
  cy_node_info n;
  cy_val *seen; /* inputs as the use lists know them */
  uint32_t nseen;
  bool touched;
} cy_node_slot;

typedef struct cy_str_slot {
  const char *text;
  uint32_t len, hash;
} cy_str_slot;

typedef struct cy_text_slot {
  const char *text;
  size_t length;
  uint32_t hash;
} cy_text_slot;

typedef struct cy_content_slot {
  cy_content_info info;
} cy_content_slot;

typedef struct cy_dim_slot {
  const cy_term *terms;
  int nterms;
  uint32_t hash;
} cy_dim_slot;

typedef struct cy_atom_slot {
  cy_atom atom;
  int64_t min, max; /* of composite atoms, found once when made */
  uint32_t hash;
  cy_dim alone; /* the dim that consists of it; 0: not asked for yet */
  cy_dim apart; /* x mod c as x - c * floor(x / c); 0: not asked for yet */
} cy_atom_slot;

typedef struct cy_owned {
  void *handle;
  void (*release)(void *);
  struct cy_owned *next;
} cy_owned;

struct cy_graph {
  cy_arena *arena;
  cy_diag_sink *diag;
  const char *file;
  cy_str name;
  cy_chunks values, nodes, blocks, strs, dims, atoms, syms, uses, texts, contents;
  cy_id_table str_table, dim_table, atom_table, text_table;
  uint32_t *sym_of_str;                                    /* symbol named by a string, indexed by cy_str */
  uint32_t sym_of_str_size;
  cy_port_info *inputs, *outputs;
  uint32_t ninputs, noutputs, inputs_cap, outputs_cap;
  cy_metadata *metadata;
  uint32_t nmetadata, metadata_cap;
  cy_node *touched;
  uint32_t ntouched, touched_cap;
  cy_owned *owned;
  cy_requirement *requirements;
  uint32_t nrequirements, requirements_cap;
  bool recording;
  int64_t longest_kernel; /* see cy_graph_expect_kernel */
  /* building */
  cy_block in_block;
  cy_node before; /* insert before this node, 0: append */
  cy_origin origin;
};

/* intern.c */
void cy_chunks_init(cy_chunks *c, cy_arena *a, size_t item);
uint32_t cy_chunks_add(cy_chunks *c, cy_arena *a); /* next id; its item is zeroed */
uint32_t cy_hash_bytes(uint32_t seed, const void *bytes, size_t n);
/* Slot where an id with this hash is or belongs; same(ctx, id) tells. Call cy_id_table_room() before inserting. */
uint32_t *cy_id_table_find(cy_id_table *t, uint32_t hash, bool (*same)(void *ctx, uint32_t id), void *ctx);
void cy_id_table_room(cy_id_table *t, cy_arena *a, uint32_t (*hash_of)(void *ctx, uint32_t id), void *ctx);

/* dimsyms.c, dimtext.c */
cy_sym cy_sym_find(const cy_graph *g, const char *name, size_t len); /* of any kind; 0 none */
bool cy_name_is_plain(const char *name);               /* [A-Za-z_][A-Za-z0-9_.]* */
void cy_dim_print(const cy_graph *g, FILE *out, cy_dim d);
void cy_text_name(FILE *out, const char *name);        /* bare when plain, otherwise in double quotes */
void cy_text_quote(FILE *out, const char *text, size_t bytes); /* in double quotes, anything else than text escaped */
/* Reads a bare or quoted name; NULL when there is none. The text lives in the arena. */
const char *cy_text_read_name(cy_arena *a, const char *text, const char **out_end);

/* values.c: the text forms of texts ("..", any byte) and of contents */
void cy_text_print(const cy_graph *g, FILE *out, uint32_t text);
bool cy_text_parse(cy_graph *g, const char *text, const char **out_end, uint32_t *out_text);
cy_content cy_content_parse(cy_graph *g, const char *text, const char **out_end); /* 0: there is none */

/* graph.c */
cy_val cy_value_add(cy_graph *g, const cy_type *type);
cy_node_slot *cy_node_slot_of(const cy_graph *g, cy_node n);
void cy_node_note_uses(cy_graph *g, cy_node n); /* brings the use lists up to date with the node's inputs */
void cy_block_append(cy_graph *g, cy_block b, cy_node before, cy_node n);
bool cy_type_static_count(const cy_graph *g, const cy_type *t, uint64_t *out_count); /* false: symbolic or absurd */
uint64_t cy_dtype_bytes(cy_dtype dtype, uint64_t count);
void cy_value_set_data(cy_graph *g, cy_val v, const void *bytes, uint64_t size);

/* build.c */
/* A node as it is: inferred but neither simplified nor folded; 0 after a diagnostic. Not yet in a block. */
cy_node cy_node_create(cy_graph *g, cy_op op, const cy_val *in, uint32_t nin, const cy_attr *attrs, uint32_t nattrs,
                       const cy_type *types, uint32_t nout);
void cy_node_insert(cy_graph *g, cy_node n); /* at the current place */

/* attrs.c */
bool cy_op_input_optional(cy_op op, uint32_t index);
/* The kind key has in op: convolution and pooling pads are plain integers, those of `pad` symbolic. */
cy_attr_kind cy_attr_kind_in(cy_op op, cy_attr_key key);
/* Next name of an op's attribute list: false at the end. */
bool cy_op_attr_next(const char **list, cy_attr_key *out_key, bool *out_optional);

/* scalar.c: conversion where `saturate` (of eight-bit floats) is given */
cy_scalar cy_scalar_convert(cy_dtype from, cy_dtype to, cy_scalar v, bool saturate);

/* fold_small.c: only the symbolic part (sets elems) */
void cy_fold_elems(cy_graph *g, cy_node n);
/* What of v's contents follows from constants and dims behind it, 0 for the other elements; NULL when nothing does. */
const cy_dim *cy_fold_known_part(cy_graph *g, cy_val v);

#endif
