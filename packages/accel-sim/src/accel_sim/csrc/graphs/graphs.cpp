// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The graph object: captured once, replayed often.
#include "graphs/graphs.h"

#include <c10/core/DeviceGuard.h>

namespace accel_sim {

namespace {

uint64_t next_pool() {
  static std::atomic<uint64_t> pools{1};
  return pools++;
}

std::string class_name() {
  return upper_name() + "Graph";
}

} // namespace

c10::MempoolId_t new_graph_pool() {
  return {0, next_pool()};
}

void SimGraph::begin(c10::MempoolId_t pool, at::GraphCaptureMode mode, bool executes) {
  TORCH_CHECK(
      !tape_, "This ", class_name(),
      " instance already owns a captured graph. To capture a new graph, create a new instance.");
  if (mode == at::GraphCaptureMode::Default) mode = at::GraphCaptureMode::Global;
  begin_capture({mode, executes, generators_});
  executes_ = executes;
  device_ = current_device();
  pool_ = pool.first || pool.second ? pool : c10::MempoolId_t{next_pool(), 0};
}

void SimGraph::capture_end() {
  tape_ = end_capture();
  if (tape_->empty() && !executes_) {
    TORCH_WARN(
        "The ", upper_name(), " Graph is empty. This usually means that the graph was attempted to be captured on ",
        "wrong device or stream.");
  }
}

void SimGraph::instantiate() {
  TORCH_CHECK(tape_, "Called ", class_name(), "::instantiate without a preceding successful capture.");
}

void SimGraph::replay() {
  TORCH_CHECK(tape_, "Called ", class_name(), "::replay without a preceding successful capture.");
  const c10::DeviceGuard guard(c10::Device(config().type, device_));
  check_not_capturing(class_name() + "::replay", device_);
  tape_->replay();
}

void SimGraph::reset() {
  tape_.reset();
}

c10::MempoolId_t SimGraph::pool() const {
  TORCH_CHECK(tape_, "Called ", class_name(), "::pool() without a preceding successful capture.");
  return pool_;
}

void SimGraph::debug_dump(const std::string&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "a graph of a simulated device cannot be drawn");
}

// Where torch's own builds have a graph behind torch.accelerator.Graph.
void register_graphs() {
  register_captures();
  if (config().type != c10::DeviceType::CUDA && config().type != c10::DeviceType::XPU) return;
  at::GraphImplRegistry()->Register(
      c10::DeviceTypeName(config().type, /*lower_case=*/false),
      [](at::GraphImplArgs args) -> std::unique_ptr<at::GraphImplInterface> { return std::make_unique<SimGraph>(args); });
}

} // namespace accel_sim
