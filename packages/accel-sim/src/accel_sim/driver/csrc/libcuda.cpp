// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The names of CUDA's driver that start a kernel, without a device: kernels are the host's functions of the same names. An
// image is looked at as a driver does, by its kind, its architecture and the names in it; its code is not run.
#include "machine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace accel;

namespace {

thread_local std::vector<Context*> stack;
Context* current() {
  return stack.empty() ? nullptr : stack.back();
}

// The fields of the ELF header that say what an image is for.
int read_cubin(const unsigned char* bytes, std::string* content) {
  constexpr uint16_t kCuda = 190;
  if (elf_machine(bytes) != kCuda) return kInvalidImage;
  // From version 8 of the format on, which NVRTC 12.9 writes for sm_100, the architecture is one byte higher.
  const int arch = elf_flags(bytes) >> (bytes[8] >= 8 ? 8 : 0) & 0xff;
  if (arch / 10 != machine().capability / 10 || arch > machine().capability) return kNoBinary;
  *content = elf_content(bytes);
  return kSuccess;
}

int read_ptx(const char* text, std::string* content) {
  const char* target = std::strstr(text, ".target sm_");
  if (!target) return kInvalidPtx;
  if (std::atoi(target + 11) > machine().capability) return kInvalidPtx;
  *content = text;
  return kSuccess;
}

int read_image(const void* data, Context* context, void** out) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::string content;
  const int status = !std::memcmp(bytes, "\177ELF", 4) ? read_cubin(bytes, &content)
      : !std::memcmp(bytes, "//", 2) ? read_ptx(reinterpret_cast<const char*>(bytes), &content)
                                     : static_cast<int>(kInvalidImage);
  if (status == kSuccess) *out = keep_image(std::move(content), context);
  return status;
}

} // namespace

ACCEL_VISIBLE int cuInit(unsigned) {
  machine().ready = true;
  return kSuccess;
}
ACCEL_VISIBLE int cuDriverGetVersion(int* version) {
  *version = machine().version;
  return kSuccess;
}
ACCEL_VISIBLE int cuDeviceGet(int* device, int ordinal) {
  if (!machine().ready) return kNotInitialized;
  if (ordinal < 0 || ordinal >= machine().devices) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}
ACCEL_VISIBLE int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = context_of(device);
  return *context ? kSuccess : kInvalidDevice;
}
ACCEL_VISIBLE int cuCtxGetCurrent(void** context) {
  *context = current();
  return kSuccess;
}
ACCEL_VISIBLE int cuCtxPushCurrent_v2(void* context) {
  if (!context) return kInvalidContext;
  stack.push_back(static_cast<Context*>(context));
  return kSuccess;
}
ACCEL_VISIBLE int cuCtxPopCurrent_v2(void** context) {
  if (stack.empty()) return kInvalidContext;
  *context = stack.back();
  stack.pop_back();
  return kSuccess;
}

ACCEL_VISIBLE int cuLibraryLoadData(
    void** library, const void* code, void*, void**, unsigned, void*, void**, unsigned) {
  if (machine().version < 12000) return kNotSupported;
  return machine().ready ? read_image(code, nullptr, library) : static_cast<int>(kNotInitialized);
}
ACCEL_VISIBLE int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  return find_function(kernel, library, name);
}
ACCEL_VISIBLE int cuModuleLoadData(void** module, const void* code) {
  return current() ? read_image(code, current(), module) : static_cast<int>(kInvalidContext);
}
ACCEL_VISIBLE int cuModuleGetFunction(void** function, void* module, const char* name) {
  return find_function(function, module, name);
}

ACCEL_VISIBLE int cuLaunchKernel(
    void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
    unsigned block_z, unsigned, void* stream, void** arguments, void**) {
  return launch(function, current(), {grid_x, grid_y, grid_z, block_x, block_y, block_z}, stream, arguments);
}

ACCEL_VISIBLE int cuGetErrorName(int status, const char** name) {
  static const struct {
    int status;
    const char* name;
  } names[] = {
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"}, {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"}, {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"}, {kNoBinary, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {kInvalidPtx, "CUDA_ERROR_INVALID_PTX"}, {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"}, {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
      {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED"},
  };
  const auto* found = std::find_if(std::begin(names), std::end(names), [&](const auto& each) { return each.status == status; });
  if (found == std::end(names)) return kInvalidValue;
  *name = found->name;
  return kSuccess;
}
