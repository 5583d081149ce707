// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// io_uring by its three system calls, without liburing.
#include "io_backend.h"

#include <cerrno>
#include <cstring>
#include <initializer_list>

#if defined(__linux__) && __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __NR_io_uring_setup
#define ACCEL_HAS_URING
#endif
#endif

namespace accel_ops::io {

#ifndef ACCEL_HAS_URING

std::unique_ptr<Backend> make_uring(int, int* error) {
  *error = ENOSYS;
  return nullptr;
}

#else

namespace {

// Of newer kernels than the headers may be.
#ifndef IORING_SETUP_CLAMP
#define IORING_SETUP_CLAMP (1U << 4)
#endif
constexpr unsigned kSingleIssuer = 1U << 12, kDeferTaskrun = 1U << 13;

// user_data of the poll request on the eventfd; blocks have their address.
constexpr uint64_t kWake = 0;

class Uring : public Backend {
 public:
  ~Uring() override {
    if (entries_ != MAP_FAILED) munmap(entries_, entries_size_);
    if (ring_ != MAP_FAILED) munmap(ring_, ring_size_);
    abandon();
  }

  // Returns 0 or errno.
  int open(unsigned depth) {
    io_uring_params params;
    // One entry more for the poll request. Kernels before 6.1 know neither of the two flags.
    for (const unsigned flags : {kSingleIssuer | kDeferTaskrun, 0u}) {
      std::memset(&params, 0, sizeof params);
      params.flags = flags | IORING_SETUP_CLAMP;
      fd_ = static_cast<int>(syscall(__NR_io_uring_setup, depth + 1, &params));
      if (fd_ >= 0 || errno != EINVAL) break;
    }
    if (fd_ < 0) return errno;
    // Without it (before 5.7) a regular file may be read late on EAGAIN; READ and WRITE need 5.6.
    if (!(params.features & IORING_FEAT_FAST_POLL)) return ENOSYS;
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) return errno;
    if (const int error = map(params)) return error;
    arm();
    return 0;
  }

  void push(Block& block) override {
    io_uring_sqe& entry = next_entry();
    entry.opcode = block.job->writes() ? IORING_OP_WRITE : IORING_OP_READ;
    entry.fd = block.descriptor();
    entry.addr = reinterpret_cast<uint64_t>(block.memory + block.got);
    entry.len = static_cast<uint32_t>(block.rest());
    entry.off = static_cast<uint64_t>(block.offset + block.got);
    entry.user_data = reinterpret_cast<uint64_t>(&block);
  }

  int run(bool wait, Completions& ended) override {
    const size_t before = ended.size();
    for (;;) {
      const long taken = syscall(
          __NR_io_uring_enter, fd_, pending_, wait ? 1 : 0, IORING_ENTER_GETEVENTS, nullptr, static_cast<size_t>(0));
      if (taken >= 0) pending_ -= static_cast<unsigned>(taken);
      else if (errno != EINTR && errno != EAGAIN && errno != EBUSY) return errno;
      const bool woken = reap(ended);
      if (!wait || woken || ended.size() > before) return 0;
    }
  }

  void wake() override {
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof one);
  }

  void abandon() override {
    if (wake_ >= 0) close(wake_);
    if (fd_ >= 0) close(fd_);
    wake_ = fd_ = -1;
  }

 private:
  int map(const io_uring_params& params) {
    const size_t submission = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    const size_t completion = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
    ring_size_ = submission > completion ? submission : completion;
    entries_size_ = params.sq_entries * sizeof(io_uring_sqe);
    constexpr int kProtection = PROT_READ | PROT_WRITE, kFlags = MAP_SHARED | MAP_POPULATE;
    ring_ = mmap(nullptr, ring_size_, kProtection, kFlags, fd_, IORING_OFF_SQ_RING);
    if (ring_ == MAP_FAILED) return errno;
    entries_ = mmap(nullptr, entries_size_, kProtection, kFlags, fd_, IORING_OFF_SQES);
    if (entries_ == MAP_FAILED) return errno;
    char* base = static_cast<char*>(ring_);
    const auto at = [base](unsigned offset) { return reinterpret_cast<unsigned*>(base + offset); };
    tail_ = at(params.sq_off.tail);
    mask_ = *at(params.sq_off.ring_mask);
    array_ = at(params.sq_off.array);
    ended_head_ = at(params.cq_off.head);
    ended_tail_ = at(params.cq_off.tail);
    ended_mask_ = *at(params.cq_off.ring_mask);
    ended_entries_ = reinterpret_cast<io_uring_cqe*>(base + params.cq_off.cqes);
    return 0;
  }

  // There is always a free entry: at most `depth` blocks and one poll request are in flight.
  io_uring_sqe& next_entry() {
    const unsigned tail = *tail_, index = tail & mask_;
    io_uring_sqe& entry = static_cast<io_uring_sqe*>(entries_)[index];
    std::memset(&entry, 0, sizeof entry);
    array_[index] = index;
    __atomic_store_n(tail_, tail + 1, __ATOMIC_RELEASE);  // the kernel reads entries in io_uring_enter only
    pending_++;
    return entry;
  }

  void arm() {
    io_uring_sqe& entry = next_entry();
    entry.opcode = IORING_OP_POLL_ADD;
    entry.fd = wake_;
    entry.poll_events = POLLIN;
    entry.user_data = kWake;
  }

  // Appends what has ended; returns whether `wake` was called.
  bool reap(Completions& ended) {
    bool woken = false;
    unsigned head = *ended_head_;
    for (const unsigned tail = __atomic_load_n(ended_tail_, __ATOMIC_ACQUIRE); head != tail; head++) {
      const io_uring_cqe& entry = ended_entries_[head & ended_mask_];
      if (entry.user_data == kWake) woken = true;
      else ended.push({reinterpret_cast<Block*>(entry.user_data), entry.res});
    }
    __atomic_store_n(ended_head_, head, __ATOMIC_RELEASE);
    if (woken) {
      uint64_t count;
      (void)!read(wake_, &count, sizeof count);
      arm();
    }
    return woken;
  }

  int fd_ = -1, wake_ = -1;
  void *ring_ = MAP_FAILED, *entries_ = MAP_FAILED;
  size_t ring_size_ = 0, entries_size_ = 0;
  unsigned *tail_ = nullptr, *array_ = nullptr, *ended_head_ = nullptr, *ended_tail_ = nullptr;
  unsigned mask_ = 0, ended_mask_ = 0, pending_ = 0;
  io_uring_cqe* ended_entries_ = nullptr;
};

} // namespace

std::unique_ptr<Backend> make_uring(int depth, int* error) {
  auto ring = std::make_unique<Uring>();
  *error = !ring ? ENOMEM : ring->open(static_cast<unsigned>(depth));
  if (*error) return nullptr;
  return ring;
}

#endif

} // namespace accel_ops::io
