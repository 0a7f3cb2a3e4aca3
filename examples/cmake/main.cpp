/* SPDX-License-Identifier: Apache-2.0 */
// main.cpp - one model twice: linked into the program, and loaded by path through cyto.hpp.
#include "cyto.hpp"
#include "digits_net.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace {

int best(const float *p) { return static_cast<int>(std::max_element(p, p + 10) - p); }

} // namespace

int main() {
  std::array<float, 64> image{};
  for (int y = 0; y < 8; y++) image[y * 8 + 3] = image[y * 8 + 4] = 1; // a vertical bar
  try {
    // Linked: what digits_net.h declares.
    std::array<float, 10> probability{};
    digits_net_inputs in = {image.data()};
    digits_net_outputs out = {probability.data()};
    digits_net_sizes sizes = {1};
    cyto::Status status;
    if (digits_net_run(nullptr, &in, &sizes, &out, status.raw())) throw cyto::Error(status);
    std::printf("linked: a %d (%.0f %%)\n", best(probability.data()), 100 * probability[best(probability.data())]);

    // Loaded: any model, inputs and outputs by name.
    cyto::Model model(PLUGIN);
    cyto::Context context(model, cyto::Options().threads(1));
    context.input("image", cyto::view<const float>(image, {1, 1, 8, 8}));
    context.run();
    cyto::View<const float> found = context.output<float>("probability");
    std::printf("loaded: a %d (%.0f %%)\n", best(found.data()), 100 * found[best(found.data())]);
    return best(found.data()) != best(probability.data());
  } catch (const cyto::Error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
