/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cyto.hpp - compiled models from C++17: cyto.h with owners, views and exceptions. Header only.
 *
 *   cyto::Model model("model.so");
 *   cyto::Context context(model, cyto::Options().threads(2));
 *   std::vector<float> pixels(3 * 224 * 224);
 *   context.input("image", cyto::view<const float>(pixels, {1, 3, 224, 224}));
 *   context.run();
 *   cyto::View<const float> logits = context.output<float>("logits");      logits.data(), logits.dims(), logits[k]
 *
 * Errors are cyto::Error, an exception with the status and the runtime's text. Each call that can fail also takes a
 *   std::nothrow as its last argument and then returns a cyto::Status, which is true when all is well; with CYTO_NO_EXCEPTIONS defined
 *   there are only these, and Model::open() and Context::create() in the place of constructors.
 * Ownership. Model and Context are moved, not copied, and give back what they hold. A context keeps its model alive. Memory that is
 *   bound stays the caller's, and must be there until it is bound anew or the context ends. Views point, and own nothing.
 * Threads, sizes, caches: as cyto.h says. run(), run(std::nothrow) and binding memory of known names by index allocate nothing.
 */
#ifndef CYTO_HPP
#define CYTO_HPP

#include "cyto.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#ifndef CYTO_NO_EXCEPTIONS
#include <stdexcept>
#endif

namespace cyto {

/* ---- element types ---- */

/* Bits of a 16-bit float: the standard library has no such types yet. */
struct half { std::uint16_t bits; };
struct bfloat16 { std::uint16_t bits; };

/* The cyto_dtype of a C++ type; for types that no tensor has, a compile-time error. */
template <class T> struct dtype_of;
#define CYTO_DTYPE(type, number)                                                                                       \
  template <> struct dtype_of<type> : std::integral_constant<std::int32_t, number> {};
CYTO_DTYPE(float, CYTO_F32)
CYTO_DTYPE(double, CYTO_F64)
CYTO_DTYPE(half, CYTO_F16)
CYTO_DTYPE(bfloat16, CYTO_BF16)
CYTO_DTYPE(bool, CYTO_BOOL)
CYTO_DTYPE(std::int8_t, CYTO_I8)
CYTO_DTYPE(std::int16_t, CYTO_I16)
CYTO_DTYPE(std::int32_t, CYTO_I32)
CYTO_DTYPE(std::int64_t, CYTO_I64)
CYTO_DTYPE(std::uint8_t, CYTO_U8)
CYTO_DTYPE(std::uint16_t, CYTO_U16)
CYTO_DTYPE(std::uint32_t, CYTO_U32)
CYTO_DTYPE(std::uint64_t, CYTO_U64)
CYTO_DTYPE(cyto_string, CYTO_STRING)
#undef CYTO_DTYPE

/* ---- errors ---- */

/* What a call answered: true when all is well. */
class Status {
public:
  Status() noexcept { error_.code = CYTO_OK; error_.message[0] = 0; }
  explicit operator bool() const noexcept { return error_.code == CYTO_OK; }
  cyto_status code() const noexcept { return static_cast<cyto_status>(error_.code); }
  const char *message() const noexcept { return error_.message; } /* for people; "" when all is well */
  cyto_error *raw() noexcept { return &error_; }

private:
  cyto_error error_;
};

#ifndef CYTO_NO_EXCEPTIONS
class Error : public std::runtime_error {
public:
  explicit Error(const Status &status) : std::runtime_error(status.message()), code_(status.code()) {}
  cyto_status code() const noexcept { return code_; }

private:
  cyto_status code_;
};
#endif

namespace detail {
inline void check(const Status &status) {
#ifndef CYTO_NO_EXCEPTIONS
  if (!status) throw Error(status);
#else
  (void)status;
#endif
}
inline Status failure(cyto_status code, const char *before, std::string_view name) noexcept {
  Status s;
  s.raw()->code = code;
  std::size_t room = sizeof s.raw()->message - 1, n = std::strlen(before) < room ? std::strlen(before) : room;
  std::memcpy(s.raw()->message, before, n);
  std::size_t m = name.size() < room - n ? name.size() : room - n;
  std::memcpy(s.raw()->message + n, name.data(), m);
  s.raw()->message[n + m] = 0;
  return s;
}
} // namespace detail

/* ---- views ---- */

/* Sizes of a tensor: up to CYTO_MAX_RANK, without memory of their own. */
class Dims {
public:
  Dims() noexcept = default;
  Dims(std::initializer_list<std::int64_t> sizes) noexcept : Dims(sizes.begin(), sizes.size()) {}
  Dims(const std::int64_t *sizes, std::size_t rank) noexcept : rank_(rank <= CYTO_MAX_RANK ? rank : CYTO_MAX_RANK) {
    for (std::size_t k = 0; k < rank_; k++) sizes_[k] = sizes[k];
  }
  std::size_t rank() const noexcept { return rank_; }
  std::int64_t operator[](std::size_t k) const noexcept { return sizes_[k]; }
  const std::int64_t *data() const noexcept { return sizes_.data(); }
  const std::int64_t *begin() const noexcept { return sizes_.data(); }
  const std::int64_t *end() const noexcept { return sizes_.data() + rank_; }
  std::int64_t count() const noexcept { /* elements */
    std::int64_t n = 1;
    for (std::int64_t size : *this) n *= size;
    return n;
  }

private:
  std::array<std::int64_t, CYTO_MAX_RANK> sizes_{};
  std::size_t rank_ = 0;
};

/* A dense, row-major tensor that is somewhere else. */
template <class T> class View {
public:
  View() noexcept = default;
  View(T *data, Dims dims) noexcept : data_(data), dims_(dims) {}
  T *data() const noexcept { return data_; }
  const Dims &dims() const noexcept { return dims_; }
  std::size_t size() const noexcept { return static_cast<std::size_t>(dims_.count()); } /* elements */
  std::size_t bytes() const noexcept { return size() * sizeof(T); }
  T &operator[](std::size_t k) const noexcept { return data_[k]; }
  T *begin() const noexcept { return data_; }
  T *end() const noexcept { return data_ + size(); }

private:
  T *data_ = nullptr;
  Dims dims_;
};

/* Of anything with data(), a std::vector for one. */
template <class T, class Container> View<T> view(Container &container, Dims dims) noexcept {
  return View<T>(container.data(), dims);
}

/* ---- models ---- */

class Model {
public:
  Model() noexcept = default;
#ifndef CYTO_NO_EXCEPTIONS
  explicit Model(const char *path) { detail::check(open(path)); }
  explicit Model(const std::string &path) : Model(path.c_str()) {}
  /* What <name>_model() of a linked model's header returns. */
  explicit Model(const cyrt_model *linked) { detail::check(open(linked)); }
#endif
  Model(Model &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Model &operator=(Model &&other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Model() { cyto_model_unload(handle_); }

  Status open(const char *path) noexcept {
    Status s;
    reset();
    cyto_model_load(path, &handle_, s.raw());
    return s;
  }
  Status open(const cyrt_model *linked) noexcept {
    Status s;
    reset();
    cyto_model_from_linked(linked, &handle_, s.raw());
    return s;
  }
  void reset() noexcept { cyto_model_unload(std::exchange(handle_, nullptr)); }

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  cyto_model *get() const noexcept { return handle_; }
  const char *name() const noexcept { return cyto_model_name(handle_); }
  const char *target() const noexcept { return cyto_model_target(handle_); }
  const char *metadata(const char *key) const noexcept { return cyto_model_find_metadata(handle_, key); } /* or NULL */
  int inputs() const noexcept { return cyto_model_input_count(handle_); }
  int outputs() const noexcept { return cyto_model_output_count(handle_); }
  cyto_port input(int index) const noexcept {
    cyto_port port{};
    cyto_model_input(handle_, index, &port);
    return port;
  }
  cyto_port output(int index) const noexcept {
    cyto_port port{};
    cyto_model_output(handle_, index, &port);
    return port;
  }
  int find_input(const char *name) const noexcept { return cyto_model_find_input(handle_, name); }   /* or -1 */
  int find_output(const char *name) const noexcept { return cyto_model_find_output(handle_, name); } /* or -1 */

private:
  cyto_model *handle_ = nullptr;
};

/* cyto_options, set one after the other. */
class Options {
public:
  Options() noexcept : raw_() {}
  Options &threads(int n) noexcept { raw_.threads = n; return *this; }
  Options &parallel(cyto_parallel pool, void *user) noexcept {
    raw_.parallel = pool;
    raw_.parallel_user = user;
    return *this;
  }
  Options &allocator(const cyto_allocator &a) noexcept { raw_.allocator = a; return *this; }
  Options &device(int number) noexcept { raw_.device = number; return *this; }
  Options &device_memory(bool on) noexcept { raw_.device_memory = on; return *this; }
  Options &stream(void *s) noexcept { raw_.stream = s; return *this; }
  const cyto_options *get() const noexcept { return &raw_; }

private:
  cyto_options raw_;
};

class Context {
public:
  Context() noexcept = default;
#ifndef CYTO_NO_EXCEPTIONS
  explicit Context(const Model &model, const Options &options = Options()) { detail::check(create(model, options)); }
#endif
  Context(Context &&other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), model_(std::exchange(other.model_, nullptr)) {}
  Context &operator=(Context &&other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(model_, other.model_);
    return *this;
  }
  ~Context() { cyto_context_destroy(handle_); }

  Status create(const Model &model, const Options &options = Options()) noexcept {
    Status s;
    cyto_context_destroy(std::exchange(handle_, nullptr));
    model_ = model.get();
    cyto_context_create(model_, options.get(), &handle_, s.raw());
    return s;
  }
  cyto_context *get() const noexcept { return handle_; }

  /* -- by index; nothing is allocated -- */
  template <class T> Status input(int index, View<T> tensor, std::nothrow_t) noexcept {
    static_assert(!std::is_void<T>::value, "a tensor has elements");
    Status s;
    cyto_bind_input(handle_, index, dtype_of<std::remove_const_t<T>>::value, static_cast<std::int32_t>(tensor.dims().rank()),
                    tensor.dims().data(), tensor.data(), s.raw());
    return s;
  }
  template <class T> Status output_to(int index, View<T> tensor, std::nothrow_t) noexcept {
    static_assert(!std::is_const<T>::value, "outputs are written to");
    Status s;
    cyto_bind_output(handle_, index, tensor.data(), tensor.bytes(), s.raw());
    return s;
  }
  template <class T> Status output(int index, View<const T> &out, std::nothrow_t) const noexcept {
    Status s;
    cyto_tensor t;
    if (cyto_output(handle_, index, &t, s.raw()))
      return s;
    if (t.dtype != dtype_of<T>::value)
      return detail::failure(CYTO_DTYPE_MISMATCH, "the output's elements are ", cyto_dtype_name(t.dtype));
    out = View<const T>(static_cast<const T *>(t.data), Dims(t.dims, static_cast<std::size_t>(t.rank)));
    return s;
  }
  Status prepare(std::nothrow_t) noexcept {
    Status s;
    cyto_context_prepare(handle_, s.raw());
    return s;
  }
  Status run(std::nothrow_t) noexcept {
    Status s;
    cyto_run(handle_, s.raw());
    return s;
  }

  /* -- by name -- */
  template <class T> Status input(const char *name, View<T> tensor, std::nothrow_t) noexcept {
    int index = cyto_model_find_input(model_, name);
    return index < 0 ? detail::failure(CYTO_NOT_FOUND, "the model has no input ", name) : input(index, tensor, std::nothrow);
  }
  template <class T> Status output_to(const char *name, View<T> tensor, std::nothrow_t) noexcept {
    int index = cyto_model_find_output(model_, name);
    return index < 0 ? detail::failure(CYTO_NOT_FOUND, "the model has no output ", name)
                     : output_to(index, tensor, std::nothrow);
  }
  template <class T> Status output(const char *name, View<const T> &out, std::nothrow_t) const noexcept {
    int index = cyto_model_find_output(model_, name);
    return index < 0 ? detail::failure(CYTO_NOT_FOUND, "the model has no output ", name) : output(index, out, std::nothrow);
  }

#ifndef CYTO_NO_EXCEPTIONS
  template <class Key, class T> Context &input(Key key, View<T> tensor) {
    detail::check(input(key, tensor, std::nothrow));
    return *this;
  }
  template <class Key, class T> Context &output_to(Key key, View<T> tensor) {
    detail::check(output_to(key, tensor, std::nothrow));
    return *this;
  }
  /* After run(); valid until the next run or binding. */
  template <class T, class Key> View<const T> output(Key key) const {
    View<const T> found;
    detail::check(output(key, found, std::nothrow));
    return found;
  }
  void prepare() { detail::check(prepare(std::nothrow)); }
  void run() { detail::check(run(std::nothrow)); }
#endif

private:
  cyto_context *handle_ = nullptr;
  cyto_model *model_ = nullptr;
};

} // namespace cyto
#endif
