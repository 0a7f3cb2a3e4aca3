/* quantise_int.h - what the files of the quantise passes share: which contractions can be quantised, and their weights.
 */
#ifndef CY_QUANTISE_INT_H
#define CY_QUANTISE_INT_H

#include "pass_int.h"
#include "quantise.h"

/* ---- quantise_layers.c ---- */
bool cy_quant_eligible(const cy_graph *g,
                       const cy_node_info *n); /* f32 contraction of computed values with constant weights */
bool cy_quant_skipped(const cy_quant *q, const cy_graph *g, const cy_node_info *n);
int cy_quant_out_axis(const cy_graph *g, const cy_node_info *n);    /* of the output: channels */
int cy_quant_weight_axis(const cy_graph *g, const cy_node_info *n); /* of the weights: output channels */
void cy_quant_describe(cy_quant *q, cy_graph *g, cy_node id, cy_quant_layer *out);
/* Takes over what was measured of layer l, which lies in block b; why it stays in float, or NULL. */
const char *cy_quant_judged(const cy_quant *q, cy_quant_layer *l, cy_block b);
/* The weights of n, times balance[input channel] unless NULL, as s8 constant and a scale per output channel. */
cy_val cy_quant_weights(cy_pass *p, const cy_node_info *n, const float *balance, cy_val *out_scale);
/* c[channels] shaped to broadcast against n's output. */
cy_val cy_quant_along_channels(cy_graph *g, const cy_node_info *n, cy_val c);
/* A further output of the model, called after `what` and `number`; which one it is. */
uint32_t cy_quant_add_output(cy_graph *g, const char *what, uint32_t number, cy_val v);
/* Adds the two outputs of layer i (cy_quant_layer.output) that tell how y differs from what it puts out; built here. */
void cy_quant_compare(cy_graph *g, cy_quant *q, uint32_t i, cy_val y);

/* ---- quantise_dynamic.c ---- */
void cy_quant_dynamic(cy_pass *p, cy_quant *q, cy_block first); /* blocks from `first` on; adds to q->layer */

#endif
