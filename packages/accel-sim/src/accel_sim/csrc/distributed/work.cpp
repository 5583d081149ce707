// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "distributed/work.h"
#include "order/deferred.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <deque>
#include <thread>

namespace accel_sim {

namespace {

std::mutex g_mutex;
std::deque<c10::intrusive_ptr<SimWork>>& pending_works() {
  static auto* works = new std::deque<c10::intrusive_ptr<SimWork>>();
  return *works;
}

void forget(const SimWork* done) {
  std::lock_guard<std::mutex> lock(g_mutex);
  auto& works = pending_works();
  const auto at = std::find_if(works.begin(), works.end(), [&](auto& work) { return work.get() == done; });
  if (at != works.end()) works.erase(at);
}

// A send or receive of gloo completes inside its wait() only, which may be called once. A thread calls it, so that the
// work can be polled and waited for as often as any other.
class PointToPointWork final : public c10d::Work {
 public:
  explicit PointToPointWork(c10::intrusive_ptr<c10d::Work> part)
      : c10d::Work(-1, part->retrieveOpType()), part_(std::move(part)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get())) {}
  int sourceRank() const override { return part_->sourceRank(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void run() {
    try {
      part_->wait();
      finish();
      future_->markCompleted();
    } catch (...) {
      finish(std::current_exception());
      future_->setError(std::current_exception());
    }
  }

 private:
  c10::intrusive_ptr<c10d::Work> part_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

c10::intrusive_ptr<c10d::Work> pollable(c10::intrusive_ptr<c10d::Work> part) {
  if (!c10d::isP2POp(part->retrieveOpType()) || dynamic_cast<SimWork*>(part.get())) return part;
  auto transfer = c10::make_intrusive<PointToPointWork>(std::move(part));
  std::thread([transfer] { transfer->run(); }).detach();
  return transfer;
}

} // namespace

SimWork::SimWork(c10d::OpType type, Works parts, std::vector<at::Tensor> outputs, std::function<void()> finish)
    : c10d::Work(-1, type), parts_(std::move(parts)), outputs_(std::move(outputs)), finish_(std::move(finish)) {
  for (auto& part : parts_) part = pollable(std::move(part));
}

bool SimWork::parts_are_done() {
  return std::all_of(parts_.begin(), parts_.end(), [](auto& part) {
    auto* inner = dynamic_cast<SimWork*>(part.get());
    return inner ? inner->parts_are_done() : part->isCompleted();
  });
}

bool SimWork::isCompleted() {
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

bool SimWork::progress() {
  if (!parts_are_done()) return false;
  if (!deferring() && isSuccess()) finish_once();
  return !deferring() || finished_;
}

// By the parts' futures: a callback of one of them may be where this is called, and the part itself is not done then.
void SimWork::run_to_end() {
  for (const auto& part : parts_) {
    auto* inner = dynamic_cast<SimWork*>(part.get());
    inner ? inner->run_to_end() : part->getFuture()->waitAndThrow();
  }
  finish_once();
}

void SimWork::at_end(std::function<void()> also) {
  finish_ = [first = std::move(finish_), also = std::move(also)] {
    if (first) first();
    also();
  };
}

void SimWork::runs_on(const c10::Stream& stream) {
  std::lock_guard<std::mutex> lock(order().mutex);
  stream_ = stream;
  seen_ = order().seen_by(stream);
}

// A collective holds up the stream that waits for it; a barrier holds up the host.
void SimWork::order_after() {
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

bool SimWork::isSuccess() const {
  return std::all_of(parts_.begin(), parts_.end(), [](auto& part) { return part->isSuccess(); });
}

std::exception_ptr SimWork::exception() const {
  for (const auto& part : parts_) {
    if (auto error = part->exception()) return error;
  }
  return nullptr;
}

int SimWork::sourceRank() const {
  return parts_.at(0)->sourceRank();
}

std::vector<at::Tensor> SimWork::result() {
  return outputs_;
}

void SimWork::synchronize() {
  wait();
}

void SimWork::blockCurrentStream() {
  wait();
}

bool SimWork::wait(std::chrono::milliseconds timeout) {
  if (stream_) order_after();
  for (const auto& part : parts_) {
    if (!part->wait(timeout)) return false;
  }
  finish_once();
  // A result that the caller has now is kept alive by the caller alone.
  forget(this);
  return true;
}

void SimWork::finish_once() {
  std::lock_guard<std::mutex> lock(finishing_);
  if (finished_) return;
  if (finish_) {
    at::AutoDispatchBelowADInplaceOrView below;
    DeviceWorkGuard inside;
    finish_();
  }
  finish_ = nullptr;
  finished_ = true;
}

// Completed by the thread that completes the last part; does not wait.
c10::intrusive_ptr<SimWork::Future> SimWork::getFuture() {
  struct State {
    c10::intrusive_ptr<SimWork> work;
    c10::intrusive_ptr<Future> future;
    std::atomic<size_t> pending;
    std::mutex mutex;
    std::exception_ptr error;
    void one_less(std::exception_ptr failed) {
      if (failed) {
        std::lock_guard<std::mutex> lock(mutex);
        error = failed;
      }
      if (--pending == 0) work->complete(*future, error);
    }
  };
  std::vector<c10::Device> devices;
  for (const auto& output : outputs_) {
    if (is_simulated(output) && std::find(devices.begin(), devices.end(), output.device()) == devices.end()) {
      devices.push_back(output.device());
    }
  }
  auto state = std::make_shared<State>();
  state->work = shared();
  state->future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), devices);
  state->pending = parts_.size() + 1;
  for (const auto& part : parts_) {
    part->getFuture()->addCallback(
        [state](Future& done) { state->one_less(done.hasError() ? done.exception_ptr() : nullptr); });
  }
  state->one_less(nullptr);
  return state->future;
}

void SimWork::complete(Future& future, std::exception_ptr error) {
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

c10::intrusive_ptr<c10d::Work> track(c10::intrusive_ptr<SimWork> work) {
  std::deque<c10::intrusive_ptr<SimWork>> done;  // destroyed without the lock: a tensor may need the GIL
  std::lock_guard<std::mutex> lock(g_mutex);
  auto& works = pending_works();
  while (!works.empty() && works.front()->progress()) {
    done.push_back(std::move(works.front()));
    works.pop_front();
  }
  works.push_back(work);
  return work;
}

void finish_collectives() {
  if (deferring()) return;  // what the host has waited for is carried out already
  std::deque<c10::intrusive_ptr<SimWork>> all;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    all.swap(pending_works());
  }
  for (auto& work : all) work->run_to_end();
}

} // namespace accel_sim
