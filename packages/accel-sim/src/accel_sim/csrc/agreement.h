// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What ranks are about to do: they compare it before gloo does it, which aborts the process or fills a part of a tensor
// where sizes differ.
#pragma once

#include "collectives.h"

#include <functional>
#include <mutex>

namespace accel_sim {

// Of a collective: what has to be equal on all ranks, and the bytes that this rank gives to and takes from each.
struct Call {
  OpType type;
  at::ScalarType given, taken;
  int64_t operation = -1, root = -1;
  std::vector<int64_t> gives, takes;
};

class HostWork;

class Agreement {
 public:
  explicit Agreement(c10::intrusive_ptr<c10d::Backend> gloo) : gloo_(std::move(gloo)) {}
  // A work that is gloo's, which starts after all earlier collectives, and once all ranks have called the same.
  WorkPtr collective(Call call, std::function<WorkPtr()> start);
  // The tensor is the bytes of one of the given type. peer: negative for any.
  WorkPtr send(const at::Tensor& tensor, at::ScalarType dtype, int peer, int tag);
  WorkPtr receive(const at::Tensor& tensor, at::ScalarType dtype, int peer, int tag);

 private:
  struct Header;
  Header header(const at::Tensor& tensor, at::ScalarType dtype, int tag);
  [[noreturn]] void differ(int sender, const at::Tensor& sent, int receiver, const at::Tensor& expected);

  c10::intrusive_ptr<c10d::Backend> gloo_;
  WorkPtr last_;  // collective
  // Shared with works, which may outlive the backend.
  struct Failure {
    std::mutex mutex;
    std::exception_ptr error;
  };
  std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
};

} // namespace accel_sim
