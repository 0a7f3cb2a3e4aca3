/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - what ONNX Runtime finds in this library: CreateEpFactories() and ReleaseEpFactory().
 *
 * In:  the runtime's tables of functions, its devices.
 * Out: one factory, "cytoc", for CPUs; an error that names both versions where the runtime is too old.
 */
#include "integrations/onnxruntime/plugin.h"

#include "version.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

ort_status *plugin_error(const ort_calls *ort, int32_t code, const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return ort->CreateStatus(code, text);
}

/* ---- versions ---- */

/* "1.23.0" is 23. What is not known to be younger is taken for the oldest. */
static uint32_t version_of(const char *text) {
  unsigned major = 0, minor = 0;
  if (!text || sscanf(text, "%u.%u", &major, &minor) != 2)
    return ORT_OLDEST;
  return major > 1 ? UINT32_MAX : minor;
}

#define TAKE(slot, since, name, result, parameters)                                                                    \
  if (version >= since)                                                                                                \
    memcpy(&ort->name, (const char *)table + slot * sizeof(void *), sizeof(void *));

static void ort_calls_read(ort_calls *ort, const void *api, uint32_t version) {
  *ort = (ort_calls){0};
  const void *table = api;
  ORT_API_ROWS(TAKE)
  table = ort->GetModelEditorApi();
  if (table) { /* a runtime may be built without it */
    ORT_EDITOR_ROWS(TAKE)
  }
  table = ort->GetEpApi();
  ORT_EP_ROWS(TAKE)
}

/* The status that the oldest interface can make. */
static ort_status *too_old(const ort_api_base *base) {
  const void *oldest = base->get_api(1);
  ort_calls ort = {0};
  if (!oldest)
    return NULL;
  memcpy(&ort.CreateStatus, oldest, sizeof ort.CreateStatus);
  const char *version = base->get_version();
  return plugin_error(
      &ort, ORT_FAIL,
      "cytoc: expected ONNX Runtime 1.%d or newer (API version %d), found %s: install a newer onnxruntime, or "
      "compile the model by cytoc itself",
      ORT_OLDEST, ORT_OLDEST, version ? version : "an unknown version");
}

/* ---- the factory ---- */

static const char *get_name(const ort_factory *self) {
  (void)self;
  return PLUGIN_NAME;
}

static const char *get_version(const ort_factory *self) {
  (void)self;
  return CYTO_VERSION;
}

static uint32_t get_vendor_id(const ort_factory *self) {
  (void)self;
  return 0; /* of no maker of hardware */
}

/* Registered under several names, the library offers its device once: with two, an application that takes all devices of the
 * name "cytoc" would be refused by ONNX Runtime. The first factory of each copy of ONNX Runtime in the process has it. */
static pthread_mutex_t factories_lock = PTHREAD_MUTEX_INITIALIZER;
static factory *factories;

static bool is_first(const factory *f) {
  bool first = true;
  pthread_mutex_lock(&factories_lock);
  for (const factory *other = f->next; other; other = other->next)
    first = first && other->api != f->api; /* what stands behind was made before */
  pthread_mutex_unlock(&factories_lock);
  return first;
}

static void factory_enter(factory *f) {
  pthread_mutex_lock(&factories_lock);
  f->next = factories;
  factories = f;
  pthread_mutex_unlock(&factories_lock);
}

static void factory_leave(factory *f) {
  pthread_mutex_lock(&factories_lock);
  factory **at = &factories;
  while (*at && *at != f)
    at = &(*at)->next;
  if (*at)
    *at = f->next;
  pthread_mutex_unlock(&factories_lock);
}

static ort_status *get_devices(ort_factory *self, const ort_hardware *const *devices, size_t n, ort_ep_device **ours,
                               size_t room, size_t *n_ours) {
  const ort_calls *ort = &((factory *)self)->ort;
  *n_ours = 0;
  for (size_t i = 0; is_first((const factory *)self) && i < n && *n_ours < room; i++)
    if (ort->HardwareDevice_Type(devices[i]) == ORT_DEVICE_CPU) {
      ort_status *status = ort->CreateEpDevice(self, devices[i], NULL, NULL, &ours[*n_ours]);
      if (status)
        return status;
      ++*n_ours;
    }
  return NULL;
}

static ort_status *create_ep(ort_factory *self, const ort_hardware *const *devices, const ort_pairs *const *metadata,
                             size_t n, const ort_session_options *options, const ort_logger *logger, ort_ep **out) {
  (void)devices, (void)metadata, (void)n;
  ep *e = NULL;
  ort_status *status = ep_create((const factory *)self, options, logger, &e);
  *out = e ? &e->base : NULL;
  return status;
}

static void release_ep(ort_factory *self, ort_ep *e) {
  (void)self;
  ep_release((ep *)e);
}

/* Libraries carry what they need: what counts is the interface between them and the loader. */
#define COMPATIBILITY "cytoc library, interface %u"

const char *ep_compatibility(ort_ep *self, const ort_graph *graph) {
  (void)graph;
  ep *e = (ep *)self;
  snprintf(e->compatibility, sizeof e->compatibility, COMPATIBILITY, CYTO_ABI_VERSION);
  return e->compatibility;
}

static ort_status *check_compatibility(ort_factory *self, const ort_hardware *const *devices, size_t n,
                                       const char *info, int32_t *answer) {
  (void)self, (void)devices, (void)n;
  unsigned version;
  *answer = !info || sscanf(info, COMPATIBILITY, &version) != 1 ? ORT_MODEL_NOT_FOR_US
            : version != CYTO_ABI_VERSION                       ? ORT_MODEL_UNSUPPORTED
                                                                : ORT_MODEL_OPTIMAL;
  return NULL;
}

/* Tensors are ONNX Runtime's own, in its memory of CPUs. */
static ort_status *create_allocator(ort_factory *self, const void *memory, const ort_pairs *options, void **allocator) {
  (void)self, (void)memory, (void)options;
  *allocator = NULL;
  return NULL;
}

static void release_allocator(ort_factory *self, void *allocator) { (void)self, (void)allocator; }

static ort_status *create_transfer(ort_factory *self, void **transfer) {
  (void)self;
  *transfer = NULL;
  return NULL;
}

static bool is_stream_aware(const ort_factory *self) {
  (void)self;
  return false;
}

static ort_status *create_stream(ort_factory *self, const void *memory, const ort_pairs *options, void **stream) {
  (void)self, (void)memory, (void)options;
  *stream = NULL;
  return NULL;
}

static const ort_factory functions = {.version = ORT_OLDEST,
                                      .get_name = get_name,
                                      .get_vendor = get_name,
                                      .get_devices = get_devices,
                                      .create_ep = create_ep,
                                      .release_ep = release_ep,
                                      .get_vendor_id = get_vendor_id,
                                      .get_version = get_version,
                                      .check_compatibility = check_compatibility,
                                      .create_allocator = create_allocator,
                                      .release_allocator = release_allocator,
                                      .create_transfer = create_transfer,
                                      .is_stream_aware = is_stream_aware,
                                      .create_stream = create_stream};

/* ---- what is exported ---- */

EXPORTED ort_status *CreateEpFactories(const char *registered_name, const ort_api_base *base, const ort_logger *logger,
                                       ort_factory **factories, size_t room, size_t *n);
EXPORTED ort_status *ReleaseEpFactory(ort_factory *f);

/* A plugin that knows nothing of functions that were added later needs only the oldest version of the table. */
ort_status *CreateEpFactories(const char *registered_name, const ort_api_base *base, const ort_logger *logger,
                              ort_factory **factories, size_t room, size_t *n) {
  (void)registered_name, (void)logger;
  *n = 0;
  const void *api = base->get_api(ORT_OLDEST);
  if (!api)
    return too_old(base);
  ort_calls ort;
  uint32_t version = version_of(base->get_version());
  ort_calls_read(&ort, api, version < ORT_OLDEST ? ORT_OLDEST : version);
  factory *f = room ? malloc(sizeof *f) : NULL;
  if (!f)
    return plugin_error(&ort, ORT_FAIL, room ? "cytoc: out of memory" : "cytoc: no room for its factory");
  *f = (factory){.base = functions, .ort = ort, .api = api, .version = version};
  factory_enter(f);
  factories[0] = &f->base;
  *n = 1;
  return NULL;
}

ort_status *ReleaseEpFactory(ort_factory *f) {
  factory_leave((factory *)f);
  free(f);
  return NULL;
}
