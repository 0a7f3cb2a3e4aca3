/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_problem.h - a kernel as it is described to a library of NVIDIA that may stand in for it.
 *
 * In:  of the compiler, which fills a cyrt_cuda_problem for each such launch (codegen/cuda/offers.c).
 * Out: to the runtime, which asks the libraries (cuda_choose.c). Neither knows of the other but through this.
 */
#ifndef CYRT_CUDA_PROBLEM_H
#define CYRT_CUDA_PROBLEM_H

#include <stdint.h>

/* What cuDNN or cuBLASLt may compute in place of a kernel: an array of int64_t, which generated code fills in this order. */
typedef struct cyrt_cuda_tensor { /* counted in elements; neighbours: channels, columns of a head, keys of a bias */
  int64_t slot;                   /* the kernel's slot with its pointer; -1: there is none */
  int64_t dtype, offset;          /* cyto_dtype; the first element */
  /* convolution: image, spatial..; product: batch, m or k, k or n; attention: batch, head, row (key), neighbours; 0: all
   * the same */
  int64_t stride[4];
} cyrt_cuda_tensor;
enum { CYRT_PROBLEM_TENSORS = 6, CYRT_PROBLEM_BIAS = 2, CYRT_PROBLEM_RESIDUAL, CYRT_PROBLEM_OUT = 5 };
enum { CYRT_CONV_X, CYRT_CONV_W, CYRT_CONV_Y = CYRT_PROBLEM_OUT };
enum { CYRT_MATMUL_A, CYRT_MATMUL_B };
enum { CYRT_ATTENTION_Q, CYRT_ATTENTION_K, CYRT_ATTENTION_V, CYRT_ATTENTION_BIAS, CYRT_ATTENTION_MASK };

/* What becomes of the sums of a convolution or product, in f32: activation(alpha * sum + bias + residual), or with
 * CYRT_PROBLEM_AFTER activation(alpha * sum + bias) + residual. runtime/cuda/activations.def has the activations. */
enum {
#define ACTIVATION(name, ...) CYRT_ACTIVATION_##name,
#include "runtime/cuda/activations.def"
#undef ACTIVATION
  CYRT_ACTIVATIONS
};
typedef struct cyrt_cuda_epilogue {
  int64_t activation, alpha, p, q; /* alpha, p, q: the bits of an f32; p, q: parameters of the activation */
} cyrt_cuda_epilogue;

/* y of x and w, sums in f32. Weights are dense: [channels_out][kernel..][channels_in / group]. Those of a transposed one are
 * constant: [group][channels_out / group] rows of stride[0] elements as cyrt_residue_place() has them; where that is 0 as the
 * model has them, [channels_in][channels_out / group][kernel..]. */
typedef struct cyrt_cuda_conv {
  int64_t nspatial, group; /* nspatial: 2 or 3 */
  int64_t images, channels_in, channels_out;
  int64_t in[3], out[3], pad[3], kernel[3], stride[3], dilation[3]; /* pad: in front; behind follows from out */
} cyrt_cuda_conv;

/* out[batch, m, n] = sum_k a[batch, m, k] * b[batch, k, n], sums in f32. Columns of out and of the residual are neighbours. */
typedef struct cyrt_cuda_matmul {
  int64_t batch, m, n, k;
} cyrt_cuda_matmul;

/* softmax(scale * q k^T + bias) v, in f32; a score is `fill` where the mask is false. Row m sees keys up to m + past where
 * it is causal, and with a window keys from m + past - window + 1 on. */
typedef struct cyrt_cuda_attention {
  int64_t batch, heads, key_heads;   /* heads / key_heads neighbouring heads of q share one of k and v */
  int64_t rows, keys, size, columns; /* of a head: of q and k, of v */
  int64_t past, window;              /* window: 0: there is none */
  int64_t scale, fill;               /* the bits of an f32 */
} cyrt_cuda_attention;

typedef struct cyrt_cuda_problem {
  int64_t kind, flags;
  cyrt_cuda_tensor tensor[CYRT_PROBLEM_TENSORS];
  cyrt_cuda_epilogue epilogue; /* of convolutions and products */
  union {
    cyrt_cuda_conv conv;
    cyrt_cuda_matmul matmul;
    cyrt_cuda_attention attention; /* what is left is 0 */
  };
} cyrt_cuda_problem;
enum {
  CYRT_PROBLEM_CONV,
  CYRT_PROBLEM_CONV_TRANSPOSE,
  CYRT_PROBLEM_MATMUL,
  CYRT_PROBLEM_ATTENTION,
  CYRT_PROBLEM_KINDS
};
enum {
  CYRT_PROBLEM_EXACT = 1, /* factors of f32 may not be rounded */
  CYRT_PROBLEM_AFTER = 2, /* the residual is added behind the activation */
  CYRT_ATTENTION_CAUSAL = 4
};

/* Where the channels of a tap begin in such a row. Taps of the same residue, whose places leave the same remainder by the
 * strides, lie together, and each residue begins at a multiple of `chunk`. depth: channels of a tap. */
static inline int64_t cyrt_residue_slack(int64_t depth, int64_t chunk) { return depth % chunk ? chunk : 0; }
static inline int64_t cyrt_residue_place(int64_t nspatial, const int64_t *kernel, const int64_t *stride,
                                       const int64_t *dilation, int64_t tap, int64_t depth, int64_t chunk) {
  int64_t before = 0, residue = 0, number = 0, all = 1;
  for (int64_t i = 0; i < nspatial; i++) {
    int64_t unit = 1, s = stride[i];
    for (int64_t j = i + 1; j < nspatial; j++)
      unit *= kernel[j];
    int64_t t = tap / unit % kernel[i], r = t * dilation[i] % s, smaller = 0, same = 0, earlier = 0;
    for (int64_t u = 0; u < kernel[i]; u++) {
      int64_t other = u * dilation[i] % s;
      smaller += other < r;
      same += other == r;
      earlier += other == r && u < t;
    }
    before = before * kernel[i] + all * smaller;
    all *= same;
    residue = residue * s + r;
    number = number * same + earlier;
  }
  return (before * depth + chunk - 1) / chunk * chunk + residue * cyrt_residue_slack(depth, chunk) + number * depth;
}

#endif
