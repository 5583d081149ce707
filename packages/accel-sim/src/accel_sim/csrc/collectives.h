// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Collectives between simulated devices: gloo on aliases of their memory.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace accel_sim {

c10::intrusive_ptr<c10d::Backend> make_backend(c10::intrusive_ptr<c10d::Backend> gloo, std::string name);
// torch has kernels of its collectives for CPU, CUDA and PrivateUse1 only; the other types use those of PrivateUse1.
void register_collectives();

} // namespace accel_sim
