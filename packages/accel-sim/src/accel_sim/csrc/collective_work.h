// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Collectives under way.
#pragma once

#include "aten.h"
#include "collectives.h"
#include "order.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>

#include <deque>

namespace accel_sim {

// Device memory on loan to gloo, whose threads keep their tensors for a moment after a work is done. The work ends the loan.
using Loan = std::shared_ptr<c10::Storage>;
using Loans = std::vector<std::weak_ptr<c10::Storage>>;  // weak: a collective that is refused ends its loans
inline thread_local Loans t_loans;                       // of the collective that this thread is preparing

inline at::Tensor lend(const at::Tensor& host) {
  auto loan = std::make_shared<c10::Storage>(host.storage());
  t_loans.push_back(loan);
  auto* data = loan->mutable_data();
  c10::DataPtr lent(
      data, new Loan(std::move(loan)), [](void* context) { delete static_cast<Loan*>(context); },
      c10::Device(c10::DeviceType::CPU));
  return with_metadata_of(
      host, c10::Storage(c10::Storage::use_byte_size_t(), host.storage().nbytes(), std::move(lent), nullptr, /*resizable=*/false),
      c10::DispatchKey::CPU);
}

class SimWork;
inline void forget(const SimWork* done);  // by the list of pending works

// A collective under way: what runs on the host, and what remains to be done with its result.
class SimWork final : public c10d::Work {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;
  using Future = c10::ivalue::Future;

  // finish runs once, when all parts are done: a division, a copy into the caller's tensors.
  SimWork(c10d::OpType type, Works parts, std::vector<at::Tensor> outputs, std::function<void()> finish)
      : c10d::Work(-1, type), parts_(std::move(parts)), outputs_(std::move(outputs)), finish_(std::move(finish)),
        loans_(std::exchange(t_loans, {})) {}

  bool isCompleted() override {
    if (!parts_are_done()) return false;
    if (!isSuccess()) return true;
    if (stream_) {
      {
        std::lock_guard<std::mutex> lock(order().mutex);
        order().host_waits(seen_);
      }
      if (deferring()) run_deferred_for_host();
    }
    finish_once();
    return true;
  }
  bool isSuccess() const override {
    return std::all_of(parts_.begin(), parts_.end(), [](auto& part) { return part->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const auto& part : parts_) {
      if (auto error = part->exception()) return error;
    }
    return nullptr;
  }
  int sourceRank() const override { return parts_.at(0)->sourceRank(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    if (stream_) order_after();
    for (const auto& part : parts_) {
      if (!part->wait(timeout)) return false;
    }
    finish_once();
    // A result that the caller has now is kept alive by the caller alone.
    forget(this);
    return true;
  }
  void blockCurrentStream() override { wait(); }
  // Completed by the thread that completes the last part; does not wait.
  c10::intrusive_ptr<Future> getFuture() override {
    std::vector<c10::Device> devices;
    for (const auto& output : outputs_) {
      if (is_simulated(output) && std::find(devices.begin(), devices.end(), output.device()) == devices.end()) {
        devices.push_back(output.device());
      }
    }
    c10::List<c10::intrusive_ptr<Future>> parts(c10::FutureType::create(c10::AnyType::get()));
    for (const auto& part : parts_) parts.push_back(part->getFuture());
    auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), devices);
    c10::collectAll(parts)->addCallback([work = shared(), future](Future& done) {
      work->complete(*future, done.hasError() ? done.exception_ptr() : nullptr);
    });
    return future;
  }

  // Finishes the parts that are done, unless work is deferred; not a wait. Returns whether all are finished.
  bool progress() {
    if (!parts_are_done()) return false;
    if (!deferring() && isSuccess()) finish_once();
    return !deferring() || finished_;
  }
  // By the parts' futures: a callback of one of them may be where this is called, and the part itself is not done then.
  void run_to_end() {
    for (const auto& part : parts_) {
      auto* inner = dynamic_cast<SimWork*>(part.get());
      inner ? inner->run_to_end() : part->getFuture()->waitAndThrow();
    }
    finish_once();
  }
  // Adds a step to finishing; call before any wait.
  void at_end(std::function<void()> also) {
    finish_ = [first = std::move(finish_), also = std::move(also)] {
      if (first) first();
      also();
    };
  }
  // Sets the stream that it is the last piece of work on: a wait is ordered after it.
  void runs_on(const c10::Stream& stream) {
    std::lock_guard<std::mutex> lock(order().mutex);
    stream_ = stream;
    seen_ = order().seen_by(stream);
  }
  c10::intrusive_ptr<SimWork> shared() { return c10::intrusive_ptr<SimWork>::unsafe_reclaim_from_nonowning(this); }

 private:
  bool parts_are_done() {
    return std::all_of(parts_.begin(), parts_.end(), [](auto& part) {
      auto* inner = dynamic_cast<SimWork*>(part.get());
      return inner ? inner->parts_are_done() : part->isCompleted();
    });
  }
  // A collective holds up the stream that waits for it; a barrier holds up the host.
  void order_after() {
    const auto caller = current_stream(stream_->device_index());
    const bool barrier = retrieveOpType() == c10d::OpType::BARRIER;
    {
      std::lock_guard<std::mutex> lock(order().mutex);
      order().seen_by(caller).join(seen_);
      if (barrier) order().host_waits(order().seen_by(caller));
    }
    if (!deferring()) return;
    run_deferred(caller);
    if (barrier) run_deferred_for_host();
  }
  void finish_once() {
    std::vector<c10::Storage> ended;  // destroyed without the lock: a tensor may need the GIL
    std::lock_guard<std::mutex> lock(finishing_);
    if (finished_) return;
    if (finish_) {
      at::AutoDispatchBelowADInplaceOrView below;
      DeviceWorkGuard inside;
      finish_();
    }
    finish_ = nullptr;
    for (auto& loan : std::exchange(loans_, {})) {
      if (const auto open = loan.lock()) ended.push_back(std::exchange(*open, c10::Storage()));
    }
    finished_ = true;
  }
  void complete(Future& future, std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
      if (!deferring()) finish_once();
      c10::OptionalStreamGuard guard;  // the future is ordered after the work in every thread
      if (stream_) guard.reset_stream(*stream_);
      future.markCompleted(c10::IValue(outputs_));
    } catch (...) {
      future.setErrorIfNeeded(std::current_exception());
    }
  }
  Works parts_;
  std::vector<at::Tensor> outputs_;
  std::function<void()> finish_;
  Loans loans_;
  std::mutex finishing_;
  std::atomic<bool> finished_{false};
  std::optional<c10::Stream> stream_;
  VectorClock seen_;
};

struct PendingWorks {
  std::mutex mutex;
  std::deque<c10::intrusive_ptr<SimWork>> works;
};
inline PendingWorks& pending() {
  return singleton<PendingWorks>();
}

inline void forget(const SimWork* done) {
  std::lock_guard<std::mutex> lock(pending().mutex);
  auto& works = pending().works;
  const auto at = std::find_if(works.begin(), works.end(), [&](auto& work) { return work.get() == done; });
  if (at != works.end()) works.erase(at);
}

// Keeps a work that the caller may drop, so that synchronizing the device waits for it.
inline c10::intrusive_ptr<c10d::Work> track(c10::intrusive_ptr<SimWork> work) {
  std::deque<c10::intrusive_ptr<SimWork>> done;  // destroyed without the lock: a tensor may need the GIL
  std::lock_guard<std::mutex> lock(pending().mutex);
  auto& works = pending().works;
  while (!works.empty() && works.front()->progress()) {
    done.push_back(std::move(works.front()));
    works.pop_front();
  }
  works.push_back(work);
  return work;
}

} // namespace accel_sim
