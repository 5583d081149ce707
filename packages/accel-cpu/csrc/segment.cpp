// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#endif

namespace accel_shm {
namespace {

constexpr uint64_t kMagic = 0x314d48534c454341;  // "ACELSHM1"
constexpr unsigned kCloseOnExec = 1, kAllowSealing = 2;
constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;

// fstat of glibc is a symbol of 2.33. The kernel's struct is the C library's on 64-bit machines.
int plain_stat(int fd, struct stat* status) {
#if defined(__LP64__)
  return static_cast<int>(syscall(SYS_fstat, fd, status));
#else
  return fstat(fd, status);
#endif
}

int64_t rounded_up(int64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

int64_t data_offset(int32_t ranks) {
  return kPage + rounded_up(static_cast<int64_t>(sizeof(Progress)) * ranks);
}

// Room for a page, and for a cache line for each rank, in each of the two slots of each rank.
int64_t least_bytes(int32_t ranks) {
  return data_offset(ranks) + 2 * ranks * rounded_up(64 * static_cast<int64_t>(ranks));
}

void* mapped(int fd, int64_t bytes) {
  return mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

int fill(int fd, int32_t ranks, int64_t bytes, const uint8_t* nonce) {
  if (ftruncate(fd, bytes) != 0) return errno;
  // Without this, memory that is missing later would be a SIGBUS.
  if (const int error = posix_fallocate(fd, 0, bytes)) return error;
  void* memory = mapped(fd, bytes);
  if (memory == MAP_FAILED) return errno;
  auto* header = new (memory) Header{};
  header->version = ACCEL_SHM_VERSION;
  header->ranks = ranks;
  header->bytes = bytes;
  header->slot_bytes = (bytes - data_offset(ranks)) / (2 * ranks) / kPage * kPage;
  std::memcpy(header->nonce, nonce, ACCEL_SHM_NONCE);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    new (static_cast<uint8_t*>(memory) + kPage + static_cast<size_t>(rank) * sizeof(Progress)) Progress{};
  }
  header->magic = kMagic;
  munmap(memory, static_cast<size_t>(bytes));
  // The size can then not change: no rank can make another one fail with SIGBUS.
  return fcntl(fd, F_ADD_SEALS, kSeals) == 0 ? 0 : errno;
}

} // namespace

int Segment::create(int32_t ranks, int64_t bytes, const uint8_t* nonce, int* fd) {
  bytes = bytes / kPage * kPage;
  if (ranks < 1 || bytes < least_bytes(ranks)) return EINVAL;
  *fd = static_cast<int>(syscall(SYS_memfd_create, "accel_shm_segment", kCloseOnExec | kAllowSealing));
  if (*fd < 0) return errno;
  const int error = fill(*fd, ranks, bytes, nonce);
  if (error != 0) close(*fd);
  return error;
}

int Segment::map(int fd, int32_t ranks, const uint8_t* nonce) {
  struct stat file {};
  if (plain_stat(fd, &file) != 0) return errno;
  // A file of somebody else, or one whose size may change, is not ours. Only a memfd can have these seals; of files
  // that cannot be sealed, F_GET_SEALS returns -1, which has all bits.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (file.st_uid != geteuid() || seals < 0 || (seals & kSeals) != kSeals) return EPERM;
  if (ranks < 1 || file.st_size < least_bytes(ranks)) return EINVAL;
  void* memory = mapped(fd, file.st_size);
  if (memory == MAP_FAILED) return errno;
  base_ = static_cast<uint8_t*>(memory);
  bytes_ = file.st_size;
  const Header& found = header();
  slot_bytes_ = (bytes_ - data_offset(ranks)) / (2 * ranks) / kPage * kPage;
  data_ = base_ + data_offset(ranks);
  const bool ours = found.magic == kMagic && found.version == ACCEL_SHM_VERSION && found.ranks == ranks &&
      found.bytes == bytes_ && found.slot_bytes == slot_bytes_ &&
      std::memcmp(found.nonce, nonce, ACCEL_SHM_NONCE) == 0;
  if (ours) return 0;
  unmap();
  return EPERM;
}

void Segment::unmap() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(bytes_));
  base_ = nullptr;
}

} // namespace accel_shm
