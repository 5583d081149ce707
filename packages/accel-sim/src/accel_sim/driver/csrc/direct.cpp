// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Kernels by their names, without a driver.
#include "blocks.h"

#include <cstdio>
#include <string>

#define ACCEL_VISIBLE extern "C" __attribute__((visibility("default")))

// A line a kernel: its name, and the bytes of each argument.
ACCEL_VISIBLE const char* accel_host_kernels() {
  static const auto* text = [] {
    auto* made = new std::string();
    for (const auto& kernel : accel::kernels()) {
      *made += kernel.name;
      for (uint32_t i = 0; i < kernel.count; ++i) *made += " " + std::to_string(kernel.sizes[i]);
      *made += "\n";
    }
    return made;
  }();
  return text->c_str();
}

// Returns null, or what went wrong.
ACCEL_VISIBLE const char* accel_host_launch(const char* name, uint32_t groups, uint32_t items, void** arguments) {
  const auto* kernel = accel::find_kernel(name);
  if (!kernel) return "no kernel of this name";
  if (!items || items > accel::kMostThreads) return "a block has 1 to 1024 threads";
  return accel::run(*kernel, groups, items, arguments);
}
