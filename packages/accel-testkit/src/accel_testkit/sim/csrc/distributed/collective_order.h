// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What a collective means for the order of work: it comes after its caller's stream, and runs on one of its own.
#pragma once

#include "distributed/work.h"

namespace accel_sim {

// The inner streams of a group, one a device.
class GroupStreams {
 public:
  c10::Stream on(c10::DeviceIndex device);

 private:
  std::map<c10::DeviceIndex, c10::Stream> streams_;
};

// Notes a tensor of the collective that this thread is putting together. row: the tensor's memory on the host;
// the result: what to work on, a copy where work is deferred, so that nobody sees the numbers before their time.
at::Tensor prepare_tensor(const at::Tensor& tensor, const at::Tensor& row);
void discard_prepared();  // it will not be started

// The collective of the noted tensors has been started.
void collective_started(
    SimWork& work, const std::string& group, GroupStreams& streams, const std::vector<at::Tensor>& outputs);

} // namespace accel_sim
