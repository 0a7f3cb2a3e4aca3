/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_images.c - the device code that a model carries: which image fits a device, and unpacking it.
 *
 * An image fits when it was made for exactly this architecture (also for its special features), or for an older one of
 * the same generation; else the driver is given PTX. Images are LZ4 blocks: sequences of a token (lengths), literal
 * bytes, and a copy of earlier output; lengths from 15 on go on in further bytes. A checksum of the unpacked bytes
 * tells damage that still unpacks.
 */
#include "cyrt_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76, MIN_COPY = 4, JIT_ERRORS = 5, JIT_ERRORS_BYTES = 6 };

/* ---- choosing ---- */

/* How well an image fits a device of compute capability `cc` (89): 0 not at all, more is better. */
static int fit(const cyrt_cuda_image *image, uint32_t cc) {
  uint32_t arch = image->arch % CYRT_CUDA_SPECIFIC;
  int specific = image->arch >= CYRT_CUDA_SPECIFIC;
  if (image->ptx)
    return arch <= cc ? 1 : 0;
  if (arch == cc)
    return 2000 + specific;
  return !specific && arch / 10 == cc / 10 && arch < cc ? 1000 + (int)(arch % 10) : 0;
}

void cyrt_cuda_image_name(const cyrt_cuda_image *image, char out[CUDA_IMAGE_NAME]) {
  snprintf(out, CUDA_IMAGE_NAME, "%s_%u%s", image->ptx ? "PTX of compute" : "sm", image->arch % CYRT_CUDA_SPECIFIC,
           image->arch >= CYRT_CUDA_SPECIFIC ? "a" : "");
}

static cyto_status no_image(const cuda_driver *driver, const cuda_device *device, const cyrt_cuda_images *images,
                            cyto_error *error) {
  char held[400] = "", name[100] = "?", one[CUDA_IMAGE_NAME];
  size_t n = 0;
  for (uint64_t i = 0; i < images->count && n < sizeof held; i++) {
    cyrt_cuda_image_name(&images->image[i], one);
    n += (size_t)snprintf(held + n, sizeof held - n, "%s%s", n ? ", " : "", one);
  }
  driver->device_name(name, sizeof name, device->handle);
  return cyrt_error_set(error, CYTO_BAD_LIBRARY,
                        "the model has code for %s, but device %d ('%s') is sm_%u: compile it with --target=sm_%u",
                        held, device->number, name, device->capability, device->capability);
}

/* The best of those that were not tried yet, or NULL. */
static const cyrt_cuda_image *next_best(const cyrt_cuda_images *images, uint32_t capability, uint64_t tried) {
  const cyrt_cuda_image *best = NULL;
  for (uint64_t i = 0; i < images->count; i++)
    if (!(i < 64 && tried >> i & 1) && fit(&images->image[i], capability) > (best ? fit(best, capability) : 0))
      best = &images->image[i];
  return best;
}

cyto_status cyrt_cuda_image_choose(const cuda_driver *driver, const cuda_device *device, const cyrt_cuda_images *images,
                                   const cyrt_cuda_image **out, cyto_error *error) {
  *out = next_best(images, device->capability, 0);
  return *out ? CYTO_OK : no_image(driver, device, images, error);
}

uint32_t cyrt_cuda_capability(const cuda_driver *driver, int32_t handle) {
  int32_t major = 0, minor = 0;
  driver->device_attribute(&major, ATTRIBUTE_MAJOR, handle);
  driver->device_attribute(&minor, ATTRIBUTE_MINOR, handle);
  return (uint32_t)(major * 10 + minor);
}

/* ---- unpacking ---- */

typedef struct reader {
  const uint8_t *at, *end;
} reader;

/* A length whose first part was `n`; more than any image on damage. */
static uint64_t length(reader *r, uint64_t n) {
  uint8_t more = 255;
  if (n != 15)
    return n;
  while (more == 255) {
    if (r->at == r->end)
      return UINT64_MAX;
    more = *r->at++;
    n += more;
  }
  return n;
}

uint64_t cyrt_cuda_unpack(const uint8_t *packed, uint64_t packed_bytes, uint8_t *out, uint64_t capacity) {
  reader r = {packed, packed + packed_bytes};
  uint64_t n = 0;
  while (r.at < r.end) {
    uint8_t token = *r.at++;
    uint64_t literals = length(&r, token >> 4);
    if (literals > (uint64_t)(r.end - r.at) || literals > capacity - n)
      return UINT64_MAX;
    memcpy(out + n, r.at, literals);
    n += literals;
    r.at += literals;
    if (r.at == r.end)
      return n;
    if (r.end - r.at < 2)
      return UINT64_MAX;
    uint64_t distance = (uint64_t)r.at[0] | (uint64_t)r.at[1] << 8;
    r.at += 2;
    uint64_t copy = length(&r, token & 15);
    if (!distance || distance > n || copy > capacity || copy + MIN_COPY > capacity - n)
      return UINT64_MAX;
    for (copy += MIN_COPY; copy; copy--, n++) /* may overlap what it writes */
      out[n] = out[n - distance];
  }
  return UINT64_MAX; /* the last sequence ends behind its literals */
}

static cyto_status damaged(const cyrt_cuda_image *image, const char *what, cyto_error *error) {
  char name[CUDA_IMAGE_NAME];
  cyrt_cuda_image_name(image, name);
  return cyrt_error_set(error, CYTO_BAD_LIBRARY,
                        "the library is damaged: its device code for %s %s: copy or compile it again", name, what);
}

/* The image unpacked, with a zero behind it, for free(). */
static cyto_status open_image(const cyrt_cuda_images *images, const cyrt_cuda_image *image, uint8_t **out,
                              cyto_error *error) {
  enum { LIMIT = 1 << 30 };
  *out = NULL;
  if (image->bytes > LIMIT)
    return damaged(image, "has an impossible size", error);
  uint8_t *bytes = malloc(image->bytes + 1);
  if (!bytes)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for %llu bytes of device code",
                          (unsigned long long)image->bytes);
  uint64_t n = cyrt_cuda_unpack((const uint8_t *)images + image->offset, image->packed_bytes, bytes, image->bytes);
  cyto_status status = n != image->bytes ? damaged(image, "cannot be unpacked", error)
                       : cyrt_cuda_checksum(bytes, n) != image->checksum
                           ? damaged(image, "has another checksum than was written", error)
                           : CYTO_OK;
  if (status) {
    free(bytes);
    return status;
  }
  bytes[n] = 0; /* where PTX ends */
  *out = bytes;
  return CYTO_OK;
}

/* out_code: what the driver said, if it was asked at all. */
static cyto_status load_one(const cuda_driver *driver, const cyrt_cuda_images *images, const cyrt_cuda_image *image,
                            void **out_module, cuda_code *out_code, cyto_error *error) {
  char log[600] = "", name[CUDA_IMAGE_NAME], call[120];
  const int32_t options[2] = {JIT_ERRORS, JIT_ERRORS_BYTES};
  void *values[2] = {log, (void *)(uintptr_t)(sizeof log - 1)};
  uint8_t *bytes = NULL;
  int32_t version = 0;
  cyto_status status = open_image(images, image, &bytes, error);
  if (status)
    return status;
  cuda_code code = *out_code = driver->module_load(out_module, bytes, 2, options, values);
  free(bytes);
  if (!code)
    return CYTO_OK;
  driver->driver_version(&version);
  cyrt_cuda_image_name(image, name);
  snprintf(call, sizeof call, "loading code for %s by a driver for CUDA %d.%d (cuModuleLoadDataEx)", name,
           version / 1000, version % 1000 / 10);
  status = cyrt_cuda_check(driver, code, call, error);
  size_t n = error && *log ? strlen(error->message) : 0;
  if (n)
    snprintf(error->message + n, sizeof error->message - n, ": %s", log);
  return status;
}

/* What is damaged is said, and memory that is missing is no less for another image. */
static int may_try_another(cuda_code code) { return code && code != CUDA_OUT_OF_MEMORY; }

cyto_status cyrt_cuda_image_load(const cuda_driver *driver, const cuda_device *device, const cyrt_cuda_images *images,
                                 const cyrt_cuda_image **out, void **out_module, cyto_error *error) {
  uint64_t tried = 0;
  char said[sizeof error->message] = "";
  cyto_error one = {0};
  cyto_status status = cyrt_cuda_image_choose(driver, device, images, out, error);
  for (const cyrt_cuda_image *image = *out; !status && image; image = next_best(images, device->capability, tried)) {
    cuda_code code = 0;
    cyrt_error_clear(&one);
    cyto_status loaded = load_one(driver, images, image, out_module, &code, &one);
    *out = image;
    if (!loaded || !may_try_another(code) || image - images->image >= 64)
      return loaded ? cyrt_error_set(error, loaded, "%s", one.message) : CYTO_OK;
    tried |= (uint64_t)1 << (image - images->image);
    size_t n = strlen(said);
    snprintf(said + n, sizeof said - n, "%s%.*s", n ? "; " : "", (int)(sizeof said - n), one.message);
  }
  return status ? status : cyrt_error_set(error, one.code, "%s", said);
}
