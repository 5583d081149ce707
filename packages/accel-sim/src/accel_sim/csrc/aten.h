// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Operators on the device: the CPU's kernels, run on host views of the device tensors.
#pragma once

#include "runtime.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

namespace accel_sim {

// ------------------------------------------------------------------------------------------- aliases
// What represents the tensors of one call while another key's kernel runs, and the way back.
class Aliases {
 public:
  virtual ~Aliases() = default;
  at::Tensor to_alias(const at::Tensor& real);
  // The real tensor of a result: the argument itself, a view of its storage, or a tensor of new memory.
  at::Tensor to_real(const at::Tensor& alias, c10::Device device);
  // Carries sizes and storages that the call changed back to the real tensors.
  void write_back();

 protected:
  struct AliasedStorage {
    c10::Storage alias, real;
    const void* data;  // of the alias, before the call
    size_t bytes;
  };
  explicit Aliases(c10::DispatchKey key) : key_(key) {}
  virtual c10::Storage make_alias(const c10::Storage& real) = 0;
  virtual c10::Storage make_real(const at::Tensor& alias, c10::Device device) = 0;
  virtual void write_back_storage(AliasedStorage& changed) = 0;

 private:
  struct AliasedTensor {
    at::Tensor alias, real;
  };
  c10::Storage& alias_of(const c10::Storage& real);
  void write_back_sparse(const AliasedTensor& known);
  c10::DispatchKey key_;
  c10::SmallVector<AliasedTensor, 4> tensors_;  // most calls have few
  c10::SmallVector<AliasedStorage, 4> storages_;
};
// Host views of the device's memory.
class HostAliases final : public Aliases {
 public:
  HostAliases() : Aliases(c10::DispatchKey::CPU) {}

 private:
  c10::Storage make_alias(const c10::Storage& real) override;
  c10::Storage make_real(const at::Tensor& alias, c10::Device device) override;
  void write_back_storage(AliasedStorage& changed) override;
};
// A host view for a collective; raises during a capture.
at::Tensor host_alias(const at::Tensor& device_tensor);
// A tensor of the same shape and flags on other memory.
at::Tensor with_metadata_of(const at::Tensor& source, c10::Storage storage, c10::DispatchKey key);
// Gives a tensor the sizes, strides and offset of another one.
void set_shape(const at::Tensor& tensor, const at::Tensor& like);

// ----------------------------------------------------------------------------------------- operators
// Runs one operator, which leaves its results on the stack, and calls the observers before and after.
void run_observed(
    const c10::OperatorHandle& op, Stack* stack,
    c10::function_ref<void(const c10::OperatorHandle&, Stack*)> run);
// Raises for a type of numbers of which the device has no tensors, or with which it does not compute: Metal's.
void check_stores(at::ScalarType dtype);
void check_computes(at::ScalarType dtype);
// Runs the CPU's kernel of an operator on device tensors, with the observers.
void run_on_device(const c10::OperatorHandle& op, Stack* stack);
// Runs one operator again and copies its results into those of an earlier run where they are defined; leaves them on
// the stack.
void run_into(const c10::OperatorHandle& op, Stack* stack, const std::vector<at::Tensor>& results);
void run_copy(const c10::OperatorHandle& op, Stack* stack);  // aten::copy_

// Replaces each tensor in a value, in a fixed order.
template <typename Change>
void change_tensors(c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    value = change(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const auto& item : value.toTensorVector()) list.push_back(change(item));
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& item : value.toOptionalTensorVector()) {
      list.push_back(item ? std::optional<at::Tensor>(change(*item)) : std::nullopt);
    }
    value = std::move(list);
  }
}
// Calls a function with each tensor in a value.
template <typename Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const auto& item : value.toTensorVector()) visit(item);
  } else if (value.isOptionalTensorList()) {
    for (const auto& item : value.toOptionalTensorVector()) {
      if (item) visit(*item);
    }
  }
}
std::vector<at::Tensor> tensors_of(const Stack& values);

// Where kernels are registered under a key; never unloaded.
torch::Library& library(c10::DispatchKey key, const char* name = "aten");
// Calls a function with the full name and the handle of each operator of a namespace that has a schema.
void each_operator(
    const std::string& name, c10::function_ref<void(const std::string&, const c10::OperatorHandle&)> visit);
inline at::ArrayRef<c10::IValue> arguments_of(const c10::OperatorHandle& op, const Stack& stack) {
  const auto count = op.schema().arguments().size();
  return at::ArrayRef<c10::IValue>(stack).slice(stack.size() - count, count);
}
// Whether the operator's results are views of its arguments.
inline bool is_view(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return !returns.empty() && returns[0].alias_info() && !returns[0].alias_info()->isWrite();
}
// Calls `before` instead of the CPU's kernel of each operator that is not left out; false: the kernel still has to run.
// Operators whose arguments have no boxed form, and those that change a storage, are left out always.
using BeforeKernel = bool(const c10::OperatorHandle&, Stack*);
void wrap_host_kernels(BeforeKernel* before, c10::function_ref<bool(const c10::OperatorHandle&)> leaves_out);

// Runs the operator's meta kernel and makes results of its shapes on the device, or on the host. False: it has none.
bool run_shapes(const c10::OperatorHandle& op, Stack* stack, c10::Device device);
// The device of an operator's results, if it has simulated tensors or makes some.
std::optional<c10::Device> device_of_results(const c10::OperatorHandle& op, const Stack& stack);

void register_kernels();     // allocation, storages, copies; attention and recurrent cells
void register_fallback();    // every other operator that has a CPU kernel; to be called after it
void register_autocast();    // nothing where torch has autocast kernels for the device type

// -------------------------------------------------------------------------------- hardware-like mode
void enable_hardware();
// Runs a kernel of the host on host tensors as a device would: without denormals, and sums in another order.
void run_as_hardware(const c10::OperatorHandle& op, c10::DispatchKey host_key, Stack* stack);

// -------------------------------------------------------------------------------------- late errors
void watch_for_late_errors();
// Lets operators fail on the device. The first failure is raised where the host waits, once or each time; later work of
// that device is dropped.
void enable_failures(const std::vector<std::string>& names, bool once);
// On this stream a failure is raised by the call, and nothing is dropped.
void carry_out_at_once(c10::StreamId stream);
void fail(const std::string& name, c10::DeviceIndex device);
// Whether an operator is not carried out, because it fails or its device has failed: it leaves results without numbers.
bool is_dropped(const c10::OperatorHandle& op, Stack* stack);
// An index out of range is found by the device, which has not run yet: the call returns, and the error waits for the
// host's next wait. arguments: those of the failed call, whose place on the stack the results take. False: this error is
// raised at once.
bool fails_late(
    const c10::OperatorHandle& op, const std::string& error, const Stack& arguments, Stack* stack);

} // namespace accel_sim
