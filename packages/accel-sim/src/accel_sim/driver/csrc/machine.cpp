// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The kernels as functions of the host, what the emulated drivers share, and what tests ask for.
#include "machine.h"

#include "accel/kernels.h"

namespace accel {

Machine& machine() {
  static auto* made = new Machine();
  return *made;
}

Context* context_of(int device) {
  if (device < 0 || device >= machine().devices) return nullptr;
  std::lock_guard<std::mutex> lock(machine().mutex);
  auto& contexts = machine().contexts;
  while (static_cast<int>(contexts.size()) < machine().devices)
    contexts.push_back(std::make_unique<Context>(Context{static_cast<int>(contexts.size())}));
  return contexts[device].get();
}

uint16_t elf_machine(const void* bytes) {
  return elf_field<uint16_t>(bytes, 18);
}
uint32_t elf_flags(const void* bytes) {
  return elf_field<uint32_t>(bytes, 48);
}
std::string elf_content(const void* bytes) {
  const auto sections = uint64_t{elf_field<uint16_t>(bytes, 58)} * elf_field<uint16_t>(bytes, 60);
  return std::string(static_cast<const char*>(bytes), elf_field<uint64_t>(bytes, 40) + sections);
}

void* keep_image(std::string content, Context* context) {
  auto image = std::make_unique<Image>(Image{std::move(content), context});
  std::lock_guard<std::mutex> lock(machine().mutex);
  machine().images.push_back(std::move(image));
  return machine().images.back().get();
}

int find_function(void** out, void* image, const char* name) {
  const auto* of = static_cast<Image*>(image);
  const auto* kernel = find_kernel(name);
  if (!kernel || of->content.find(name) == std::string::npos) return kNotFound;
  std::lock_guard<std::mutex> lock(machine().mutex);
  machine().functions.push_back(std::make_unique<Function>(Function{kernel, of->context}));
  *out = machine().functions.back().get();
  return kSuccess;
}

int launch(void* function, Context* current, const unsigned (&sizes)[6], void* stream, void** arguments) {
  const auto* of = static_cast<Function*>(function);
  if (!current) return kInvalidContext;
  if (of->context && of->context != current) return kInvalidHandle;
  const uint64_t rest = uint64_t{sizes[1]} * sizes[2] * sizes[4] * sizes[5];
  if (rest != 1 || !sizes[0] || sizes[0] > 0x7fffffffu || !sizes[3] || sizes[3] > kMostThreads) return kInvalidValue;
  {
    std::lock_guard<std::mutex> lock(machine().mutex);
    machine().last_stream = stream;
    machine().last_device = current->device;
    ++machine().launches;
  }
  return run(*of->kernel, sizes[0], sizes[3], arguments) ? kLaunchFailed : kSuccess;
}

} // namespace accel

// For tests: another machine, and what was started last.
ACCEL_VISIBLE void accel_driver_set(int devices, int version, int capability) {
  accel::machine().devices = devices;
  accel::machine().version = version;
  accel::machine().capability = capability;
}
ACCEL_VISIBLE uint64_t accel_driver_launches() {
  return accel::machine().launches;
}
ACCEL_VISIBLE void* accel_driver_last_stream() {
  return accel::machine().last_stream;
}
ACCEL_VISIBLE int accel_driver_last_device() {
  return accel::machine().last_device;
}

// Kernels by their names, without a driver.
// A line a kernel: its name, and the bytes of each argument.
ACCEL_VISIBLE const char* accel_host_kernels() {
  static const auto* text = [] {
    auto* made = new std::string();
    for (const auto& kernel : accel::kernels()) {
      *made += kernel.name;
      for (uint32_t i = 0; i < kernel.count; ++i) *made += " " + std::to_string(kernel.sizes[i]);
      *made += "\n";
    }
    return made;
  }();
  return text->c_str();
}

// Returns null, or what went wrong.
ACCEL_VISIBLE const char* accel_host_launch(const char* name, uint32_t groups, uint32_t items, void** arguments) {
  const auto* kernel = accel::find_kernel(name);
  if (!kernel) return "no kernel of this name";
  if (!items || items > accel::kMostThreads) return "a block has 1 to 1024 threads";
  return accel::run(*kernel, groups, items, arguments);
}
