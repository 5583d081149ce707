// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What the emulated drivers share: devices, images, and kernels, which are the host's functions of the same names. Codes of
// errors are the same numbers in CUDA and HIP.
#pragma once

#include "blocks.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define ACCEL_VISIBLE extern "C" __attribute__((visibility("default")))

namespace accel {

enum Status {
  kSuccess = 0, kInvalidValue = 1, kNotInitialized = 3, kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201,
  kNoBinary = 209, kInvalidPtx = 218, kInvalidHandle = 400, kNotFound = 500, kLaunchFailed = 719, kNotSupported = 801,
};

struct Context {
  int device;
};
struct Image {
  std::string content;
  Context* context; // of a module; null for a library, which every context takes
};
struct Function {
  const Kernel* kernel;
  Context* context;
};
struct Machine {
  std::mutex mutex;
  bool ready = false;
  int devices = 2, version = 12080, capability = 90;
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<std::unique_ptr<Image>> images;
  std::vector<std::unique_ptr<Function>> functions;
  void* last_stream = nullptr;
  int last_device = -1;
  uint64_t launches = 0;
};
Machine& machine();

// The context of a device; null if there is no such device.
Context* context_of(int device);

template <class T>
T elf_field(const void* bytes, size_t at) {
  T value;
  __builtin_memcpy(&value, static_cast<const char*>(bytes) + at, sizeof value);
  return value;
}
// What an ELF file is for, of its header.
constexpr size_t kElfHeader = 64;
uint16_t elf_machine(const void* bytes);
uint32_t elf_flags(const void* bytes);
// All of it: to the end of the table of sections.
std::string elf_content(const void* bytes);

void* keep_image(std::string content, Context* context);
int find_function(void** out, void* image, const char* name);
int launch(void* function, Context* current, const unsigned (&sizes)[6], void* stream, void** arguments);

} // namespace accel
