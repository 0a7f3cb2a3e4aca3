/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cudnn_numbers.h - those numbers of cuDNN 9's backend interface (cudnn_graph.h) that are used here. */
#ifndef CUDNN_NUMBERS_H
#define CUDNN_NUMBERS_H

enum { /* cudnnBackendDescriptorType_t */
       CUDNN_POINTWISE = 0,
       CUDNN_CONVOLUTION = 1,
       CUDNN_ENGINE = 2,
       CUDNN_ENGINE_CONFIG = 3,
       CUDNN_HEURISTICS = 4,
       CUDNN_PLAN = 5,
       CUDNN_OP_CONVOLUTION = 10,
       CUDNN_OP_POINTWISE = 13,
       CUDNN_GRAPH = 15,
       CUDNN_VARIANT_PACK = 16,
       CUDNN_TENSOR = 17,
       CUDNN_MATMUL = 18,
       CUDNN_OP_MATMUL = 19,
       CUDNN_REDUCTION = 21,
       CUDNN_OP_REDUCTION = 22,
       CUDNN_DEVICE = 38
};
enum { /* cudnnBackendAttributeType_t */
       CUDNN_T_HANDLE = 0,
       CUDNN_T_DATA_TYPE = 1,
       CUDNN_T_BOOLEAN = 2,
       CUDNN_T_INT64 = 3,
       CUDNN_T_FLOAT = 4,
       CUDNN_T_POINTER = 6,
       CUDNN_T_CONVOLUTION_MODE = 7,
       CUDNN_T_HEURISTICS_MODE = 8,
       CUDNN_T_NAN = 10,
       CUDNN_T_NOTE = 11,
       CUDNN_T_POINTWISE_MODE = 14,
       CUDNN_T_DESCRIPTOR = 15,
       CUDNN_T_REDUCTION = 18,
       CUDNN_T_BEHAVIOUR = 19,
       CUDNN_T_CHAR = 24
};
enum { /* cudnnBackendAttributeName_t */
       CUDNN_POINTWISE_MODE = 0,
       CUDNN_POINTWISE_PRECISION = 1,
       CUDNN_POINTWISE_NAN = 2,
       CUDNN_POINTWISE_AXIS = 9,
       CUDNN_CONV_PRECISION = 100,
       CUDNN_CONV_MODE = 101,
       CUDNN_CONV_DILATIONS = 102,
       CUDNN_CONV_STRIDES = 103,
       CUDNN_CONV_POST_PADS = 104,
       CUDNN_CONV_PRE_PADS = 105,
       CUDNN_CONV_RANK = 106,
       CUDNN_HEURISTICS_MODE = 200,
       CUDNN_HEURISTICS_GRAPH = 201,
       CUDNN_HEURISTICS_RESULTS = 202,
       CUDNN_HEURISTICS_DEVICE = 204,
       CUDNN_CONFIG_ENGINE = 300,
       CUDNN_PLAN_HANDLE = 400,
       CUDNN_PLAN_CONFIG = 401,
       CUDNN_PLAN_WORKSPACE = 402,
       CUDNN_OP_CONV_ALPHA = 700,
       CUDNN_OP_CONV_BETA = 701,
       CUDNN_OP_CONV_CONV = 702,
       CUDNN_OP_CONV_W = 703,
       CUDNN_OP_CONV_X = 704,
       CUDNN_OP_CONV_Y = 705,
       CUDNN_OP_POINTWISE_HOW = 750,
       CUDNN_OP_POINTWISE_X = 751,
       CUDNN_OP_POINTWISE_B = 752,
       CUDNN_OP_POINTWISE_Y = 753,
       CUDNN_OP_POINTWISE_T = 758,
       CUDNN_GRAPH_HANDLE = 800,
       CUDNN_GRAPH_OPS = 801,
       CUDNN_TENSOR_ALIGNMENT = 900,
       CUDNN_TENSOR_TYPE = 901,
       CUDNN_TENSOR_DIMS = 902,
       CUDNN_TENSOR_STRIDES = 903,
       CUDNN_TENSOR_ID = 906,
       CUDNN_TENSOR_VIRTUAL = 907,
       CUDNN_TENSOR_BY_VALUE = 908,
       CUDNN_PACK_IDS = 1000,
       CUDNN_PACK_POINTERS = 1001,
       CUDNN_PACK_WORKSPACE = 1003,
       CUDNN_ENGINE_NOTES = 1303,
       CUDNN_ENGINE_BEHAVIOUR = 1305,
       CUDNN_MATMUL_PRECISION = 1500,
       CUDNN_OP_MATMUL_A = 1520,
       CUDNN_OP_MATMUL_B = 1521,
       CUDNN_OP_MATMUL_C = 1522,
       CUDNN_OP_MATMUL_HOW = 1523,
       CUDNN_REDUCTION_OPERATOR = 1600,
       CUDNN_REDUCTION_PRECISION = 1601,
       CUDNN_OP_REDUCTION_X = 1610,
       CUDNN_OP_REDUCTION_Y = 1611,
       CUDNN_OP_REDUCTION_HOW = 1612,
       CUDNN_DEVICE_JSON = 2702
};
enum { /* cudnnDataType_t */
       CUDNN_FLOAT = 0,
       CUDNN_HALF = 2,
       CUDNN_INT32 = 4,
       CUDNN_BFLOAT16 = 9,
       CUDNN_BOOLEAN = 11
};
enum { /* cudnnPointwiseMode_t */
       CUDNN_ADD = 0,
       CUDNN_MUL = 1,
       CUDNN_DIV = 6,
       CUDNN_SUB = 9,
       CUDNN_EXP = 13,
       CUDNN_LOG = 15,
       CUDNN_RELU = 100,
       CUDNN_GE = 303,
       CUDNN_GEN_INDEX = 501,
       CUDNN_SELECT = 601
};
enum { CUDNN_REDUCE_ADD = 0, CUDNN_REDUCE_MAX = 3 }; /* cudnnReduceTensorOp_t */
enum { CUDNN_CROSS_CORRELATION = 1, CUDNN_PROPAGATE_NAN = 1 };
enum { CUDNN_MODE_FALLBACK = 2, CUDNN_MODE_A = 3 }; /* cudnnBackendHeurMode_t */
enum { /* cudnnBackendNumericalNote_t */
       CUDNN_NOTE_TENSOR_CORE = 0,
       CUDNN_NOTE_DOWN_CONVERT = 1,
       CUDNN_NOTE_REDUCED = 2,
       CUDNN_NOTE_NONDETERMINISTIC = 4
};
enum { CUDNN_BEHAVIOUR_COMPILES = 0 }; /* cudnnBackendBehaviorNote_t */

#endif
