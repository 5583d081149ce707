// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// libhccl.so: collectives of processes on one machine, through memory that the ranks of a communicator share.
//
// Each collective is one exchange: all ranks publish a slice of their input, wait for each other, read what concerns them,
// wait again, and go on with the next slice. A rank that does not come within EMULATED_CANN_SECONDS (120), or has ended, is
// an error of those that wait for it.
#include "handles.h"

#include <fcntl.h>
#include <hccl/hccl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>

namespace emulated {
namespace {

constexpr uint32_t kRanks = 16;
constexpr size_t kSlice = 1 << 20, kLetter = 1 << 18;

// Of one rank to another: a part of a message.
struct Box {
  std::atomic<uint32_t> full;
  uint64_t bytes;
  char data[kLetter];
};

struct Shared {
  std::atomic<uint64_t> arrived, generation;
  std::atomic<uint32_t> members;
  std::atomic<int32_t> process[kRanks];
  uint64_t length[kRanks], offset[kRanks][kRanks], bytes[kRanks][kRanks];
  char slice[kRanks][kSlice];
  Box box[kRanks][kRanks];
};

struct Communicator {
  Shared* shared;
  uint32_t ranks, rank;
  std::string name;
  uint32_t children = 0;
};

Communicator& of(HcclComm handle) {
  return *static_cast<Communicator*>(handle);
}

enum class Waited { kReady, kLate, kLost };

template <class Ready>
Waited wait(const Communicator& all, const Ready& ready) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(setting("EMULATED_CANN_SECONDS", 120));
  for (int turn = 0; !ready(); ++turn) {
    if (turn < 100) sched_yield();
    else usleep(turn < 2000 ? 20 : 1000);
    if (turn % 256 == 255)
      for (uint32_t rank = 0; rank < all.ranks; ++rank)
        if (const int process = all.shared->process[rank]; process && kill(process, 0) && !ready()) return Waited::kLost;
    if (Clock::now() > end) return Waited::kLate;
  }
  return Waited::kReady;
}

HcclResult result(Waited waited, const std::string& name) {
  if (waited == Waited::kReady) return HCCL_SUCCESS;
  const bool lost = waited == Waited::kLost;
  fail(ACL_ERROR_RT_INTERNAL_ERROR, name + (lost ? ": the process of another rank has ended" : ": another rank did not come in time"));
  return lost ? HCCL_E_REMOTE : HCCL_E_TIMEOUT;
}

Waited barrier(const Communicator& all) {
  Shared& shared = *all.shared;
  const uint64_t generation = shared.generation;
  if (shared.arrived.fetch_add(1) + 1 == all.ranks) {
    shared.arrived = 0;
    ++shared.generation;
    return Waited::kReady;
  }
  return wait(all, [&] { return shared.generation != generation; });
}

at::ScalarType type_of(HcclDataType type) {
  switch (type) {
    case HCCL_DATA_TYPE_INT8: return at::kChar;
    case HCCL_DATA_TYPE_INT16: return at::kShort;
    case HCCL_DATA_TYPE_INT32: return at::kInt;
    case HCCL_DATA_TYPE_FP16: return at::kHalf;
    case HCCL_DATA_TYPE_FP32: return at::kFloat;
    case HCCL_DATA_TYPE_INT64: return at::kLong;
    case HCCL_DATA_TYPE_UINT64: return at::kUInt64;
    case HCCL_DATA_TYPE_UINT8: return at::kByte;
    case HCCL_DATA_TYPE_UINT16: return at::kUInt16;
    case HCCL_DATA_TYPE_UINT32: return at::kUInt32;
    case HCCL_DATA_TYPE_FP64: return at::kDouble;
    case HCCL_DATA_TYPE_BFP16: return at::kBFloat16;
    default: throw std::runtime_error("the emulated HCCL has no type " + std::to_string(type));
  }
}

size_t bytes_of(HcclDataType type, uint64_t count) {
  return count * c10::elementSize(type_of(type));
}

// into = into OP from
void combine(char* into, const char* from, size_t bytes, HcclDataType type, HcclReduceOp op) {
  const auto found = type_of(type);
  const int64_t count = static_cast<int64_t>(bytes / c10::elementSize(found));
  const Tensor a = at::from_blob(into, {count}, found), b = at::from_blob(const_cast<char*>(from), {count}, found);
  switch (op) {
    case HCCL_REDUCE_SUM: a.add_(b); break;
    case HCCL_REDUCE_PROD: a.mul_(b); break;
    case HCCL_REDUCE_MAX: a.copy_(at::maximum(a, b)); break;
    default: a.copy_(at::minimum(a, b));
  }
}

// take(rank, begin, data, bytes): a slice of what a rank has published, which begins at that byte of its input.
template <class Take>
Waited exchange(const Communicator& all, const void* mine, size_t bytes, const Take& take) {
  Shared& shared = *all.shared;
  shared.length[all.rank] = bytes;
  if (const Waited waited = barrier(all); waited != Waited::kReady) return waited;
  const size_t most = *std::max_element(shared.length, shared.length + all.ranks);
  for (size_t begin = 0; begin < most; begin += kSlice) {
    if (begin < bytes) memcpy(shared.slice[all.rank], static_cast<const char*>(mine) + begin, std::min(kSlice, bytes - begin));
    if (const Waited waited = barrier(all); waited != Waited::kReady) return waited;
    for (uint32_t rank = 0; rank < all.ranks; ++rank)
      if (begin < shared.length[rank]) take(rank, begin, shared.slice[rank], std::min<size_t>(kSlice, shared.length[rank] - begin));
    if (const Waited waited = barrier(all); waited != Waited::kReady) return waited;
  }
  return barrier(all);
}

// Calls f(offset in the part, data, bytes) for what of a slice lies in the part.
template <class Function>
void within(size_t begin, const char* data, size_t bytes, size_t part, size_t length, const Function& f) {
  const size_t low = std::max(begin, part), high = std::min(begin + bytes, part + length);
  if (low < high) f(low - part, data + (low - begin), high - low);
}

HcclResult run(const char* name, aclrtStream stream, HcclComm handle, std::function<Waited(const Communicator&)> work) {
  const Communicator* const all = &of(handle);
  const aclError error = submit(stream, name, [=]() -> aclError {
    Waited waited = Waited::kReady;
    const aclError ended = computed(name, [&] { waited = work(*all); });
    return ended ? ended : result(waited, name) ? ACL_ERROR_RT_INTERNAL_ERROR : ACL_SUCCESS;
  });
  return error ? HCCL_E_RUNTIME : HCCL_SUCCESS;
}

// Rank 0's slice is copied, the others' are combined with it in order: the sum is the same on all ranks.
void reduce_into(char* into, uint32_t rank, const char* data, size_t bytes, HcclDataType type, HcclReduceOp op) {
  if (rank == 0) memcpy(into, data, bytes);
  else combine(into, data, bytes, type, op);
}

HcclResult join(uint32_t ranks, const std::string& name, uint32_t rank, HcclComm* handle) {
  if (ranks > kRanks) return fail(ACL_ERROR_RT_PARAM_INVALID, "more than 16 ranks"), HCCL_E_NOT_SUPPORT;
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared))) return HCCL_E_SYSCALL;
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return HCCL_E_MEMORY;
  auto made = std::make_unique<Communicator>(Communicator{static_cast<Shared*>(memory), ranks, rank, name});
  made->shared->process[rank] = getpid();
  ++made->shared->members;
  Waited waited = wait(*made, [&] { return made->shared->members >= ranks; });
  if (waited == Waited::kReady) waited = barrier(*made);
  if (rank == 0) shm_unlink(name.c_str());
  if (const HcclResult error = result(waited, "HcclCommInitRootInfo")) return error;
  *handle = made.release();
  return HCCL_SUCCESS;
}

// Messages, all at once: two ranks that both send first do not wait for each other.
Waited transfer(const Communicator& all, const std::vector<HcclSendRecvItem>& items) {
  std::vector<size_t> done(items.size());
  const auto size = [&](size_t i) { return bytes_of(items[i].dataType, items[i].count); };
  const auto first = [&](size_t i) {  // messages to or from one rank keep their order
    for (size_t j = 0; j < i; ++j)
      if (items[j].remoteRank == items[i].remoteRank && items[j].sendRecvType == items[i].sendRecvType && done[j] < size(j)) return false;
    return true;
  };
  return wait(all, [&] {
    bool over = true;
    for (size_t i = 0; i < items.size(); ++i) {
      if (done[i] >= size(i)) continue;
      over = false;
      if (!first(i)) continue;
      const bool sends = items[i].sendRecvType == HCCL_SEND;
      const uint32_t peer = items[i].remoteRank;
      Box& box = sends ? all.shared->box[all.rank][peer] : all.shared->box[peer][all.rank];
      if (box.full == sends) continue;
      char* const place = static_cast<char*>(items[i].buf) + done[i];
      if (sends) {
        box.bytes = std::min(kLetter, size(i) - done[i]);
        memcpy(box.data, place, box.bytes);
      } else {
        memcpy(place, box.data, std::min<size_t>(box.bytes, size(i) - done[i]));
      }
      done[i] += box.bytes;
      box.full = sends;
    }
    return over;
  });
}

} // namespace
} // namespace emulated

using namespace emulated;

CANN_API HcclResult HcclGetRootInfo(HcclRootInfo* info) {
  static std::atomic<int> number{0};
  memset(info, 0, sizeof *info);
  snprintf(info->internal, sizeof info->internal, "/emulated-hccl-%d-%d", getpid(), number++);
  return HCCL_SUCCESS;
}

CANN_API HcclResult HcclCommInitRootInfo(uint32_t ranks, const HcclRootInfo* info, uint32_t rank, HcclComm* handle) {
  return join(ranks, info->internal, rank, handle);
}

CANN_API HcclResult HcclCommInitRootInfoConfig(
    uint32_t ranks, const HcclRootInfo* info, uint32_t rank, const HcclCommConfig*, HcclComm* handle) {
  return join(ranks, info->internal, rank, handle);
}

CANN_API HcclResult HcclCreateSubCommConfig(
    HcclComm* parent, uint32_t ranks, uint32_t*, uint64_t number, uint32_t rank, HcclCommConfig*, HcclComm* handle) {
  Communicator& all = of(*parent);
  return join(ranks, all.name + "-" + std::to_string(number) + "-" + std::to_string(all.children++), rank, handle);
}

CANN_API HcclResult HcclCommDestroy(HcclComm handle) {
  of(handle).shared->process[of(handle).rank] = 0;  // its end is no loss
  munmap(of(handle).shared, sizeof(Shared));
  delete &of(handle);
  return HCCL_SUCCESS;
}

CANN_API HcclResult HcclGetCommName(HcclComm handle, char* name) {
  strncpy(name, of(handle).name.c_str(), COMM_NAME_MAX_LENGTH - 1);
  return HCCL_SUCCESS;
}

CANN_API uint32_t HcclGetCommConfigCapability() {
  return HCCL_COMM_CONFIG_VERSION;
}

CANN_API HcclResult HcclGetCommAsyncError(HcclComm, HcclResult* error) {
  return *error = HCCL_SUCCESS;
}

CANN_API HcclResult HcclSetConfig(HcclConfig, HcclConfigValue) {
  return HCCL_SUCCESS;
}

CANN_API HcclResult HcclAllReduce(
    void* send, void* receive, uint64_t count, HcclDataType type, HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  char* const to = static_cast<char*>(receive);
  return run(__func__, stream, comm, [=](const Communicator& all) {
    return exchange(all, send, bytes_of(type, count), [=](uint32_t rank, size_t begin, const char* data, size_t bytes) {
      reduce_into(to + begin, rank, data, bytes, type, op);
    });
  });
}

CANN_API HcclResult HcclReduce(
    void* send, void* receive, uint64_t count, HcclDataType type, HcclReduceOp op, uint32_t root, HcclComm comm, aclrtStream stream) {
  char* const to = static_cast<char*>(receive);
  return run(__func__, stream, comm, [=](const Communicator& all) {
    return exchange(all, send, bytes_of(type, count), [=, &all](uint32_t rank, size_t begin, const char* data, size_t bytes) {
      if (all.rank == root) reduce_into(to + begin, rank, data, bytes, type, op);
    });
  });
}

CANN_API HcclResult HcclBroadcast(void* buffer, uint64_t count, HcclDataType type, uint32_t root, HcclComm comm, aclrtStream stream) {
  char* const to = static_cast<char*>(buffer);
  return run(__func__, stream, comm, [=](const Communicator& all) {
    return exchange(all, buffer, all.rank == root ? bytes_of(type, count) : 0, [=, &all](uint32_t, size_t begin, const char* data, size_t bytes) {
      if (all.rank != root) memcpy(to + begin, data, bytes);
    });
  });
}

CANN_API HcclResult HcclAllGather(void* send, void* receive, uint64_t count, HcclDataType type, HcclComm comm, aclrtStream stream) {
  char* const to = static_cast<char*>(receive);
  return run(__func__, stream, comm, [=](const Communicator& all) {
    const size_t size = bytes_of(type, count);
    return exchange(all, send, size, [=](uint32_t rank, size_t begin, const char* data, size_t bytes) {
      memcpy(to + rank * size + begin, data, bytes);
    });
  });
}

CANN_API HcclResult HcclAllGatherV(
    void* send, uint64_t count, void* receive, const void*, const void* displacements, HcclDataType type, HcclComm comm,
    aclrtStream stream) {
  char* const to = static_cast<char*>(receive);
  const auto* const given = static_cast<const uint64_t*>(displacements);
  const std::vector<uint64_t> places(given, given + of(comm).ranks);
  return run(__func__, stream, comm, [=](const Communicator& all) {
    return exchange(all, send, bytes_of(type, count), [&](uint32_t rank, size_t begin, const char* data, size_t bytes) {
      memcpy(to + bytes_of(type, places[rank]) + begin, data, bytes);
    });
  });
}

// A part of the sum of all inputs.
static Waited reduce_part(
    const Communicator& all, const void* send, size_t whole, char* to, size_t part, size_t length, HcclDataType type, HcclReduceOp op) {
  return exchange(all, send, whole, [=](uint32_t rank, size_t begin, const char* data, size_t bytes) {
    within(begin, data, bytes, part, length, [=](size_t at, const char* found, size_t size) {
      reduce_into(to + at, rank, found, size, type, op);
    });
  });
}

CANN_API HcclResult HcclReduceScatter(
    void* send, void* receive, uint64_t count, HcclDataType type, HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  char* const to = static_cast<char*>(receive);
  return run(__func__, stream, comm, [=](const Communicator& all) {
    const size_t size = bytes_of(type, count);
    return reduce_part(all, send, size * all.ranks, to, size * all.rank, size, type, op);
  });
}

// The end of the last of some parts.
static uint64_t end_of(const uint64_t* counts, const uint64_t* places, uint32_t ranks) {
  uint64_t end = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) end = std::max(end, places[rank] + counts[rank]);
  return end;
}

CANN_API HcclResult HcclReduceScatterV(
    void* send, const void* counts, const void* displacements, void* receive, uint64_t count, HcclDataType type, HcclReduceOp op,
    HcclComm comm, aclrtStream stream) {
  char* const to = static_cast<char*>(receive);
  const auto* const places = static_cast<const uint64_t*>(displacements);
  const uint64_t end = end_of(static_cast<const uint64_t*>(counts), places, of(comm).ranks), mine = places[of(comm).rank];
  return run(__func__, stream, comm, [=](const Communicator& all) {
    return reduce_part(all, send, bytes_of(type, end), to, bytes_of(type, mine), bytes_of(type, count), type, op);
  });
}

CANN_API HcclResult HcclScatter(
    void* send, void* receive, uint64_t count, HcclDataType type, uint32_t root, HcclComm comm, aclrtStream stream) {
  char* const to = static_cast<char*>(receive);
  return run(__func__, stream, comm, [=](const Communicator& all) {
    const size_t size = bytes_of(type, count);
    return exchange(all, send, all.rank == root ? size * all.ranks : 0, [=, &all](uint32_t, size_t begin, const char* data, size_t bytes) {
      within(begin, data, bytes, size * all.rank, size, [=](size_t at, const char* found, size_t length) { memcpy(to + at, found, length); });
    });
  });
}

CANN_API HcclResult HcclAlltoAll(
    const void* send, uint64_t count, HcclDataType type, const void* receive, uint64_t, HcclDataType, HcclComm comm, aclrtStream stream) {
  char* const to = static_cast<char*>(const_cast<void*>(receive));
  return run(__func__, stream, comm, [=](const Communicator& all) {
    const size_t size = bytes_of(type, count);
    return exchange(all, send, size * all.ranks, [=, &all](uint32_t rank, size_t begin, const char* data, size_t bytes) {
      within(begin, data, bytes, size * all.rank, size, [=](size_t at, const char* found, size_t length) {
        memcpy(to + rank * size + at, found, length);
      });
    });
  });
}

CANN_API HcclResult HcclAlltoAllV(
    const void* send, const void* counts, const void* displacements, HcclDataType type, const void* receive, const void*,
    const void* receive_displacements, HcclDataType, HcclComm comm, aclrtStream stream) {
  char* const to = static_cast<char*>(const_cast<void*>(receive));
  const uint32_t ranks = of(comm).ranks;
  const auto list = [ranks](const void* given) {
    return std::vector<uint64_t>(static_cast<const uint64_t*>(given), static_cast<const uint64_t*>(given) + ranks);
  };
  const auto sizes = list(counts), places = list(displacements), targets = list(receive_displacements);
  return run(__func__, stream, comm, [=](const Communicator& all) {
    Shared& shared = *all.shared;
    for (uint32_t rank = 0; rank < all.ranks; ++rank) {
      shared.offset[all.rank][rank] = bytes_of(type, places[rank]);
      shared.bytes[all.rank][rank] = bytes_of(type, sizes[rank]);
    }
    const size_t end = bytes_of(type, end_of(sizes.data(), places.data(), all.ranks));
    return exchange(all, send, end, [&](uint32_t rank, size_t begin, const char* data, size_t bytes) {
      within(begin, data, bytes, shared.offset[rank][all.rank], shared.bytes[rank][all.rank], [&](size_t at, const char* found, size_t length) {
        memcpy(to + bytes_of(type, targets[rank]) + at, found, length);
      });
    });
  });
}

CANN_API HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
  return run(__func__, stream, comm, [](const Communicator& all) { return barrier(all); });
}

CANN_API HcclResult HcclBatchSendRecv(HcclSendRecvItem* items, uint32_t count, HcclComm comm, aclrtStream stream) {
  const std::vector<HcclSendRecvItem> all(items, items + count);
  return run(__func__, stream, comm, [all](const Communicator& ranks) { return transfer(ranks, all); });
}

CANN_API HcclResult HcclSend(void* buffer, uint64_t count, HcclDataType type, uint32_t to, HcclComm comm, aclrtStream stream) {
  HcclSendRecvItem item{HCCL_SEND, buffer, count, type, to};
  return HcclBatchSendRecv(&item, 1, comm, stream);
}

CANN_API HcclResult HcclRecv(void* buffer, uint64_t count, HcclDataType type, uint32_t from, HcclComm comm, aclrtStream stream) {
  HcclSendRecvItem item{HCCL_RECV, buffer, count, type, from};
  return HcclBatchSendRecv(&item, 1, comm, stream);
}
