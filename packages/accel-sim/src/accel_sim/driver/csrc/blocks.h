// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Blocks of threads on the host: a fiber a thread, which runs until a barrier or a shuffle. What is ready next is chosen
// at random, one warp often several times in a row, so that kernels which need a barrier and lack it compute something wrong.
#pragma once

#include "accel/device.h"

#include <cstddef>
#include <vector>

namespace accel {

constexpr uint32_t kWarp = 32, kMostThreads = 1024;
constexpr size_t kSharedBytes = 48 << 10;

// A kernel of the sources that are linked with this one.
struct Kernel {
  const char* name;
  const uint32_t* sizes; // bytes of the arguments
  uint32_t count;
  void (*call)(const void* kernel, void** arguments);
  const void* kernel;
};
const std::vector<Kernel>& kernels();
const Kernel* find_kernel(const char* name);

// Runs all blocks one after the other; returns null, or what a device would hang or fault at.
const char* run(const Kernel& kernel, uint32_t groups, uint32_t items, void** arguments);

} // namespace accel
