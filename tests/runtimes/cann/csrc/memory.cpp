// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Part of libascendcl.so: memory of devices, pinned memory of the host, copies.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "state.h"

using namespace emulated;

constexpr size_t kPage = 4096;
constexpr size_t kBlock = 512;
// Fresh memory of a device is not zero: as floats these bytes are NaN.
constexpr int kPoison = 0xFF;

static size_t rounded(size_t size, size_t to) {
  return (size + to - 1) / to * to;
}

static aclError allocate(void** address, size_t asked) {
  const int device = current();
  if (device < 0) return no_context();
  if (fault("aclrtMalloc") == "refuse") return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMalloc was made to fail");
  const size_t size = rounded(asked ? asked : 1, kBlock), pages = rounded(size, kPage);
  if (!driver().devices[device]->take(size))
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "device " + std::to_string(device) + " has no " + std::to_string(size) + " bytes left");
  void* const made = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) {
    driver().devices[device]->give(size);
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "the host has no memory left");
  }
  memset(made, kPoison, size);
  driver().devices[device]->blocks.insert(made, size);
  *address = made;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtMalloc(void** address, size_t size, aclrtMemMallocPolicy) {
  return allocate(address, size);
}

CANN_API aclError aclrtMallocAlign32(void** address, size_t size, aclrtMemMallocPolicy) {
  return allocate(address, size);
}

CANN_API aclError aclrtFree(void* address) {
  for (auto& device : driver().devices) {
    const size_t size = device->blocks.remove(address);
    if (!size) continue;
    device->give(size);
    munmap(address, rounded(size, kPage));
    return ACL_SUCCESS;
  }
  return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtFree of memory that no device has");
}

CANN_API aclError aclrtGetMemInfo(aclrtMemAttr, size_t* left, size_t* total) {
  if (current() < 0) return no_context();
  *total = Device::capacity();
  *left = *total - driver().devices[current()]->used;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtMallocHost(void** address, size_t size) {
  if (fault("aclrtMallocHost") == "refuse") return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocHost was made to fail");
  if (posix_memalign(address, kPage, rounded(size ? size : 1, kPage)))
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "the host has no memory left");
  driver().host.insert(*address, size ? size : 1);
  return ACL_SUCCESS;
}

CANN_API aclError aclrtMallocHostWithCfg(void** address, uint64_t size, aclrtMallocConfig*) {
  return aclrtMallocHost(address, size);
}

CANN_API aclError aclrtFreeHost(void* address) {
  if (!driver().host.remove(address)) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtFreeHost of memory that is not pinned");
  free(address);
  return ACL_SUCCESS;
}

CANN_API aclError aclrtHostRegister(void* address, uint64_t size, aclrtHostRegisterType, void** on_device) {
  if (reinterpret_cast<uintptr_t>(address) % kPage) return fail(ACL_ERROR_RT_PARAM_INVALID, "memory to be registered begins within a page");
  driver().host.insert(address, size);
  if (on_device) *on_device = address;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtHostRegisterV2(void* address, uint64_t size, uint32_t) {
  return aclrtHostRegister(address, size, ACL_HOST_REGISTER_MAPPED, nullptr);
}

CANN_API aclError aclrtHostUnregister(void* address) {
  return driver().host.remove(address) ? ACL_SUCCESS : fail(ACL_ERROR_RT_PARAM_INVALID, "this memory is not registered");
}

CANN_API aclError aclrtPointerGetAttributes(const void* address, aclrtPtrAttributes* found) {
  memset(found, 0, sizeof *found);
  found->location.type = driver().host.holds(address, 1) ? ACL_MEM_LOCATION_TYPE_HOST : ACL_MEM_LOCATION_TYPE_UNREGISTERED;
  for (int device = 0; device < count(); ++device)
    if (driver().devices[device]->blocks.holds(address, 1))
      found->location.id = static_cast<uint32_t>(device), found->location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  return ACL_SUCCESS;
}

static aclError too_long(const char* what, size_t bytes, size_t room) {
  return fail(ACL_ERROR_RT_PARAM_INVALID, std::string(what) + " of " + std::to_string(bytes) + " bytes into " + std::to_string(room));
}

// Host memory may be any: a copy from memory that is not pinned is staged, so its source is read at the call.
static aclError copy(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind, aclrtStream stream) {
  if (bytes > room) return too_long("a copy", bytes, room);
  const int device = device_of(stream);
  const bool reads = kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
  const bool writes = kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
  const bool between = kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
  const auto check = [=](const void* address) {
    std::string why = unusable(address, bytes, device);
    for (int other = 0; between && !why.empty() && other < count(); ++other) why = unusable(address, bytes, other);
    return why;
  };
  std::shared_ptr<std::vector<char>> staged;
  if (kind == ACL_MEMCPY_HOST_TO_DEVICE && !driver().host.holds(from, bytes))
    staged = std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  return submit(stream, "aclrtMemcpy", [=] {
    for (const auto& [checked, address] : {std::pair<bool, const void*>{reads, from}, {writes, to}})
      if (std::string why = checked ? check(address) : ""; !why.empty())
        return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemcpy uses " + why);
    memmove(to, staged ? staged->data() : from, bytes);
    return ACL_SUCCESS;
  });
}

CANN_API aclError aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind) {
  if (const aclError error = copy(to, room, from, bytes, kind, nullptr)) return error;
  Stream* const usual = find(nullptr);
  return usual ? usual->wait() : no_stream();
}

CANN_API aclError aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind, aclrtStream stream) {
  return copy(to, room, from, bytes, kind, stream);
}

CANN_API aclError aclrtMemsetAsync(void* address, size_t room, int32_t value, size_t bytes, aclrtStream stream) {
  if (bytes > room) return too_long("aclrtMemset", bytes, room);
  const int device = device_of(stream);
  return submit(stream, "aclrtMemset", [=] {
    if (const std::string why = unusable(address, bytes, device); !why.empty())
      return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemset uses " + why);
    memset(address, value, bytes);
    return ACL_SUCCESS;
  });
}

CANN_API aclError aclrtMemset(void* address, size_t room, int32_t value, size_t bytes) {
  if (const aclError error = aclrtMemsetAsync(address, room, value, bytes, nullptr)) return error;
  Stream* const usual = find(nullptr);
  return usual ? usual->wait() : no_stream();
}

// Addresses without memory, and memory without an address: torch_npu's expandable segments map one to the other.

struct Physical {
  int file, device;
  size_t size;
};

CANN_API aclError aclrtReserveMemAddress(void** address, size_t size, size_t, void* wanted, uint64_t) {
  *address = mmap(wanted, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *address == MAP_FAILED ? fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no addresses left") : ACL_SUCCESS;
}

CANN_API aclError aclrtReleaseMemAddress(void*) {
  return ACL_SUCCESS;
}

CANN_API aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size, const aclrtPhysicalMemProp*, uint64_t) {
  const int device = current();
  if (device < 0) return no_context();
  if (!driver().devices[device]->take(size)) return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "the device has no memory left");
  const int file = memfd_create("emulated-cann", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(size))) return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "the host has no memory left");
  *handle = reinterpret_cast<aclrtDrvMemHandle>(new Physical{file, device, size});
  return ACL_SUCCESS;
}

CANN_API aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  auto* const physical = reinterpret_cast<Physical*>(handle);
  driver().devices[physical->device]->give(physical->size);
  close(physical->file);
  delete physical;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtMapMem(void* address, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t) {
  const auto* const physical = reinterpret_cast<Physical*>(handle);
  const int flags = MAP_SHARED | MAP_FIXED;
  if (mmap(address, size, PROT_READ | PROT_WRITE, flags, physical->file, static_cast<off_t>(offset)) == MAP_FAILED)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "this memory cannot be mapped there");
  driver().devices[physical->device]->blocks.insert(address, size);
  return ACL_SUCCESS;
}

CANN_API aclError aclrtUnmapMem(void* address) {
  for (auto& device : driver().devices) {
    const size_t size = device->blocks.remove(address);
    if (!size) continue;
    mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return ACL_SUCCESS;
  }
  return fail(ACL_ERROR_RT_PARAM_INVALID, "nothing is mapped there");
}
