/* SPDX-License-Identifier: Apache-2.0 */
/* qdq.h - `cytoc quantize`: a float model in, the same in ONNX's QuantizeLinear/DequantizeLinear form out. */
#ifndef QDQ_H
#define QDQ_H

#include "tools/calibrate/cytoc_quantise.h"
#include "frontend/frontend.h"

typedef struct qdq_job {
  const char *input, *output;
  const char *skip;         /* as cy_quant.skip */
  cy_import_options import; /* shapes to calibrate at */
  cytoc_quantise calibrate; /* samples, method and the like; graph, ctx and in_mode are set here */
  bool explain;             /* prints tables of the layers and of the whole */
} qdq_job;

/* 0, or -1 after a diagnostic; the output is written as a whole or not at all. */
int qdq_write(const qdq_job *job);

#endif
