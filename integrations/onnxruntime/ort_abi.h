/* SPDX-License-Identifier: Apache-2.0 */
/* ort_abi.h - the part of ONNX Runtime's binary interface that the plugin uses.
 *
 * ONNX Runtime hands out tables of function pointers whose order never changes: functions are only appended. A function
 * is therefore known by its number in its table, its type, and the version of the interface that first had it. The rows
 * below say these; ort_calls_read() (plugin.c) takes the pointers out of the tables of the runtime at hand. The structs at
 * the end are those that the plugin fills in, up to the fields of version 23: each begins with the version that it was
 * made for, and ONNX Runtime reads no field behind it.
 *
 * tests/onnxruntime calls every row of a real runtime through a session.
 */
#ifndef CYTOC_ORT_ABI_H
#define CYTOC_ORT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORT_OLDEST = 23 }; /* 1.23: the first that can do without a C++ interface between it and a plugin */

/* Handles of ONNX Runtime. */
typedef struct ort_status ort_status; /* NULL: no error */
typedef struct ort_value ort_value;
typedef struct ort_value_info ort_value_info;
typedef struct ort_type_info ort_type_info;
typedef struct ort_tensor_info ort_tensor_info;
typedef struct ort_graph ort_graph;
typedef struct ort_node ort_node;
typedef struct ort_op_attr ort_op_attr;
typedef struct ort_kernel_context ort_kernel_context;
typedef struct ort_session_options ort_session_options;
typedef struct ort_pairs ort_pairs; /* keys and values */
typedef struct ort_logger ort_logger;
typedef struct ort_hardware ort_hardware;
typedef struct ort_ep_device ort_ep_device;
typedef struct ort_support ort_support; /* what of a graph a provider takes */
typedef struct ort_compute_context ort_compute_context;

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NO_SUCHFILE = 3, ORT_RUNTIME_EXCEPTION = 6, ORT_EP_FAIL = 11 };
enum { ORT_LOG_INFO = 1, ORT_LOG_WARNING = 2 };
enum { ORT_TYPE_TENSOR = 1 }; /* of values; others are none of ours */
enum { ORT_DEVICE_CPU = 0 };
enum {
  ORT_ATTR_INT = 1,
  ORT_ATTR_INTS = 2,
  ORT_ATTR_FLOAT = 3,
  ORT_ATTR_FLOATS = 4,
  ORT_ATTR_STRING = 5,
  ORT_ATTR_STRINGS = 6,
  ORT_ATTR_GRAPH = 7,
  ORT_ATTR_TENSOR = 8
};
enum {
  ORT_MODEL_NOT_FOR_US = 0,
  ORT_MODEL_OPTIMAL = 1,
  ORT_MODEL_UNSUPPORTED = 3
}; /* what is said of a compiled model */

/* Before all tables: how to get them. */
typedef struct ort_api_base {
  const void *(*get_api)(uint32_t version); /* NULL: not that version */
  const char *(*get_version)(void);         /* "1.23.0" */
} ort_api_base;

typedef struct ort_fusion ort_fusion; /* below */
typedef struct ort_factory ort_factory;

/* X(number in the table, since version, function, what it returns, its parameters) */
#define ORT_API_ROWS(X)                                                                                                \
  X(0, 1, CreateStatus, ort_status *, (int32_t code, const char *message))                                             \
  X(2, 1, GetErrorMessage, const char *, (const ort_status *status))                                                   \
  X(51, 1, GetTensorMutableData, ort_status *, (ort_value * value, void **data))                                       \
  X(55, 1, CastTypeInfoToTensorInfo, ort_status *, (const ort_type_info *type, const ort_tensor_info **tensor))        \
  X(56, 1, GetOnnxTypeFromTypeInfo, ort_status *, (const ort_type_info *type, int32_t *kind))                          \
  X(60, 1, GetTensorElementType, ort_status *, (const ort_tensor_info *tensor, int32_t *dtype))                        \
  X(61, 1, GetDimensionsCount, ort_status *, (const ort_tensor_info *tensor, size_t *rank))                            \
  X(62, 1, GetDimensions, ort_status *, (const ort_tensor_info *tensor, int64_t *dims, size_t rank))                   \
  X(63, 1, GetSymbolicDimensions, ort_status *, (const ort_tensor_info *tensor, const char **names, size_t rank))      \
  X(65, 1, GetTensorTypeAndShape, ort_status *, (const ort_value *value, ort_tensor_info **tensor))                    \
  X(90, 1, KernelContext_GetInput, ort_status *,                                                                       \
    (const ort_kernel_context *context, size_t index, const ort_value **value))                                        \
  X(91, 1, KernelContext_GetOutput, ort_status *,                                                                      \
    (ort_kernel_context * context, size_t index, const int64_t *dims, size_t rank, ort_value **value))                 \
  X(93, 1, ReleaseStatus, void, (ort_status * status))                                                                 \
  X(96, 1, ReleaseValue, void, (ort_value * value))                                                                    \
  X(99, 1, ReleaseTensorTypeAndShapeInfo, void, (ort_tensor_info * tensor))                                            \
  X(211, 12, CreateOpAttr, ort_status *,                                                                               \
    (const char *name, const void *data, int bytes, int32_t kind, ort_op_attr **attr))                                 \
  X(212, 12, ReleaseOpAttr, void, (ort_op_attr * attr))                                                                \
  X(247, 14, Logger_LogMessage, ort_status *,                                                                          \
    (const ort_logger *logger, int32_t severity, const char *text, const char *file, int line, const char *function))  \
  X(272, 17, ReadOpAttr, ort_status *,                                                                                 \
    (const ort_op_attr *attr, int32_t kind, void *data, size_t bytes, size_t *needed))                                 \
  X(274, 17, KernelContext_ParallelFor, ort_status *,                                                                  \
    (const ort_kernel_context *context, void (*task)(void *user, size_t i), size_t n, size_t batches, void *user))     \
  X(289, 22, GetValueInfoName, ort_status *, (const ort_value_info *value, const char **name))                         \
  X(290, 22, GetValueInfoTypeInfo, ort_status *, (const ort_value_info *value, const ort_type_info **type))            \
  X(291, 22, GetModelEditorApi, const void *, (void))                                                                  \
  X(298, 22, GetKeyValuePairs, void,                                                                                   \
    (const ort_pairs *pairs, const char *const **keys, const char *const **values, size_t *n))                         \
  X(300, 22, ReleaseKeyValuePairs, void, (ort_pairs * pairs))                                                          \
  X(307, 22, HardwareDevice_Type, int32_t, (const ort_hardware *device))                                               \
  X(317, 22, GetEpApi, const void *, (void))                                                                           \
  X(318, 23, GetTensorSizeInBytes, ort_status *, (const ort_value *value, size_t *bytes))                              \
  X(326, 23, ValueInfo_GetInitializerValue, ort_status *, (const ort_value_info *value, const ort_value **tensor))     \
  X(331, 23, ValueInfo_IsConstantInitializer, ort_status *, (const ort_value_info *value, bool *answer))               \
  X(333, 23, Graph_GetName, ort_status *, (const ort_graph *graph, const char **name))                                 \
  X(334, 23, Graph_GetModelPath, ort_status *, (const ort_graph *graph, const char **path))                            \
  X(336, 23, Graph_GetNumOperatorSets, ort_status *, (const ort_graph *graph, size_t *n))                              \
  X(337, 23, Graph_GetOperatorSets, ort_status *,                                                                      \
    (const ort_graph *graph, const char **domains, int64_t *versions, size_t n))                                       \
  X(338, 23, Graph_GetNumInputs, ort_status *, (const ort_graph *graph, size_t *n))                                    \
  X(339, 23, Graph_GetInputs, ort_status *, (const ort_graph *graph, const ort_value_info **inputs, size_t n))         \
  X(340, 23, Graph_GetNumOutputs, ort_status *, (const ort_graph *graph, size_t *n))                                   \
  X(341, 23, Graph_GetOutputs, ort_status *, (const ort_graph *graph, const ort_value_info **outputs, size_t n))       \
  X(342, 23, Graph_GetNumInitializers, ort_status *, (const ort_graph *graph, size_t *n))                              \
  X(343, 23, Graph_GetInitializers, ort_status *, (const ort_graph *graph, const ort_value_info **values, size_t n))   \
  X(344, 23, Graph_GetNumNodes, ort_status *, (const ort_graph *graph, size_t *n))                                     \
  X(345, 23, Graph_GetNodes, ort_status *, (const ort_graph *graph, const ort_node **nodes, size_t n))                 \
  X(346, 23, Graph_GetParentNode, ort_status *, (const ort_graph *graph, const ort_node **node))                       \
  X(349, 23, Node_GetName, ort_status *, (const ort_node *node, const char **name))                                    \
  X(350, 23, Node_GetOperatorType, ort_status *, (const ort_node *node, const char **op))                              \
  X(351, 23, Node_GetDomain, ort_status *, (const ort_node *node, const char **domain))                                \
  X(353, 23, Node_GetNumInputs, ort_status *, (const ort_node *node, size_t *n))                                       \
  X(354, 23, Node_GetInputs, ort_status *, (const ort_node *node, const ort_value_info **inputs, size_t n))            \
  X(355, 23, Node_GetNumOutputs, ort_status *, (const ort_node *node, size_t *n))                                      \
  X(356, 23, Node_GetOutputs, ort_status *, (const ort_node *node, const ort_value_info **outputs, size_t n))          \
  X(357, 23, Node_GetNumImplicitInputs, ort_status *, (const ort_node *node, size_t *n))                               \
  X(358, 23, Node_GetImplicitInputs, ort_status *, (const ort_node *node, const ort_value_info **inputs, size_t n))    \
  X(359, 23, Node_GetNumAttributes, ort_status *, (const ort_node *node, size_t *n))                                   \
  X(360, 23, Node_GetAttributes, ort_status *, (const ort_node *node, const ort_op_attr **attrs, size_t n))            \
  X(362, 23, OpAttr_GetTensorAttributeAsOrtValue, ort_status *, (const ort_op_attr *attr, ort_value **tensor))         \
  X(363, 23, OpAttr_GetType, ort_status *, (const ort_op_attr *attr, int32_t *kind))                                   \
  X(364, 23, OpAttr_GetName, ort_status *, (const ort_op_attr *attr, const char **name))                               \
  X(365, 23, Node_GetNumSubgraphs, ort_status *, (const ort_node *node, size_t *n))                                    \
  X(366, 23, Node_GetSubgraphs, ort_status *,                                                                          \
    (const ort_node *node, const ort_graph **graphs, size_t n, const char **attributes))                               \
  X(378, 23, GetTensorData, ort_status *, (const ort_value *value, const void **data))                                 \
  X(379, 23, GetSessionOptionsConfigEntries, ort_status *, (const ort_session_options *options, ort_pairs **entries))  \
  X(390, 24, TensorTypeAndShape_HasShape, bool, (const ort_tensor_info *tensor))                                       \
  X(414, 24, GetTensorElementTypeAndShapeDataReference, ort_status *,                                                  \
    (const ort_value *value, int32_t *dtype, const int64_t **dims, size_t *rank))

/* The table that GetModelEditorApi() answers. */
#define ORT_EDITOR_ROWS(X)                                                                                             \
  X(6, 22, CreateNode, ort_status *,                                                                                   \
    (const char *op, const char *domain, const char *name, const char *const *inputs, size_t n_inputs,                 \
     const char *const *outputs, size_t n_outputs, ort_op_attr **attrs, size_t n_attrs, ort_node **node))

/* The table that GetEpApi() answers. */
#define ORT_EP_ROWS(X)                                                                                                 \
  X(0, 22, CreateEpDevice, ort_status *,                                                                               \
    (ort_factory * factory, const ort_hardware *device, const ort_pairs *metadata, const ort_pairs *options,           \
     ort_ep_device **ep_device))                                                                                       \
  X(2, 23, EpGraphSupportInfo_AddNodesToFuse, ort_status *,                                                            \
    (ort_support * support, const ort_node *const *nodes, size_t n, const ort_fusion *options))

/* All of them, under their names. NULL: this runtime is older than the function. */
typedef struct ort_calls {
#define X(slot, since, name, result, parameters) result(*name) parameters;
  ORT_API_ROWS(X) ORT_EDITOR_ROWS(X) ORT_EP_ROWS(X)
#undef X
} ort_calls;

/* ---- what the plugin fills in ---- */

struct ort_fusion {
  uint32_t version;
  bool drop_constants; /* constant initializers are not passed to the fused node, and may be released */
};

/* How a fused node runs. */
typedef struct ort_compute ort_compute;
struct ort_compute {
  uint32_t version;
  ort_status *(*create_state)(ort_compute *self, ort_compute_context *context, void **state);
  ort_status *(*compute)(ort_compute *self, void *state, ort_kernel_context *context);
  void (*release_state)(ort_compute *self, void *state);
};

/* The provider of a session. NULL: what it has no answer to. */
typedef struct ort_ep ort_ep;
struct ort_ep {
  uint32_t version;
  const char *(*get_name)(const ort_ep *self);
  ort_status *(*get_capability)(ort_ep *self, const ort_graph *graph, ort_support *support);
  ort_status *(*compile)(ort_ep *self, const ort_graph **graphs, const ort_node **fused, size_t n,
                         ort_compute **computes, ort_node **context_nodes);
  void (*release_computes)(ort_ep *self, ort_compute **computes, size_t n);
  void *layout[2];
  void *set_dynamic_options;
  void *on_run[2];
  void *create_allocator;
  void *create_stream;
  const char *(*get_compatibility)(ort_ep *self, const ort_graph *graph);
};

/* Who makes providers. */
struct ort_factory {
  uint32_t version;
  const char *(*get_name)(const ort_factory *self);
  const char *(*get_vendor)(const ort_factory *self);
  ort_status *(*get_devices)(ort_factory *self, const ort_hardware *const *devices, size_t n, ort_ep_device **ours,
                             size_t room, size_t *n_ours);
  ort_status *(*create_ep)(ort_factory *self, const ort_hardware *const *devices, const ort_pairs *const *metadata,
                           size_t n, const ort_session_options *options, const ort_logger *logger, ort_ep **ep);
  void (*release_ep)(ort_factory *self, ort_ep *ep);
  uint32_t (*get_vendor_id)(const ort_factory *self);
  const char *(*get_version)(const ort_factory *self);
  ort_status *(*check_compatibility)(ort_factory *self, const ort_hardware *const *devices, size_t n, const char *info,
                                     int32_t *answer);
  ort_status *(*create_allocator)(ort_factory *self, const void *memory, const ort_pairs *options, void **allocator);
  void (*release_allocator)(ort_factory *self, void *allocator);
  ort_status *(*create_transfer)(ort_factory *self, void **transfer);
  bool (*is_stream_aware)(const ort_factory *self);
  ort_status *(*create_stream)(ort_factory *self, const void *memory, const ort_pairs *options, void **stream);
};

#endif
