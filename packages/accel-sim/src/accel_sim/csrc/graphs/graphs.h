// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Graphs: work that is recorded once and replayed into the same memory.
#pragma once

#include "graphs/capture.h"
#include "runtime/observer.h"

#include <ATen/core/GraphImplInterface.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <mutex>
#include <thread>

namespace accel_sim {

// The recorded work. It keeps alive what was allocated while it was recorded, and only that: as on hardware, other
// memory that it works on must not be freed, which a replay reports here.
class Tape {
 public:
  // Memory with a block of this number or a later one was allocated by what is recorded.
  void start(uint64_t first_block) { first_block_ = first_block; }
  bool owns(const c10::StorageImpl& storage) const;
  void record(const Work& work, const torch::jit::Stack& results);
  void replay() const;
  // Fills what it owns with 0xFF bytes: NaN in every floating type.
  void poison();
  bool empty() const { return nodes_.empty(); }

 private:
  struct Place {
    c10::Storage own;                                  // for memory allocated in the capture
    c10::weak_intrusive_ptr<c10::StorageImpl> outside;
    uint64_t block;
    void* data;
  };
  // An operator with its arguments as they were. In place of a device tensor there is one of the same shape
  // without memory; `places` says where its memory is.
  struct Node {
    c10::OperatorHandle op;
    torch::jit::Stack arguments;
    std::vector<at::Tensor> results;  // undefined where the operator made no new memory
    std::vector<size_t> places;       // of the device tensors, in order
  };
  size_t place_of(const at::Tensor& tensor);
  at::Tensor remove_memory(const at::Tensor& tensor, Node& node);
  std::vector<c10::Storage> memory() const;

  uint64_t first_block_ = 0;
  std::vector<Place> places_;
  std::map<uint64_t, size_t> place_of_block_;
  std::vector<Node> nodes_;
};

struct CaptureOptions {
  at::GraphCaptureMode mode = at::GraphCaptureMode::Global;
  bool executes = false;                  // the captured code runs as well, and may read what it computed (hpu)
  std::vector<at::Generator> generators;  // registered ones, beside the default ones
};
// The vendor's error text for an operator that cannot be captured; empty where it can.
std::string capture_error(const Work& work);
std::string not_permitted_error();
// One capture at a time in a process. Raises when the current stream cannot be captured.
void begin_capture(CaptureOptions options);
// The tape; raises when something forbidden was done meanwhile.
Tape end_capture();
void register_captures();

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
  std::optional<Tape> tape_;
};
c10::MempoolId_t new_graph_pool();
void register_graphs();

} // namespace accel_sim
