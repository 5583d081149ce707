// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Collectives between simulated devices.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace accel_sim {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using c10d::OpType;
using c10d::ReduceOp;

std::string lower_name(OpType type);
// The types agree, and the whole has the elements of `size` parts. Shapes do not count, unlike for gloo.
void check_whole(const std::string& backend, const at::Tensor& whole, const at::Tensor& part, int size);
// Gloo on aliases of the devices' memory.
c10::intrusive_ptr<c10d::Backend> make_backend(c10::intrusive_ptr<c10d::Backend> gloo, std::string name);
// torch has kernels of its collectives for CPU, CUDA and PrivateUse1 only; the other types use those of PrivateUse1.
void register_collectives();

} // namespace accel_sim
