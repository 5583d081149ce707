// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The order of a collective: it starts after the work on its caller's stream, and runs on a stream of its group.
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

// Adds a tensor to the collective that this thread is preparing. row: a flat host view of it;
// the result: what to work on, a copy in deferred mode, so that the result is not visible early.
at::Tensor prepare_tensor(const at::Tensor& tensor, const at::Tensor& row);
void discard_prepared();  // of a collective that is not started

// Reports to the observers that the collective of the prepared tensors has been started.
void collective_started(
    SimWork& work, const std::string& group, GroupStreams& streams, const std::vector<at::Tensor>& outputs);

} // namespace accel_sim
