// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "distributed/rules.h"

namespace accel_sim {

namespace {

using c10d::ReduceOp;

// Rules that differ. A backend that is not listed has all of it. torch_npu's refuses sums of float64, of which a 910B has no
// tensors: torch_npu makes them float32, and programs that ask for float64 (ZeRO 3's norm) work.
struct Backend {
  const char* name;
  bool hpu, average, short_integers, fp8;
};

// From ProcessGroupNCCL.cpp of torch, ProcessGroupXCCL.cpp and xccl.h of torch-xpu-ops (2026-08), process_group_cncl.cpp
// of torch_mlu (r2.4), ProcessGroupHCCL.cpp and HCCLUtils.cpp of torch_npu (2026-08), and collective_utils.cpp of
// gaudi-pytorch-bridge 1.19.
constexpr Backend BACKENDS[] = {
    {"nccl", false, true, false, true},
    {"xccl", false, true, false, true},
    {"cncl", false, false, false, false},
    {"hccl", false, true, true, true},
    {"hccl", true, false, false, true},
};

Backend find(const std::string& name, const at::Tensor& tensor) {
  for (const auto& backend : BACKENDS) {
    if (name == backend.name && tensor.is_hpu() == backend.hpu) return backend;
  }
  return {"", false, true, true, true};
}

std::string upper(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

bool is_short(at::ScalarType dtype) {
  return dtype == at::kShort || dtype == at::kUInt16 || dtype == at::kUInt32 || dtype == at::kUInt64;
}

} // namespace

void check_moved(const std::string& name, const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    const auto rules = find(name, tensor);
    const auto dtype = tensor.scalar_type();
    TORCH_CHECK_TYPE(
        (rules.short_integers || !is_short(dtype)) && (rules.fp8 || !c10::isFloat8Type(dtype)),
        "Input tensor data type is not supported for ", upper(name), " process group: ", dtype);
  }
}

void check_reduced(const std::string& name, const at::Tensor& tensor, const ReduceOp& op) {
  check_moved(name, {tensor});
  const auto rules = find(name, tensor);
  TORCH_CHECK_VALUE(op != ReduceOp::BAND, "Cannot use ReduceOp.BAND with ", upper(name));
  TORCH_CHECK_VALUE(op != ReduceOp::BOR, "Cannot use ReduceOp.BOR with ", upper(name));
  TORCH_CHECK_VALUE(op != ReduceOp::BXOR, "Cannot use ReduceOp.BXOR with ", upper(name));
  const bool average = op == ReduceOp::AVG;
  TORCH_CHECK_VALUE(!average || rules.average, "Cannot use ReduceOp.AVG with ", upper(name));
  TORCH_CHECK_TYPE(!average || tensor.scalar_type() != at::kBool, "Cannot use ReduceOp.AVG with boolean inputs");
}

void check_whole(const at::Tensor& whole, const at::Tensor& part, int size) {
  TORCH_CHECK_TYPE(whole.scalar_type() == part.scalar_type(), "output tensor must have the same type as input tensor");
  TORCH_CHECK_VALUE(
      whole.numel() == part.numel() * size, "input and output tensor must differ in size by the factor world_size, found ",
      whole.sizes(), " and ", part.sizes(), " with ", size, " ranks");
}

void check_piece(const std::vector<at::Tensor>& pieces, int rank, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(
      pieces.at(static_cast<size_t>(rank)).numel() == tensor.numel(),
      "All tensor operands to scatter/gather must have the same size");
}

void check_alike(const char* what, const std::vector<std::vector<at::Tensor>>& pieces, const at::Tensor& tensor) {
  for (const auto& list : pieces) {
    for (const auto& piece : list) {
      TORCH_CHECK_VALUE(
          piece.scalar_type() == tensor.scalar_type() && piece.sizes() == tensor.sizes(), what,
          ": invalid tensor type or size (expected ", tensor.scalar_type(), " ", tensor.sizes(), ", got ",
          piece.scalar_type(), " ", piece.sizes(), ")");
    }
  }
}

} // namespace accel_sim
