// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory: whole pages of their own, so that locking and freeing them touches nobody else's.
#include "accel_host.h"

#if defined(_WIN32)

void* accel_locked_allocate(int64_t, int32_t, int32_t*) {
  return nullptr;
}
void accel_locked_free(void*, int64_t) {}

#else

#include <sys/mman.h>
#include <unistd.h>

namespace {

size_t whole_pages(int64_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto wanted = static_cast<size_t>(bytes > 0 ? bytes : 1);
  return (wanted + page - 1) / page * page;
}

} // namespace

void* accel_locked_allocate(int64_t bytes, int32_t huge, int32_t* locked) {
  const size_t length = whole_pages(bytes);
  void* data = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (huge) madvise(data, length, MADV_HUGEPAGE);  // a wish: the kernel may have none
#else
  (void)huge;
#endif
#if defined(MADV_DONTFORK)
  // A child that copies on write would move pages away from under a device.
  madvise(data, length, MADV_DONTFORK);
#endif
  *locked = mlock(data, length) == 0;
  return data;
}

void accel_locked_free(void* data, int64_t bytes) {
  if (data) munmap(data, whole_pages(bytes));
}

#endif
