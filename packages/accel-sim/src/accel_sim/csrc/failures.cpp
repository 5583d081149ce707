// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Errors of the device that arrive after the call that started the work: operators that are told to fail, and in
// hardware-like mode an index out of range.
#include "aten.h"

#include <atomic>
#include <mutex>
#include <set>
#include <unordered_set>
#include <utility>

namespace accel_sim {

namespace {

// The first error of the process's devices.
struct Late {
  std::mutex mutex;
  std::string error;
  bool once = false;  // the wait that raises it clears it
  std::atomic<c10::DeviceIndex> lost{-1};  // its later work is dropped
  std::unordered_set<std::string> failing;  // operators, by their full names
  std::set<c10::StreamId> immediate;        // streams whose work is carried out within the call

  void check() {
    std::lock_guard<std::mutex> lock(mutex);
    if (error.empty()) return;
    const auto text = once ? std::exchange(error, "") : error;
    if (config().type == c10::DeviceType::CUDA) {
      constexpr int32_t kAssert = 710;  // cudaErrorAssert
      throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, kAssert, "CUDA error: device-side assert triggered (" + text + ")");
    }
    TORCH_CHECK(
        !once, "The Inner error is reported as above. The process exits for this inner error, and the current working ",
        "operator name is ", text, ".");
    TORCH_CHECK(false, upper_name(), " error: a kernel that was started before has failed: ", text);
  }
};
Late& late() {
  return singleton<Late>();
}

// Raises the error that waits where the host waits for the device, or an operator's result depends on what it reads.
class LateErrors final : public Observer {
  void before_host_wait(const c10::Stream*, const void*) override { late().check(); }
  void before_work(const Work& work) override {
    const auto& name = work.op.operator_name().name;
    static const std::unordered_set<std::string> reading = {
        "aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select", "aten::is_nonzero",
        "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive"};
    const bool reads = reading.count(name) != 0 ||
        (name == "aten::copy_" && !is_simulated(work.arguments[work.arguments.size() - 3].toTensor()));
    if (reads) late().check();
  }
};

// Copies from or to the host that are done within the call, and what starts no work.
bool is_done_at_once(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments) {
  const auto& name = op.operator_name().name;
  if (name != "aten::copy_") return is_view(op) || name == "aten::_local_scalar_dense";
  const auto &to = arguments[0].toTensor(), &from = arguments[1].toTensor();
  if (is_simulated(to) == is_simulated(from)) return false;
  return !arguments[2].toBool() || !is_pinned((is_simulated(to) ? from : to).const_data_ptr());
}

} // namespace

void watch_for_late_errors() {
  static auto& watcher = *[] {
    Observer::add(&singleton<LateErrors>());
    return &singleton<LateErrors>();
  }();
  watcher.watch(true);
}

void enable_failures(const std::vector<std::string>& names, bool once) {
  late().failing.insert(names.begin(), names.end());
  late().once = once;
  watch_for_late_errors();
}

void carry_out_at_once(c10::StreamId stream) {
  std::lock_guard<std::mutex> lock(late().mutex);
  late().immediate.insert(stream);
}

bool is_lost(c10::DeviceIndex index) {
  return late().lost == index;
}

void fail(const std::string& name, c10::DeviceIndex device) {
  std::lock_guard<std::mutex> lock(late().mutex);
  TORCH_CHECK(late().immediate.count(current_stream(device).id()) == 0, upper_name(), " error: call ", name, " failed");
  if (late().lost >= 0) return;
  late().lost = device;
  late().error = name;
}

bool is_dropped(const c10::OperatorHandle& op, Stack* stack) {
  if (late().failing.empty()) return false;
  const auto device = device_of_results(op, *stack);
  if (!device) return false;
  const auto& name = op.operator_name().name;
  if (late().failing.count(name) != 0) fail(name, device->index());
  {
    std::lock_guard<std::mutex> lock(late().mutex);
    const bool immediate = late().immediate.count(current_stream(device->index()).id()) != 0;
    if (late().lost != device->index() || immediate || is_done_at_once(op, arguments_of(op, *stack))) return false;
  }
  if (name == "aten::copy_") {
    torch::jit::drop(*stack, 2);
    return true;
  }
  return run_shapes(op, stack, *device);  // without a meta kernel it is computed
}

bool fails_late(const c10::OperatorHandle& op, const std::string& error, const Stack& arguments, Stack* stack) {
  static const std::unordered_set<std::string> names = {
      "aten::index", "aten::index_select", "aten::gather", "aten::embedding", "aten::take", "aten::scatter", "aten::scatter_"};
  if (names.count(op.operator_name().name) == 0) return false;
  if (error.find("out of range") == std::string::npos && error.find("out of bounds") == std::string::npos) return false;
  const auto device = device_of_results(op, arguments);
  if (!device) return false;
  stack->insert(stack->end(), arguments.begin(), arguments.end());
  if (!run_shapes(op, stack, *device)) return false;
  std::lock_guard<std::mutex> lock(late().mutex);
  if (late().error.empty()) late().error = op.operator_name().name + ": " + error;
  return true;
}

} // namespace accel_sim
