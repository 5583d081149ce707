// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "group.h"

#include <algorithm>
#include <cstring>

#include "reduce.h"

namespace accel_shm {
namespace {

// Below this, threads cost more than they save.
constexpr int64_t kBytesPerThread = 1 << 18;

bool same(const Request& a, const Request& b) {
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

Group::Group(
    const Segment& segment, int32_t rank, const std::vector<int32_t>& pids, int32_t spin_us, int64_t timeout_ms)
    : segment_(segment), rank_(rank), ranks_(static_cast<int32_t>(pids.size())), spin_us_(spin_us),
      timeout_ms_(timeout_ms), peers_(pids.begin(), pids.end()), sources_(pids.size()) {}

Group::~Group() {
  segment_.progress(rank_).left.store(1);
  segment_.unmap();
}

const Result& Group::run(const Request& request, const Buffers& buffers) {
  const uint32_t ended = segment_.ended().load();
  result_ = {static_cast<int32_t>(ended & 0xffu), static_cast<int32_t>(ended >> 8), {}};
  if (ended != 0) return result_;
  request_of(rank_) = request;
  threads_ = buffers.threads;
  compared_ = false;
  deadline_ms_ = now_ms() + timeout_ms_;
  dispatch(request, buffers);
  ++requests_;
  return result_;
}

uint32_t Group::end(int32_t status, int32_t rank) {
  uint32_t ended = 0;
  const uint32_t mine = static_cast<uint32_t>(status) | static_cast<uint32_t>(rank) << 8;
  return segment_.ended().compare_exchange_strong(ended, mine) ? mine : ended;
}

int32_t Group::fail(int32_t status, int32_t rank, const Request& theirs) {
  const uint32_t ended = end(status, rank);
  result_ = {static_cast<int32_t>(ended & 0xffu), static_cast<int32_t>(ended >> 8), {}};
  if (result_.status == ACCEL_SHM_MISMATCH) {
    // Each rank names a peer that differs from itself, in whatever order they enter it.
    if (status == ACCEL_SHM_MISMATCH) result_.rank = rank;
    result_.theirs = theirs.kind != 0 ? theirs : request_of(result_.rank);
  }
  return result_.status;
}

int32_t Group::dispatch(const Request& request, const Buffers& buffers) {
  switch (request.kind) {
    case ACCEL_SHM_ALL_REDUCE:
    case ACCEL_SHM_REDUCE: return all_reduce(buffers.output, request);
    case ACCEL_SHM_BROADCAST: return broadcast(buffers.output, request);
    case ACCEL_SHM_ALL_GATHER: return all_gather(buffers.input, buffers.output, request.bytes);
    case ACCEL_SHM_REDUCE_SCATTER: return reduce_scatter(buffers.input, buffers.output, request);
    case ACCEL_SHM_ALL_TO_ALL: return all_to_all(buffers);
    default: return arrive_and_wait();
  }
}

int32_t Group::arrive_and_wait() {
  arrive();
  return wait_for_all();
}

int32_t Group::wait_for_all() {
  for (int32_t i = 1; i < ranks_; ++i) {
    if (const int32_t status = wait_for((rank_ + i) % ranks_)) return status;
  }
  return compared_ ? ACCEL_SHM_OK : compare_requests();
}

int32_t Group::compare_requests() {
  compared_ = true;
  for (int32_t peer = 0; peer < ranks_; ++peer) {
    if (!same(request_of(rank_), request_of(peer))) return fail(ACCEL_SHM_MISMATCH, peer);
  }
  return ACCEL_SHM_OK;
}

void Group::copy(void* to, const void* from, int64_t bytes) const {
  parallel(bytes, 1, threads_, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<uint8_t*>(to) + begin, static_cast<const uint8_t*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

void Group::reduce_sources(const Request& request, void* output, void* also, int64_t bytes) const {
  const int64_t size = element_size(request.type);
  parallel(bytes / size, size * ranks_, threads_, [&](int64_t begin, int64_t end) {
    reduce(request.type, request.operation, sources_.data(), ranks_, output, also, begin, end);
  });
}

} // namespace accel_shm
