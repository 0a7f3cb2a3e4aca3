/* SPDX-License-Identifier: Apache-2.0 */
/* work.c - what all parts of a compilation ask and tell: kinds of outputs, objects to link, progress, causes of errors.
 *
 * In:  the state of cy_codegen() (work.h). Out: answers from the table of kinds, and lines in that state.
 */
#define _GNU_SOURCE
#include "codegen/work.h"

#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  cy_emit_class class;
  cy_code_kind code;
} kinds[] = {
#define KIND(kind, name, class, code) {name, CY_EMIT_CLASS_##class, CY_CODE_##code},
    CY_EMIT_TABLE(KIND)
#undef KIND
};

static const struct {
  const char *ending;
  cy_emit_kind kind;
} other_endings[] = {{"s", CY_EMIT_ASM}, {"lib", CY_EMIT_A}, {"obj", CY_EMIT_O}};

cy_emit_kind cy_emit_kind_of(const char *path) {
  const char *dot = strrchr(cy_path_base(path), '.');
  for (int i = 0; dot && i < CY_EMIT_KINDS; i++)
    if (strcmp(dot + 1, kinds[i].name) == 0)
      return (cy_emit_kind)i;
  for (size_t i = 0; dot && i < sizeof other_endings / sizeof *other_endings; i++)
    if (strcmp(dot + 1, other_endings[i].ending) == 0)
      return other_endings[i].kind;
  return CY_EMIT_KINDS;
}

cy_emit_kind cy_emit_kind_shared(const cy_machine *m) { return m->arch->format == CY_COFF ? CY_EMIT_DLL : CY_EMIT_SO; }

const char *cy_emit_kind_name(cy_emit_kind kind) { return kinds[kind].name; }

cy_emit_class cy_emit_class_of(const cy_work *b) { return kinds[b->o->emit].class; }

cy_code_kind cy_emit_code_of(const cy_work *b) { return kinds[b->o->emit].code; }

cy_cause cy_code_cause(const char *error) {
  return strncmp(error, CY_CANNOT_WRITE, strlen(CY_CANNOT_WRITE)) == 0 ? CY_CAUSE_FILE : CY_CAUSE_MODEL;
}

void cy_work_progress(cy_work *b, const char *stage, int64_t done, int64_t total) {
  if (b->o->progress)
    b->o->progress(b->o->progress_ctx, stage, done, total);
}

void cy_work_add_object(cy_work *b, const char *path) {
  b->objects = realloc(b->objects, (b->nobjects + 1) * sizeof *b->objects);
  char *copy = strdup(path);
  if (!b->objects || !copy)
    cy_no_memory();
  b->objects[b->nobjects++] = copy;
}
