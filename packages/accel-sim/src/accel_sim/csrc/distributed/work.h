// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// A collective under way: what runs on the host, and what remains to be done with its result.
#pragma once

#include "distributed/pending.h"
#include "order/order.h"

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

  // Finishes the parts that are done, unless work is deferred; not a wait. Returns whether all are finished.
  bool progress();
  void run_to_end();
  // Adds a step to finishing; call before any wait.
  void at_end(std::function<void()> also);
  // Sets the stream that it is the last piece of work on: a wait is ordered after it.
  void runs_on(const c10::Stream& stream);
  c10::intrusive_ptr<SimWork> shared() { return c10::intrusive_ptr<SimWork>::unsafe_reclaim_from_nonowning(this); }

 private:
  bool parts_are_done();
  void order_after();
  void finish_once();
  void complete(Future& future, std::exception_ptr error);
  Works parts_;
  std::vector<at::Tensor> outputs_;
  std::function<void()> finish_;
  std::mutex finishing_;
  std::atomic<bool> finished_{false};
  std::optional<c10::Stream> stream_;
  VectorClock seen_;
};

// Keeps a work that the caller may drop, so that synchronizing the device waits for it.
c10::intrusive_ptr<c10d::Work> track(c10::intrusive_ptr<SimWork> work);

} // namespace accel_sim
