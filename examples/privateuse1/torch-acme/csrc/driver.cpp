// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Two pretended cards of 4 GiB. Their memory is the host's, at addresses that host code cannot read: a
// kernel that forgets to go through the driver ends in a segmentation fault, as it would on hardware.
#include "driver.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kCards = 2;
constexpr size_t kTotal = size_t{4} << 30;
constexpr uintptr_t kDeviceBit = uintptr_t{1} << 54;  // no host address of x86-64 or arm64 has it

std::atomic<size_t> g_used[kCards], g_peak[kCards];

// The cards that ACME_VISIBLE_DEVICES names, as devices in that order, up to the first that is none; all without it.
const std::vector<int>& cards() {
  static const auto visible = [] {
    const char* text = std::getenv("ACME_VISIBLE_DEVICES");
    std::istringstream list(text ? text : "0,1");
    std::vector<int> found;
    for (std::string id; std::getline(list, id, ',') && (id == "0" || id == "1");) found.push_back(id[0] - '0');
    return found;
  }();
  return visible;
}

template <typename T>
T* host(T* address) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(address) & ~kDeviceBit);
}

}  // namespace

int acme_device_count() { return static_cast<int>(cards().size()); }

void* acme_malloc(int device, size_t bytes) {
  const int card = cards().at(device);
  if (g_used[card].fetch_add(bytes) + bytes > kTotal) {
    g_used[card] -= bytes;
    return nullptr;
  }
  size_t used = g_used[card], peak = g_peak[card];
  while (used > peak && !g_peak[card].compare_exchange_weak(peak, used)) {
  }
  auto* data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) | kDeviceBit);
}

void acme_free(int device, void* data, size_t bytes) {
  std::free(host(data));
  g_used[cards().at(device)] -= bytes;
}

acme_memory acme_memory_of(int device) {
  const int card = cards().at(device);
  return {g_used[card], g_peak[card], kTotal};
}

void acme_reset_peak(int device) {
  const int card = cards().at(device);
  g_peak[card] = g_used[card].load();
}

void acme_copy(void* to, const void* from, size_t bytes) { std::memmove(host(to), host(from), bytes); }

void acme_fill(void* data, const void* value, size_t width, size_t count) {
  auto* to = static_cast<char*>(host(data));
  for (size_t i = 0; i < count; i++) std::memcpy(to + i * width, value, width);
}

void acme_adamw_step(float* param, const float* grad, float* exp_avg, float* exp_avg_sq, size_t count,
                     const acme_adamw& how) {
  float *p = host(param), *m = host(exp_avg), *v = host(exp_avg_sq);
  const float* g = host(grad);
  for (size_t i = 0; i < count; i++) {
    m[i] = static_cast<float>(how.beta1 * m[i] + (1 - how.beta1) * g[i]);
    v[i] = static_cast<float>(how.beta2 * v[i] + (1 - how.beta2) * g[i] * g[i]);
    const double root = std::sqrt(v[i] / how.correction2) + how.epsilon;
    p[i] = static_cast<float>(p[i] * (1 - how.lr * how.weight_decay) - how.lr / how.correction1 * m[i] / root);
  }
}
