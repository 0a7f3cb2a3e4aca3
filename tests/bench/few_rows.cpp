// SPDX-License-Identifier: Apache-2.0
// few_rows.cpp - a product with weights in 4 bits (Q4_0) by ggml, the library of llama.cpp.
//
// In:  K N ROWS PRODUCTS THREADS SECONDS: so many products with weights of their own behind each other, weights repacked where
//      this build of ggml has a form for it, as llama.cpp has them. Out: milliseconds of a product, the median of all runs.
// few_rows.py compiles it and links it with ggml.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

static ggml_backend_buffer_type_t weights_buffer(ggml_backend_t cpu) {
  ggml_backend_dev_t device = ggml_backend_get_device(cpu);
  auto *more = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  for (ggml_backend_buffer_type_t *b = more ? more(device) : nullptr; b && *b; b++)
    if (std::strstr(ggml_backend_buft_name(*b), "REPACK"))
      return *b;
  return ggml_backend_cpu_buffer_type();
}

static std::vector<float> random_floats(size_t count, float max) {
  std::vector<float> v(count);
  for (float &x : v)
    x = (static_cast<float>(std::rand()) / static_cast<float>(RAND_MAX) - 0.5f) * max;
  return v;
}

int main(int argc, char **argv) {
  if (argc != 7)
    return std::fprintf(stderr, "usage: few_rows K N ROWS PRODUCTS THREADS SECONDS\n"), 2;
  const int k = std::atoi(argv[1]), n = std::atoi(argv[2]), rows = std::atoi(argv[3]), products = std::atoi(argv[4]);
  ggml_backend_t cpu = ggml_backend_cpu_init();
  ggml_backend_cpu_set_n_threads(cpu, std::atoi(argv[5]));
  const ggml_init_params room = {ggml_tensor_overhead() * (4 * static_cast<size_t>(products) + 8) + ggml_graph_overhead(), nullptr, true};
  ggml_context *constants = ggml_init(room), *values = ggml_init(room);
  std::vector<ggml_tensor *> weights;
  for (int i = 0; i < products; i++)
    weights.push_back(ggml_new_tensor_2d(constants, GGML_TYPE_Q4_0, k, n));
  ggml_backend_buffer_set_usage(ggml_backend_alloc_ctx_tensors_from_buft(constants, weights_buffer(cpu)), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  const std::vector<float> floats = random_floats(static_cast<size_t>(k) * static_cast<size_t>(n), 1.0f / 64);
  std::vector<char> codes(ggml_row_size(GGML_TYPE_Q4_0, k) * static_cast<size_t>(n));
  ggml_quantize_chunk(GGML_TYPE_Q4_0, floats.data(), codes.data(), 0, n, k, nullptr);
  for (ggml_tensor *w : weights)
    ggml_backend_tensor_set(w, codes.data(), 0, codes.size());
  ggml_tensor *x = ggml_new_tensor_2d(values, GGML_TYPE_F32, k, rows);
  ggml_cgraph *graph = ggml_new_graph(values);
  for (ggml_tensor *w : weights)
    ggml_build_forward_expand(graph, ggml_mul_mat(values, w, x));
  ggml_backend_alloc_ctx_tensors(values, cpu);
  const std::vector<float> row = random_floats(static_cast<size_t>(k) * static_cast<size_t>(rows), 1);
  ggml_backend_tensor_set(x, row.data(), 0, row.size() * sizeof(float));
  std::vector<double> times;
  using clock = std::chrono::steady_clock;
  for (const auto end = clock::now() + std::chrono::duration<double>(std::atof(argv[6])); clock::now() < end || times.size() < 8;) {
    const auto start = clock::now();
    ggml_backend_graph_compute(cpu, graph);
    times.push_back(std::chrono::duration<double, std::milli>(clock::now() - start).count() / products);
  }
  times.erase(times.begin(), times.begin() + 3);
  std::sort(times.begin(), times.end());
  std::printf("%.4f\n", times[times.size() / 2]);
}
