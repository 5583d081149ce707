// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "group.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "reduce.h"

namespace accel_shm {
namespace {

// Below this, threads cost more than they save.
constexpr int64_t kBytesPerThread = 1 << 18;

bool same(const accel_shm_request& a, const accel_shm_request& b) {
  return a.kind == b.kind && a.type == b.type && a.operation == b.operation && a.root == b.root &&
      a.bytes == b.bytes && a.detail == b.detail;
}

template <class Body>
void parallel(int64_t size, int64_t unit_bytes, int32_t threads, const Body& body) {
  const int64_t most = std::max<int64_t>(1, size * unit_bytes / kBytesPerThread);
  const int64_t parts = std::min<int64_t>(threads, most);
  if (parts <= 1) return body(0, size);
#if defined(_OPENMP)
#pragma omp parallel for num_threads(static_cast<int>(parts)) schedule(static, 1)
#endif
  for (int64_t part = 0; part < parts; ++part) {
    // On multiples of 64 elements, so that no cache line has two writers.
    const auto bound = [&](int64_t i) { return i == parts ? size : size / parts * i / 64 * 64; };
    body(bound(part), bound(part + 1));
  }
}

} // namespace

Group::Group(const Segment& segment, int32_t rank, int32_t ranks, const int32_t* pids, int32_t spin_us)
    : segment_(segment), rank_(rank), ranks_(ranks), spin_us_(spin_us), peers_(pids, pids + ranks) {}

Group::~Group() {
  segment_.progress(rank_).left.store(1);
  segment_.unmap();
}

int32_t Group::run(
    const accel_shm_request& request, const accel_shm_buffers& buffers, accel_shm_result* result) {
  *result = {};
  result->rank = -1;
  const uint32_t ended = segment_.header().ended.load();
  if (ended != 0) {
    result->rank = static_cast<int32_t>(ended >> 8);
    return result->status = static_cast<int32_t>(ended & 0xffu);
  }
  if (!valid(request, buffers)) return result->status = ACCEL_SHM_BAD_REQUEST;
  segment_.progress(rank_).requests[requests_ & 1u] = request;
  threads_ = buffers.threads;
  compared_ = false;
  deadline_.begin(buffers.timeout_ms);
  result->status = dispatch(request, buffers);
  deadline_.finish();
  if (result->status != ACCEL_SHM_OK) result->rank = blamed_;
  if (result->status == ACCEL_SHM_MISMATCH && blamed_ >= 0 && blamed_ < ranks_) {
    result->theirs = parts_.kind != 0 ? parts_ : segment_.progress(blamed_).requests[requests_ & 1u];
  }
  ++requests_;
  return result->status;
}

void Group::end(int32_t status, int32_t rank) {
  int32_t blamed = -1;
  end_group(segment_, status, rank, &blamed);
}

bool Group::valid(const accel_shm_request& request, const accel_shm_buffers& buffers) const {
  if (request.bytes < 0 || request.root < 0 || request.root >= ranks_) return false;
  const bool reduces = request.kind == ACCEL_SHM_ALL_REDUCE || request.kind == ACCEL_SHM_REDUCE_SCATTER ||
      request.kind == ACCEL_SHM_REDUCE;
  if (reduces && !reducible(request.type, request.operation)) return false;
  if (reduces && request.bytes % element_size(request.type) != 0) return false;
  if (request.kind == ACCEL_SHM_ALL_TO_ALL) return buffers.sends != nullptr && buffers.receives != nullptr;
  return request.kind >= ACCEL_SHM_BARRIER && request.kind <= ACCEL_SHM_REDUCE;
}

int32_t Group::dispatch(const accel_shm_request& request, const accel_shm_buffers& buffers) {
  const auto* input = static_cast<const uint8_t*>(buffers.input);
  auto* output = static_cast<uint8_t*>(buffers.output);
  switch (request.kind) {
    case ACCEL_SHM_ALL_REDUCE:
    case ACCEL_SHM_REDUCE: return all_reduce(output, request);
    case ACCEL_SHM_BROADCAST: return broadcast(output, request);
    case ACCEL_SHM_ALL_GATHER: return all_gather(input, output, request.bytes);
    case ACCEL_SHM_REDUCE_SCATTER: return reduce_scatter(input, output, request);
    case ACCEL_SHM_ALL_TO_ALL: return all_to_all(buffers);
    default: return barrier();
  }
}

int32_t Group::wait_for_all() {
  for (int32_t i = 1; i < ranks_; ++i) {
    const int32_t peer = (rank_ + i) % ranks_;
    const int32_t status =
        wait_for(segment_, rank_, peer, phase_, peers_[static_cast<size_t>(peer)], spin_us_, deadline_, &blamed_);
    if (status != ACCEL_SHM_OK) return status;
  }
  return compared_ ? ACCEL_SHM_OK : compare_requests();
}

int32_t Group::compare_requests() {
  compared_ = true;
  const auto& mine = segment_.progress(rank_).requests[requests_ & 1u];
  for (int32_t peer = 0; peer < ranks_; ++peer) {
    if (same(mine, segment_.progress(peer).requests[requests_ & 1u])) continue;
    int32_t entered = -1;
    const int32_t status = end_group(segment_, ACCEL_SHM_MISMATCH, peer, &entered);
    // Each rank names a peer that differs from itself, in whatever order they enter it.
    blamed_ = status == ACCEL_SHM_MISMATCH ? peer : entered;
    return status;
  }
  return ACCEL_SHM_OK;
}

void Group::copy(void* to, const void* from, int64_t bytes) const {
  parallel(bytes, 1, threads_, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<uint8_t*>(to) + begin, static_cast<const uint8_t*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

void Group::reduce_parts(
    int32_t type, int32_t operation, const std::vector<const void*>& parts, void* output, void* also,
    int64_t elements) const {
  const int64_t size = element_size(type);
  parallel(elements, size * ranks_, threads_, [&](int64_t begin, int64_t end) {
    const int64_t skip = begin * size;
    std::vector<const void*> moved(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) moved[i] = static_cast<const uint8_t*>(parts[i]) + skip;
    void* const second = also == nullptr ? nullptr : static_cast<uint8_t*>(also) + skip;
    reduce(type, operation, moved.data(), ranks_, static_cast<uint8_t*>(output) + skip, second, end - begin);
  });
}

} // namespace accel_shm
