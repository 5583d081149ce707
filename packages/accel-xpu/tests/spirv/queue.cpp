// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Queues on the CPU, in the place of torch's.
#include <sycl/sycl.hpp>

extern "C" {

sycl::queue* test_queue() {
  try {
    return new sycl::queue{sycl::cpu_selector_v, sycl::property::queue::in_order()};
  } catch (...) {
    return nullptr;
  }
}

void test_wait(sycl::queue* queue) { queue->wait(); }
}
