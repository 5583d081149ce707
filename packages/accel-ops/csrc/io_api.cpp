// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The functions of accel_io.h that need no engine.
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "accel_io.h"
#include "io_job.h"

using accel_ops::io::Block;
using accel_ops::io::Job;
using accel_ops::io::Next;

namespace {

// File systems that do not declare their alignments accept these.
constexpr int32_t kUsualMemory = 512, kUsualOffset = 4096;

#if defined(__linux__) && defined(SYS_statx)
// struct statx and its constants, which the C library's headers may be too old for.
struct Status {
  uint32_t mask, other[6];
  uint16_t mode, spare;
  uint64_t inode, size;
  uint8_t more[104];
  uint32_t memory_alignment, offset_alignment;
  uint8_t rest[96];
};
static_assert(sizeof(Status) == 256 && offsetof(Status, size) == 40 && offsetof(Status, memory_alignment) == 152, "");
constexpr unsigned kBasic = 0x7ff, kDioAlign = 0x2000;
constexpr int kEmptyPath = 0x1000;

bool inspect_by_statx(int32_t fd, accel_io_file* file) {
  Status status;
  std::memset(&status, 0, sizeof status);
  if (syscall(SYS_statx, fd, "", kEmptyPath, kBasic | kDioAlign, &status)) return false;
  const bool known = status.mask & kDioAlign;
  file->size = static_cast<int64_t>(status.size);
  file->mode = status.mode;
  file->memory_alignment = known ? static_cast<int32_t>(status.memory_alignment) : kUsualMemory;
  file->offset_alignment = known ? static_cast<int32_t>(status.offset_alignment) : kUsualOffset;
  if (!file->offset_alignment) file->memory_alignment = 0;
  return true;
}
#else
bool inspect_by_statx(int32_t, accel_io_file*) {
  return false;
}
#endif

// fstat of glibc is a symbol of 2.33. The kernel's struct is the C library's on 64-bit machines.
int plain_stat(int32_t fd, struct stat* status) {
#if defined(__linux__) && defined(__LP64__)
  return static_cast<int>(syscall(SYS_fstat, fd, status));
#else
  return fstat(fd, status);
#endif
}

} // namespace

int accel_io_run(const accel_io_request* request, accel_io_result* result) {
  Job job(*request);
  while (!job.exhausted()) {
    accel_ops::io::Shape shape = next_shape(job, INT32_MAX & ~4095, 1 << 20);
    // Without staging memory here, what O_DIRECT does not take goes through the page cache.
    shape.plain = shape.plain || shape.staged;
    Block block;
    cut(job, shape, block);
    int error = prepare(block);
    while (!error && advance(block, transfer(block), &error) == Next::kAgain) {}
    if (error) job.fail(error, block.offset + block.got);
    job.blocks--;
  }
  *result = job.result();
  return 0;
}

int accel_io_inspect(int32_t fd, accel_io_file* file) {
  std::memset(file, 0, sizeof *file);
  if (inspect_by_statx(fd, file)) return 0;
  struct stat status;
  if (plain_stat(fd, &status)) return errno;
  file->size = status.st_size;
  file->mode = static_cast<int32_t>(status.st_mode);
#if defined(O_DIRECT)
  file->memory_alignment = kUsualMemory;
  file->offset_alignment = kUsualOffset;
#endif
  return 0;
}
