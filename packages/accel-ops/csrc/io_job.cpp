// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Division of a request into blocks, and what the result of a system call means for a block.
#include "io_job.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "io_copy.h"

namespace accel_ops::io {
namespace {

#ifndef ENODATA
constexpr int kEndOfFile = EIO;
#else
constexpr int kEndOfFile = ENODATA;
#endif

const int64_t g_page = std::max<int64_t>(4096, sysconf(_SC_PAGESIZE));

bool aligned(const void* address, int64_t alignment) {
  return alignment <= 1 || reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(alignment) == 0;
}

// Continues in the caller's memory through the page cache. What was read into staging has been copied.
int make_plain(Block& block) {
  block.plain = true;
  block.memory = block.user;
  return block.job->plain_descriptor() < 0 ? errno : 0;
}

// A page that is written both directly and through the page cache can lose either. So the page cache has whole pages
// to itself also where a file takes direct I/O of less, and requests in flight that adjoin anywhere are safe.
int64_t cell_of(const accel_io_request& request) {
  return std::max<int64_t>(request.flags & ACCEL_IO_WRITE ? g_page : 1, request.offset_alignment);
}

bool can_continue_direct(const Block& block) {
  const accel_io_request& request = block.job->request;
  return block.got % std::max(1, request.offset_alignment) == 0 &&
         aligned(block.memory + block.got, request.memory_alignment);
}

} // namespace

Job::Job(const accel_io_request& from) : request(from), next(from.offset) {
  if (!(request.flags & ACCEL_IO_DIRECT)) plain = request.fd;
}

Job::~Job() {
  if (plain >= 0 && plain != request.fd) close(plain);
}

void Job::fail(int32_t code, int64_t offset) {
  if (!error || offset < error_offset) error = code, error_offset = offset;
}

accel_io_result Job::result() const {
  // Blocks are made in the order of their offsets, so everything below the lowest error has been transferred.
  return {(error ? error_offset : end()) - request.offset, error ? error_offset : -1, error, 0};
}

int Job::plain_descriptor() {
  int known = plain;
  if (known >= 0) return known;
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", request.fd);
  const int opened = open(path, (writes() ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
  if (opened < 0) return -1;
  if (plain.compare_exchange_strong(known, opened)) return opened;
  close(opened);
  return known;
}

Shape next_shape(const Job& job, int64_t block_size, int64_t staged_size) {
  const accel_io_request& request = job.request;
  const int64_t rest = job.end() - job.next;
  if (!(request.flags & ACCEL_IO_DIRECT)) return {std::min(block_size, rest), true, false};
  const int64_t cell = cell_of(request);
  const int64_t head = job.next % cell;
  if (head) return {std::min(rest, cell - head), true, false};
  if (rest < cell) return {rest, true, false};
  const char* memory = static_cast<char*>(request.data) + (job.next - request.offset);
  const bool staged = !aligned(memory, request.memory_alignment);
  const int64_t limit = staged ? staged_size : block_size;
  return {std::min(rest / cell * cell, std::max(cell, limit / cell * cell)), false, staged};
}

void cut(Job& job, const Shape& shape, Block& block) {
  block = Block{};
  block.job = &job;
  block.user = block.memory = static_cast<char*>(job.request.data) + (job.next - job.request.offset);
  block.offset = job.next;
  block.size = shape.size;
  block.plain = shape.plain;
  job.next += shape.size;
  job.blocks++;
}

int prepare(Block& block) {
  return block.plain && block.job->plain_descriptor() < 0 ? errno : 0;
}

Next advance(Block& block, int64_t result, int* error) {
  *error = 0;
  block.limit = 0;
  if (result > 0) {
    if (block.slot >= 0 && !block.plain && !block.job->writes())
      copy_past_cache(block.user + block.got, block.memory + block.got, result);
    block.got += result;
    block.retries = 0;
    if (block.got >= block.size) return Next::kOver;
    if (!block.plain && !can_continue_direct(block)) *error = make_plain(block);
  } else if (result == 0) {
    *error = block.job->writes() ? EIO : kEndOfFile;
  } else if (result == -EINTR || result == -EAGAIN) {
    if (++block.retries > kRetries) *error = static_cast<int>(-result);
  } else if ((result == -EINVAL || result == -EOPNOTSUPP) && !block.plain) {
    *error = make_plain(block);  // a file or memory that O_DIRECT does not take, whatever was declared
  } else {
    *error = static_cast<int>(-result);
  }
  return *error ? Next::kOver : Next::kAgain;
}

int64_t transfer(const Block& block) {
  char* memory = block.memory + block.got;
  const auto size = static_cast<size_t>(block.rest());
  const off_t offset = block.offset + block.got;
  const ssize_t moved = block.job->writes() ? pwrite(block.descriptor(), memory, size, offset)
                                            : pread(block.descriptor(), memory, size, offset);
  return moved < 0 ? -static_cast<int64_t>(errno) : static_cast<int64_t>(moved);
}

void advise(const accel_io_request& request) {
#if defined(__linux__)
  constexpr uintptr_t kHuge = 2 << 20;
  const auto address = reinterpret_cast<uintptr_t>(request.data);
  const uintptr_t first = (address + kHuge - 1) / kHuge * kHuge;
  const uintptr_t last = (address + static_cast<uintptr_t>(request.size)) / kHuge * kHuge;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  (void)request;
#endif
}

void reserve(const accel_io_request& request) {
#if defined(__linux__)
  accel_io_file file;
  struct statvfs space;
  if (accel_io_inspect(request.fd, &file) || !S_ISREG(static_cast<mode_t>(file.mode))) return;
  const int64_t end = request.offset + request.size;
  if (end <= file.size || fstatvfs(request.fd, &space)) return;
  // Without enough space a failed reservation would leave a longer file behind, and to shorten it could delete what
  // another process has written. The write then fails by itself.
  const auto free = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
  if (free < 1.01 * static_cast<double>(end - std::max(request.offset, file.size)) + (16 << 20)) return;
  (void)fallocate(request.fd, 0, request.offset, request.size);
#else
  (void)request;
#endif
}

} // namespace accel_ops::io
