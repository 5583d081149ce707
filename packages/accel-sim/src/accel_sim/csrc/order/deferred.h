// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Copies and collectives that do not wait for the host, carried out as late as the order of work allows.
#pragma once

#include "order/order.h"

#include <functional>

namespace accel_sim {

inline bool deferring() {
  return config().deferred;
}
void enable_deferral();
void disable_deferral();  // carries out what is queued

// A copy between a device and page-locked memory whose caller does not wait: true when it was queued.
bool defer_copy(const at::Tensor& self, const at::Tensor& source, bool non_blocking);
// Something that runs on a stream, queued as its last piece of work.
void defer(const c10::Stream& stream, std::function<void()> run);
// Carries out what is ordered before the next work on a stream.
void run_deferred(const c10::Stream& stream);
// Carries out what the host has waited for, and shows it the results.
void run_deferred_for_host();

} // namespace accel_sim
