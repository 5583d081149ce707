// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What an operator may not do while it is captured: make the host wait for the device, or read host memory that the
// device cannot reach by itself.
#include "aten/aten.h"
#include "graphs/graphs.h"

namespace accel_sim {

namespace {

bool is_mask(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
}

bool starts_with(const std::string& name, const char* start) {
  return name.rfind(start, 0) == 0;
}

// Operators whose result has a size or a value that the host reads before the call returns.
bool reads_on_host(const Work& work) {
  const auto& name = work.op.operator_name().name;
  if (name == "aten::_local_scalar_dense") return true;
  if (name == "aten::index" || name == "aten::_unsafe_index" || starts_with(name, "aten::index_put") ||
      name == "aten::_index_put_impl_" || name == "aten::_unsafe_index_put") {
    const bool fills = work.arguments.size() > 2 && work.arguments[2].toTensor().numel() == 1;
    for (const auto& index : tensors_of({work.arguments[1]})) {
      if (is_mask(index) && !fills) return true;
    }
    return false;
  }
  if (name == "aten::repeat_interleave" && work.arguments.back().isInt()) return false;
  return work.op.hasTag(at::Tag::data_dependent_output) || work.op.hasTag(at::Tag::dynamic_output_shape);
}

} // namespace

std::string not_permitted_error() {
  return upper_name() + " error: operation not permitted when stream is capturing";
}

std::string capture_error(const Work& work) {
  if (reads_on_host(work)) return not_permitted_error();
  const bool copies = work.op.operator_name().name == "aten::copy_";
  for (const auto& tensor : tensors_of(work.arguments)) {
    if (!tensor.defined() || is_simulated(tensor) || (tensor.dim() == 0 && !copies)) continue;
    if (!is_pinned(tensor.storage().data())) {
      return "Cannot copy between CPU and " + upper_name() + " tensors during " + upper_name() +
          " graph capture unless the CPU tensor is pinned. Please use tensor.pin_memory() or allocate the tensor with "
          "pin_memory=True.";
    }
    if (copies && !work.arguments[2].toBool()) return not_permitted_error();
  }
  return "";
}

} // namespace accel_sim
