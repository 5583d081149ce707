// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <deque>

namespace accel_sim {

namespace {

std::mutex g_mutex;
std::deque<c10::intrusive_ptr<SimWork>>& under_way() {
  static auto* works = new std::deque<c10::intrusive_ptr<SimWork>>();
  return *works;
}

} // namespace

SimWork::SimWork(c10d::OpType type, Works parts, std::vector<at::Tensor> outputs, std::function<void()> finish)
    : c10d::Work(-1, type), parts_(std::move(parts)), outputs_(std::move(outputs)), finish_(std::move(finish)) {}

bool SimWork::isCompleted() {
  const bool done = std::all_of(parts_.begin(), parts_.end(), [](auto& part) { return part->isCompleted(); });
  if (done) finish_once();
  return done;
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
  for (const auto& part : parts_) {
    if (!part->wait(timeout)) return false;
  }
  finish_once();
  return true;
}

void SimWork::finish_once() {
  std::lock_guard<std::mutex> lock(finishing_);
  if (finished_) return;
  finished_ = true;
  if (finish_) {
    at::AutoDispatchBelowADInplaceOrView below;
    finish_();
  }
  finish_ = nullptr;
}

// The future is complete when it is handed out: callbacks run at once, in the caller's thread.
c10::intrusive_ptr<c10::ivalue::Future> SimWork::getFuture() {
  wait();
  std::vector<c10::Device> devices;
  for (const auto& output : outputs_) {
    if (is_mine(output) && std::find(devices.begin(), devices.end(), output.device()) == devices.end()) {
      devices.push_back(output.device());
    }
  }
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
  future->markCompleted(c10::IValue(outputs_));
  return future;
}

c10::intrusive_ptr<c10d::Work> follow(c10::intrusive_ptr<SimWork> work) {
  std::lock_guard<std::mutex> lock(g_mutex);
  auto& works = under_way();
  while (!works.empty() && works.front()->isCompleted()) works.pop_front();
  works.push_back(work);
  return work;
}

void finish_collectives() {
  std::deque<c10::intrusive_ptr<SimWork>> all;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    all.swap(under_way());
  }
  for (auto& work : all) work->wait();
}

} // namespace accel_sim
