// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// A collective under way: what runs on the host, and what remains to be done with its result.
#pragma once

#include "sim.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>

namespace accel_sim {

class SimWork final : public c10d::Work {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;
  using Future = c10::ivalue::Future;

  // finish runs once, when all parts are done: a division, a copy into the caller's tensors.
  SimWork(c10d::OpType type, Works parts, std::vector<at::Tensor> outputs, std::function<void()> finish);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;
  c10::intrusive_ptr<Future> getFuture() override;

 private:
  void finish_once();
  void complete(Future& future, std::exception_ptr error);
  Works parts_;
  std::vector<at::Tensor> outputs_;
  std::function<void()> finish_;
  std::mutex finishing_;
  bool finished_ = false;
};

// Starts to follow a work that the caller may drop: a device that is synchronized waits for it.
c10::intrusive_ptr<c10d::Work> follow(c10::intrusive_ptr<SimWork> work);

} // namespace accel_sim
