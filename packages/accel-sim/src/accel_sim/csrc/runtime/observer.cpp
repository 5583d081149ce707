// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/observer.h"

namespace accel_sim {

namespace {

thread_local int t_depth = 0;

} // namespace

bool in_device_work() {
  return t_depth > 0;
}
DeviceWorkGuard::DeviceWorkGuard() {
  t_depth++;
}
DeviceWorkGuard::~DeviceWorkGuard() {
  t_depth--;
}

} // namespace accel_sim
