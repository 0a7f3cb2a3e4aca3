/* SPDX-License-Identifier: Apache-2.0 */
/* triton_abi.h - the part of Triton Inference Server's binary interface that the backend uses.
 *
 * Triton opens a backend, which finds these functions in the server that opened it, by their names: nothing is linked. What
 * is declared here is in every server whose backend interface is 1.x, x being TRITON_OLDEST_MINOR or more. Every function
 * gives NULL, or an error that the caller deletes, unless it is handed on.
 *
 * tests/triton runs the backend in a real server; tests/triton/test_config.py sees to it that no other function is wanted.
 */
#ifndef CYTOC_TRITON_ABI_H
#define CYTOC_TRITON_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRITON_MAJOR = 1, TRITON_OLDEST_MINOR = 16 }; /* 23.10: the first that tells of cancelled requests */

/* Handles of the server. */
typedef struct triton_error triton_error;
typedef struct triton_message triton_message;     /* JSON */
typedef struct triton_parameter triton_parameter; /* a name and a value */
typedef struct triton_family triton_family;       /* of metrics */
typedef struct triton_metric triton_metric;
typedef struct triton_backend triton_backend;
typedef struct triton_model triton_model;
typedef struct triton_instance triton_instance;
typedef struct triton_request triton_request;
typedef struct triton_input triton_input;
typedef struct triton_response triton_response;
typedef struct triton_output triton_output;
typedef struct triton_state triton_state;
typedef struct triton_attributes triton_attributes; /* of a backend */

enum triton_code {
  TRITON_INTERNAL = 1,
  TRITON_NOT_FOUND = 2,
  TRITON_INVALID_ARG = 3,
  TRITON_UNAVAILABLE = 4,
  TRITON_UNSUPPORTED = 5,
  TRITON_CANCELLED = 7
};
enum triton_level { TRITON_LOG_INFO = 0, TRITON_LOG_WARN = 1 };
enum triton_memory { TRITON_CPU = 0, TRITON_CPU_PINNED = 1, TRITON_GPU = 2 };
enum triton_kind { TRITON_KIND_CPU = 1, TRITON_KIND_GPU = 2 };
enum { TRITON_PARAMETER_STRING = 0 };
enum { TRITON_COUNTER = 0 };        /* kinds of metrics */
enum { TRITON_SEQUENCE_START = 1 }; /* flags of a request */
enum { TRITON_RELEASE_ALL = 1 };    /* .. of its release */
enum { TRITON_RESPONSE_FINAL = 1 }; /* .. of a response */

/* X(cyto_dtype, number of the type, its name in a model's configuration) */
#define TRITON_TYPE_ROWS(X)                                                                                            \
  X(CYTO_BOOL, 1, "TYPE_BOOL")                                                                                         \
  X(CYTO_U8, 2, "TYPE_UINT8")                                                                                          \
  X(CYTO_U16, 3, "TYPE_UINT16")                                                                                        \
  X(CYTO_U32, 4, "TYPE_UINT32")                                                                                        \
  X(CYTO_U64, 5, "TYPE_UINT64")                                                                                        \
  X(CYTO_I8, 6, "TYPE_INT8")                                                                                           \
  X(CYTO_I16, 7, "TYPE_INT16")                                                                                         \
  X(CYTO_I32, 8, "TYPE_INT32")                                                                                         \
  X(CYTO_I64, 9, "TYPE_INT64")                                                                                         \
  X(CYTO_F16, 10, "TYPE_FP16")                                                                                         \
  X(CYTO_F32, 11, "TYPE_FP32")                                                                                         \
  X(CYTO_F64, 12, "TYPE_FP64")                                                                                         \
  X(CYTO_STRING, 13, "TYPE_STRING")                                                                                    \
  X(CYTO_BF16, 14, "TYPE_BF16")

/* ---- what the server has; the names are its own ---- */

/* X(function, what it returns, its parameters) */
#define TRITON_ROWS(X)                                                                                                 \
  X(TRITONSERVER_ErrorNew, triton_error *, (int code, const char *text))                                               \
  X(TRITONSERVER_ErrorDelete, void, (triton_error * error))                                                            \
  X(TRITONSERVER_ErrorCode, int, (triton_error * error))                                                               \
  X(TRITONSERVER_ErrorMessage, const char *, (triton_error * error))                                                   \
  X(TRITONSERVER_LogMessage, triton_error *, (int level, const char *file, const int line, const char *text))          \
  X(TRITONSERVER_MessageNewFromSerializedJson, triton_error *,                                                         \
    (triton_message * *message, const char *text, size_t bytes))                                                       \
  X(TRITONSERVER_MessageSerializeToJson, triton_error *, (triton_message * message, const char **text, size_t *bytes)) \
  X(TRITONSERVER_MessageDelete, triton_error *, (triton_message * message))                                            \
  X(TRITONSERVER_ParameterNew, triton_parameter *, (const char *name, int type, const void *value))                    \
  X(TRITONSERVER_ParameterDelete, void, (triton_parameter * parameter))                                                \
  X(TRITONSERVER_MetricFamilyNew, triton_error *,                                                                      \
    (triton_family * *family, int kind, const char *name, const char *description))                                    \
  X(TRITONSERVER_MetricFamilyDelete, triton_error *, (triton_family * family))                                         \
  X(TRITONSERVER_MetricNew, triton_error *,                                                                            \
    (triton_metric * *metric, triton_family * family, const triton_parameter **labels, const uint64_t n))              \
  X(TRITONSERVER_MetricDelete, triton_error *, (triton_metric * metric))                                               \
  X(TRITONSERVER_MetricIncrement, triton_error *, (triton_metric * metric, double by))                                 \
  X(TRITONBACKEND_ApiVersion, triton_error *, (uint32_t * major, uint32_t * minor))                                    \
  X(TRITONBACKEND_BackendConfig, triton_error *, (triton_backend * backend, triton_message * *config))                 \
  X(TRITONBACKEND_BackendState, triton_error *, (triton_backend * backend, void **state))                              \
  X(TRITONBACKEND_BackendSetState, triton_error *, (triton_backend * backend, void *state))                            \
  X(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup, triton_error *,                                           \
    (triton_attributes * attributes, int kind, const uint64_t count, const uint64_t *devices, const uint64_t n))       \
  X(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading, triton_error *,                                     \
    (triton_attributes * attributes, bool enabled))                                                                    \
  X(TRITONBACKEND_ModelName, triton_error *, (triton_model * model, const char **name))                                \
  X(TRITONBACKEND_ModelVersion, triton_error *, (triton_model * model, uint64_t * version))                            \
  X(TRITONBACKEND_ModelRepository, triton_error *, (triton_model * model, int *kind, const char **folder))             \
  X(TRITONBACKEND_ModelConfig, triton_error *,                                                                         \
    (triton_model * model, const uint32_t config_version, triton_message **config))                                    \
  X(TRITONBACKEND_ModelAutoCompleteConfig, triton_error *, (triton_model * model, bool *wanted))                       \
  X(TRITONBACKEND_ModelSetConfig, triton_error *,                                                                      \
    (triton_model * model, const uint32_t config_version, triton_message *config))                                     \
  X(TRITONBACKEND_ModelBackend, triton_error *, (triton_model * model, triton_backend * *backend))                     \
  X(TRITONBACKEND_ModelState, triton_error *, (triton_model * model, void **state))                                    \
  X(TRITONBACKEND_ModelSetState, triton_error *, (triton_model * model, void *state))                                  \
  X(TRITONBACKEND_ModelInstanceName, triton_error *, (triton_instance * instance, const char **name))                  \
  X(TRITONBACKEND_ModelInstanceKind, triton_error *, (triton_instance * instance, int *kind))                          \
  X(TRITONBACKEND_ModelInstanceDeviceId, triton_error *, (triton_instance * instance, int32_t * device))               \
  X(TRITONBACKEND_ModelInstanceModel, triton_error *, (triton_instance * instance, triton_model * *model))             \
  X(TRITONBACKEND_ModelInstanceState, triton_error *, (triton_instance * instance, void **state))                      \
  X(TRITONBACKEND_ModelInstanceSetState, triton_error *, (triton_instance * instance, void *state))                    \
  X(TRITONBACKEND_RequestInput, triton_error *, (triton_request * request, const char *name, triton_input **input))    \
  X(TRITONBACKEND_RequestFlags, triton_error *, (triton_request * request, uint32_t * flags))                          \
  X(TRITONBACKEND_RequestIsCancelled, triton_error *, (triton_request * request, bool *answer))                        \
  X(TRITONBACKEND_RequestOutputCount, triton_error *, (triton_request * request, uint32_t * n))                        \
  X(TRITONBACKEND_RequestOutputName, triton_error *,                                                                   \
    (triton_request * request, const uint32_t index, const char **name))                                               \
  X(TRITONBACKEND_RequestRelease, triton_error *, (triton_request * request, uint32_t flags))                          \
  X(TRITONBACKEND_InputProperties, triton_error *,                                                                     \
    (triton_input * input, const char **name, int *type, const int64_t **dims, uint32_t *rank, uint64_t *bytes,        \
     uint32_t *buffers))                                                                                               \
  X(TRITONBACKEND_InputBuffer, triton_error *,                                                                         \
    (triton_input * input, const uint32_t index, const void **data, uint64_t *bytes, int *memory, int64_t *device))    \
  X(TRITONBACKEND_ResponseNew, triton_error *, (triton_response * *response, triton_request * request))                \
  X(TRITONBACKEND_ResponseOutput, triton_error *,                                                                      \
    (triton_response * response, triton_output * *output, const char *name, const int type, const int64_t *dims,       \
     const uint32_t rank))                                                                                             \
  X(TRITONBACKEND_OutputBuffer, triton_error *,                                                                        \
    (triton_output * output, void **data, const uint64_t bytes, int *memory, int64_t *device))                         \
  X(TRITONBACKEND_ResponseSend, triton_error *,                                                                        \
    (triton_response * response, const uint32_t flags, triton_error *error))                                           \
  X(TRITONBACKEND_StateNew, triton_error *,                                                                            \
    (triton_state * *state, triton_request * request, const char *name, const int type, const int64_t *dims,           \
     const uint32_t rank))                                                                                             \
  X(TRITONBACKEND_StateBuffer, triton_error *,                                                                         \
    (triton_state * state, void **data, const uint64_t bytes, int *memory, int64_t *device))                           \
  X(TRITONBACKEND_StateUpdate, triton_error *, (triton_state * state))                                                 \
  X(TRITONBACKEND_ModelInstanceReportStatistics, triton_error *,                                                       \
    (triton_instance * instance, triton_request * request, const bool success, const uint64_t exec_start,              \
     const uint64_t compute_start, const uint64_t compute_end, const uint64_t exec_end)) /* ns */                      \
  X(TRITONBACKEND_ModelInstanceReportBatchStatistics, triton_error *,                                                  \
    (triton_instance * instance, const uint64_t rows, const uint64_t exec_start, const uint64_t compute_start,         \
     const uint64_t compute_end, const uint64_t exec_end))

#define X(name, result, parameters) extern result name parameters;
TRITON_ROWS(X)
#undef X

/* ---- what it looks for in a backend ---- */

#define TRITON_ENTRY __attribute__((visibility("default")))
TRITON_ENTRY triton_error *TRITONBACKEND_Initialize(triton_backend *backend);
TRITON_ENTRY triton_error *TRITONBACKEND_Finalize(triton_backend *backend);
TRITON_ENTRY triton_error *TRITONBACKEND_GetBackendAttribute(triton_backend *backend, triton_attributes *attributes);
TRITON_ENTRY triton_error *TRITONBACKEND_ModelInitialize(triton_model *model);
TRITON_ENTRY triton_error *TRITONBACKEND_ModelFinalize(triton_model *model);
TRITON_ENTRY triton_error *TRITONBACKEND_ModelInstanceInitialize(triton_instance *instance);
TRITON_ENTRY triton_error *TRITONBACKEND_ModelInstanceFinalize(triton_instance *instance);
TRITON_ENTRY triton_error *TRITONBACKEND_ModelInstanceExecute(triton_instance *instance, triton_request **requests,
                                                              const uint32_t n);

#endif
