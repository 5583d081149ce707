// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// A process that is forked from one that uses the device cannot use it: drivers do not survive a fork.
#include "runtime/runtime.h"

#include <c10/util/CallOnce.h>
#include <c10/util/Exception.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include <pthread.h>

#include <atomic>

namespace accel_sim {

namespace {

std::atomic<bool> g_forked{false};

} // namespace

void poison_fork() {
  if (config().type == c10::DeviceType::HPU) return;  // Habana's runtime does not check it
  static c10::once_flag once;
  c10::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
    torch::utils::register_fork_handler_for_device_init(config().type);
  });
}

bool is_in_bad_fork() {
  return g_forked.load(std::memory_order_relaxed);
}

void check_fork() {
  if (!is_in_bad_fork()) return;
  const auto name = upper_name();
  TORCH_CHECK(
      false, "Cannot re-initialize ", name, " in forked subprocess. To use ", name,
      " with multiprocessing, you must use the 'spawn' start method");
}

} // namespace accel_sim
