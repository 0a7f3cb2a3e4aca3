/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.c - files of other frameworks, given where an ONNX model belongs: which one it is, and the way from it to ONNX.
 *
 * In: the bytes of a file that is no ONNX model. Out: a sentence, or NULL where nothing is recognised. Files are known by
 * what is in them; their names lie.
 */
#define _GNU_SOURCE
#include "frontend/import_int.h"

#include <string.h>

enum { LOOKED_AT = 1 << 20 }; /* bytes at the beginning, and at the end, that are searched */

static bool holds(const uint8_t *p, size_t n, const char *what, size_t length) {
  size_t part = n < LOOKED_AT ? n : LOOKED_AT;
  return memmem(p, part, what, length) || memmem(p + n - part, part, what, length);
}
#define HOLDS(text) holds(p, n, text, sizeof text - 1)

static bool begins(const uint8_t *p, size_t n, size_t at, const char *what, size_t length) {
  return n >= at + length && !memcmp(p + at, what, length);
}
#define BEGINS(at, text) begins(p, n, at, text, sizeof text - 1)

#define FROM_PYTORCH "load it in Python and write it by torch.onnx.export(model, inputs, 'model.onnx', dynamo=True)"

static bool is_torchscript(const uint8_t *p, size_t n) {
  return BEGINS(0, "PK\3\4") && (HOLDS("constants.pkl") || HOLDS("code/__torch__"));
}
static bool is_exported(const uint8_t *p, size_t n) {
  return BEGINS(0, "PK\3\4") && (HOLDS("archive_format") || HOLDS("serialized_exported_program"));
}
static bool is_torch(const uint8_t *p, size_t n) {
  return (BEGINS(0, "PK\3\4") && HOLDS("data.pkl")) ||
         BEGINS(0, "\x80\2\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19");
}
static bool is_keras(const uint8_t *p, size_t n) {
  return BEGINS(0, "PK\3\4") && HOLDS("model.weights.h5") && HOLDS("config.json");
}
static bool is_arrays(const uint8_t *p, size_t n) {
  return BEGINS(0, "\x93NUMPY") || (BEGINS(0, "PK\3\4") && HOLDS(".npy"));
}
static bool is_hdf5(const uint8_t *p, size_t n) { return BEGINS(0, "\x89HDF\r\n\x1a\n"); }
static bool is_tflite(const uint8_t *p, size_t n) { return BEGINS(4, "TFL3"); }
static bool is_ort(const uint8_t *p, size_t n) { return BEGINS(4, "ORTM"); }
static bool is_gguf(const uint8_t *p, size_t n) { return BEGINS(0, "GGUF") || BEGINS(0, "lmgg") || BEGINS(0, "tjgg"); }
static bool is_library(const uint8_t *p, size_t n) {
  return BEGINS(0, "\x7f"
                   "ELF") ||
         BEGINS(0, "MZ");
}
static bool is_pickle(const uint8_t *p, size_t n) { return n > 2 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5; }
static bool is_pointer(const uint8_t *p, size_t n) { return BEGINS(0, "version https://git-lfs"); }

/* The length of a JSON text, 8 bytes, then that. */
static bool is_safetensors(const uint8_t *p, size_t n) {
  uint64_t length = 0;
  if (n < 10)
    return false;
  memcpy(&length, p, 8);
  return length >= 2 && length <= n - 8 && p[8] == '{' && (p[9] == '"' || p[9] == '}' || p[9] == ' ');
}

/* Attributes of TensorFlow's nodes: a map with an entry "dtype" whose value is a type. A SavedModel has a version first. */
static bool is_tensorflow(const uint8_t *p, size_t n) { return HOLDS("\n\5dtype\x12\2\x30"); }
static bool is_saved_model(const uint8_t *p, size_t n) { return BEGINS(0, "\x08\1\x12") && is_tensorflow(p, n); }

static bool is_html(const uint8_t *p, size_t n) {
  size_t at = 0;
  while (at < n && at < 100 && strchr(" \t\r\n", p[at]) && p[at])
    at++;
  return begins(p, n, at, "<!DOCTYPE", 9) || begins(p, n, at, "<!doctype", 9) || begins(p, n, at, "<html", 5);
}
static bool is_openvino(const uint8_t *p, size_t n) { return BEGINS(0, "<?xml") && HOLDS("<net "); }

/* The first that says yes. */
static const struct {
  bool (*is)(const uint8_t *p, size_t n);
  const char *what;
} formats[] = {
    {is_torchscript, "this is a TorchScript archive of PyTorch: export the model that it was made of, by "
                     "torch.onnx.export(model, inputs, 'model.onnx', dynamo=True)"},
    {is_exported, "this is a program saved by torch.export: in Python, torch.onnx.export(torch.export.load(FILE), (), "
                  "'model.onnx', dynamo=True)"},
    {is_keras, "this is a Keras model: in Python, keras.models.load_model(FILE).export('model.onnx', format='onnx')"},
    {is_torch, "this is a file of PyTorch, weights or a whole model: " FROM_PYTORCH},
    {is_arrays, "these are NumPy arrays and no model"},
    {is_hdf5,
     "this is an HDF5 file, as Keras writes them: in Python, keras.models.load_model(FILE).export('model.onnx', "
     "format='onnx'), or python -m tf2onnx.convert --keras FILE --output model.onnx"},
    {is_tflite, "this is a TensorFlow Lite model: python -m tf2onnx.convert --tflite FILE --output model.onnx"},
    {is_ort, "this is a model in ONNX Runtime's own format: give the .onnx file that it was made of"},
    {is_gguf,
     "this is a GGUF file of llama.cpp, which has weights but no graph: export the model that it was made of, as "
     "by optimum-cli export onnx --model NAME FOLDER"},
    {is_safetensors,
     "this is a safetensors file, which has weights but no graph: export the model that they belong to, as "
     "by optimum-cli export onnx --model FOLDER OUT, or " FROM_PYTORCH},
    {is_library, "this is a compiled library: cyto-run runs it"},
    {is_saved_model,
     "this is a TensorFlow SavedModel: python -m tf2onnx.convert --saved-model FOLDER --output model.onnx, "
     "FOLDER being the one that the file lies in"},
    {is_tensorflow, "this is a TensorFlow graph: python -m tf2onnx.convert --graphdef FILE --inputs X:0 --outputs Y:0 "
                    "--output model.onnx"},
    {is_pointer, "this is a pointer of Git LFS in place of the model: git lfs pull fetches it"},
    {is_html, "this is a page of HTML, perhaps the answer of a server in place of the model: download it again"},
    {is_openvino, "this is a model in OpenVINO's format: give the .onnx file that it was made of"},
    {is_pickle, "this is a Python object (pickle): write the model as ONNX in Python, of scikit-learn by "
                "skl2onnx.to_onnx(model, inputs), of PyTorch by torch.onnx.export(..)"},
};

const char *cy_foreign_format(const uint8_t *bytes, size_t n) {
  for (size_t i = 0; n > 0 && i < sizeof formats / sizeof *formats; i++)
    if (formats[i].is(bytes, n))
      return formats[i].what;
  return NULL;
}
