// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What changes in the simulator: memory is counted, and operators on large tensors, on the device and on the host, run their
// meta kernels.
#include "dry.h"

#include <ATen/ExpandUtils.h>

namespace accel_rehearse {

namespace {

// What a pointwise operator makes of its arguments: a table of two short rows may be large.
size_t bytes_of_broadcast(const at::ArrayRef<c10::IValue> arguments) {
  std::vector<int64_t> sizes;
  size_t item = 0, tensors = 0;
  for (const auto& value : arguments) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const auto& tensor = value.toTensor();
    sizes = tensors++ ? at::infer_size(sizes, tensor.sizes()) : tensor.sizes().vec();
    item = std::max(item, static_cast<size_t>(tensor.itemsize()));
  }
  for (const auto size : sizes) item *= static_cast<size_t>(size);
  return tensors > 1 ? item : 0;
}

// Many pieces of a large tensor, as ZeRO 3 has of a parameter from each rank: to read them would commit a page for each.
bool is_scattered(at::ArrayRef<c10::IValue> pieces, size_t limit) {
  constexpr size_t kMany = 64;
  if (pieces.size() < kMany || !pieces[0].toTensor().has_storage()) return false;
  return pieces[0].toTensor().storage().nbytes() > limit;
}

// Whether an operator's arguments, or the result of a pointwise one, are too large to compute with. scattered: many pieces
// of a large tensor are large, too. Not on the host, where they may be the program's data.
bool is_large(const c10::OperatorHandle& op, const Stack& stack, size_t limit, bool scattered) {
  const auto arguments = arguments_of(op, stack);
  bool large = false;
  for (const auto& value : arguments) {
    each_tensor(value, [&](const at::Tensor& tensor) { large |= bytes_of(tensor) > limit; });
    large |= scattered && value.isTensorList() && is_scattered(value.toListRef(), limit);
  }
  if (large || !op.hasTag(at::Tag::pointwise)) return large;
  try {
    return bytes_of_broadcast(arguments) > limit;
  } catch (const c10::Error&) {
    return false;  // shapes that do not fit: the kernel says so
  }
}

class Rehearsal final : public DryRun {
 public:
  bool skips(const c10::OperatorHandle& op, const Stack& stack) override {
    return is_large(op, stack, setup().device_limit, /*scattered=*/true);
  }
  bool skips_copy(size_t bytes) override { return bytes > setup().device_limit; }
  void computed(const c10::OperatorHandle& op) override {
    std::lock_guard<std::mutex> lock(counts().mutex);
    counts().computed[c10::toString(op.operator_name())]++;
  }
  uint64_t taken(size_t bytes, const CachingModel& model) override {
    const auto at = allocating();
    const auto key = static_cast<uint64_t>(at.site) << 8;
    ledger().add(key, static_cast<int64_t>(bytes), at.place, model.allocated, model.reserved);
    return key;
  }
  void given_back(uint64_t key, size_t bytes, const CachingModel& model) override {
    ledger().drop(key, static_cast<int64_t>(bytes), model.allocated, model.reserved);
  }
  void* pin(size_t bytes) override {
    counts().add_host(static_cast<int64_t>(bytes), true);
    return reserve_addresses(bytes);
  }
  void unpin(void* data, size_t bytes) override {
    counts().add_host(-static_cast<int64_t>(bytes), true);
    munmap(data, bytes);
  }
};

bool run_shapes_on_host(const c10::OperatorHandle& op, Stack* stack) {
  return is_large(op, *stack, setup().host_limit, /*scattered=*/false) &&
      setup().simulator->run_shapes(op, stack, c10::Device(c10::DeviceType::CPU));
}

// Operators that allocate, make views, or give the host a number.
bool runs_always(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name().name;
  return name == "aten::_local_scalar_dense" || is_view(op) || name.rfind("aten::empty", 0) == 0;
}

void enable(const py::capsule& hooks, size_t device_limit, size_t host_limit) {
  setup() = {static_cast<Hooks*>(PyCapsule_GetPointer(hooks.ptr(), kHooks)), device_limit, host_limit};
  if (!setup().simulator) throw py::error_already_set();  // of another release
  count_host_memory();
  setup().simulator->wrap_host_kernels(&run_shapes_on_host, &runs_always);
  setup().simulator->set(&singleton<Rehearsal>());
}

} // namespace

PYBIND11_MODULE(accel_rehearse_native, m) {
  m.def("enable", &enable);
  m.def("counts", [] {
    std::lock_guard<std::mutex> lock(counts().mutex);
    const auto& calls = counts().collectives;
    std::vector<std::pair<Counts::Call, std::pair<int64_t, int64_t>>> rows(calls.begin(), calls.end());
    return std::make_tuple(counts().host_peak, counts().computed, rows);
  });
  bind_places(m);
  bind_groups(m);
}

} // namespace accel_rehearse
