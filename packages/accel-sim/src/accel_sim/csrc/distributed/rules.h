// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What the backends of real devices refuse, where gloo and bytes in host memory would do it.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace accel_sim {

// Each raises for what the backend of that name refuses on the tensors' device.
void check_moved(const std::string& name, const std::vector<at::Tensor>& tensors);
void check_reduced(const std::string& name, const at::Tensor& tensor, const c10d::ReduceOp& op);
// The types agree, and the whole has the elements of `size` parts. Shapes do not count, unlike for gloo.
void check_whole(const at::Tensor& whole, const at::Tensor& part, int size);
// The piece of this rank has as many elements as the tensor.
void check_piece(const std::vector<at::Tensor>& pieces, int rank, const at::Tensor& tensor);
// The pieces of a gather or scatter have the type and the shape of the tensor.
void check_alike(const char* what, const std::vector<std::vector<at::Tensor>>& pieces, const at::Tensor& tensor);

} // namespace accel_sim
