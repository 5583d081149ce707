// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Graphs: work that is recorded once and replayed into the same memory. And what the rest of the device has to know
// about a capture under way.
#pragma once

#include "runtime.h"

#include <ATen/core/GraphImplInterface.h>

namespace accel_sim {

bool is_capturing(const c10::Stream& stream);
// Whether the operator that this thread runs is recorded and must leave everything outside the capture as it is.
bool is_recorded_only();
// Raises when the current stream of the device is being captured.
void check_not_capturing(const std::string& what, c10::DeviceIndex device);
// Captured work runs on copies of the memory that was there before the capture; nothing outside a capture.
std::optional<c10::Storage> capture_copy_of(const c10::Storage& device_storage);

class Tape;

class SimGraph final : public at::GraphImplInterface {
 public:
  explicit SimGraph(const at::GraphImplArgs& = {}) {}

  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override { begin(pool, mode, false); }
  void begin(c10::MempoolId_t pool, at::GraphCaptureMode mode, bool executes);
  void capture_end() override;
  void instantiate() override;
  void replay() override;
  void reset() override;
  c10::MempoolId_t pool() const override;
  void enable_debug_mode() override {}
  void debug_dump(const std::string& path) override;
  void register_generator_state(const at::Generator& generator) { generators_.push_back(generator); }

 private:
  c10::DeviceIndex device_ = 0;
  bool executes_ = false;
  c10::MempoolId_t pool_{0, 0};
  std::vector<at::Generator> generators_;
  std::shared_ptr<Tape> tape_;
};
c10::MempoolId_t new_graph_pool();
void register_graphs();

} // namespace accel_sim
