/* SPDX-License-Identifier: Apache-2.0 */
/* axes.h - which axes of the model's inputs have one symbol; see axes.c. */
#ifndef CY_FRONTEND_AXES_H
#define CY_FRONTEND_AXES_H

#include "frontend/frontend.h"
#include "onnx.pb-c.h"

const Onnx__TensorShapeProto *cy_import_shape_of(const Onnx__ValueInfoProto *v); /* NULL: no tensor, or not declared */
/* The symbol that a dim stands for, or NULL. What exporters write for "unknown" ("?", "-1", "None") names nothing: two such
 * dims need not be equal. */
const char *cy_import_dim_name(const Onnx__TensorShapeProto__Dimension *d);

typedef struct cy_axes cy_axes;

cy_axes *cy_axes_create(cy_arena *arena, const Onnx__GraphProto *graph, const cy_import_options *o);
/* The symbol of an axis that the model gives the name `name`. */
const char *cy_axes_symbol(const cy_axes *a, const char *input, int axis, const char *name);
/* Gives apart what might be: false: there is nothing. */
bool cy_axes_part(cy_axes *a);
/* Brings together again what g, imported with the axes apart, needs to be equal; false: that was everything. */
bool cy_axes_join(cy_axes *a, const cy_graph *g);

#endif
