// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "distributed/collective_order.h"
#include "order/deferred.h"

#include <algorithm>
#include <cctype>

namespace accel_sim {

namespace {

struct PreparedTensor {
  at::Tensor tensor, row, worked_on;
};
thread_local std::vector<PreparedTensor> t_prepared;

std::string name_of(c10d::OpType type) {
  auto name = c10d::opTypeToString(type);
  for (auto& letter : name) letter = static_cast<char>(std::tolower(letter));
  return name;
}

} // namespace

c10::Stream GroupStreams::on(c10::DeviceIndex device) {
  const auto known = streams_.find(device);
  return known == streams_.end() ? streams_.emplace(device, new_stream(device)).first->second : known->second;
}

at::Tensor prepare_tensor(const at::Tensor& tensor, const at::Tensor& row) {
  if (!is_simulated(tensor)) return row;
  if (deferring()) run_deferred(current_stream(tensor.device().index()));
  t_prepared.push_back({tensor, row, deferring() ? row.clone() : row});
  return t_prepared.back().worked_on;
}

void discard_prepared() {
  t_prepared.clear();
}

void collective_started(
    SimWork& work, const std::string& group, GroupStreams& streams, const std::vector<at::Tensor>& outputs) {
  const auto all = std::exchange(t_prepared, {});
  const auto device = all.empty() ? current_device() : all[0].tensor.device().index();
  const auto stream = streams.on(device);
  Collective collective{name_of(work.retrieveOpType()), group, current_stream(device), stream, {}, {}};
  std::vector<PreparedTensor> results;
  for (const auto& one : all) {
    const bool written = std::any_of(
        outputs.begin(), outputs.end(), [&](const auto& output) { return output.is_same(one.tensor); });
    (written ? collective.writes : collective.reads).push_back(one.tensor);
    if (written) results.push_back(one);
  }
  Observer::each([&](auto& observer) { observer.before_collective(collective); });
  work.runs_on(stream);
  if (!deferring()) return;
  work.at_end([results] {
    for (const auto& one : results) at::Tensor(one.row).copy_(one.worked_on);
  });
  defer(stream, [owner = work.shared()] { owner->run_to_end(); });
}

} // namespace accel_sim
