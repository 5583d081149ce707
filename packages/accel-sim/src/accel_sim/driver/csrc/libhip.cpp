// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The names of HIP's runtime and of hipRTC that compile and start a kernel, without a device. The compiler looks at its
// options and at the source's kernels; what it makes has names and no code. Of an image, as of libcuda's, kind, architecture
// and names are looked at.
#include "machine.h"

#include <cstdlib>
#include <cstring>

using namespace accel;

namespace {

constexpr uint16_t kAmd = 224;
constexpr int kCompilation = 6; // HIPRTC_ERROR_COMPILATION
// HIP's threads begin with the first device as the current one.
thread_local int device = 0;

// The numbers of architectures in ELF's flags.
constexpr struct {
  const char* name;
  uint32_t number;
} kArchitectures[] = {{"gfx90a", 0x3f}, {"gfx942", 0x4c}, {"gfx1030", 0x36}};

// 0 for one that is not in the table. Features follow the name after a colon.
uint32_t number_of(const std::string& target) {
  for (const auto& each : kArchitectures)
    if (target.substr(0, target.find(':')) == each.name) return each.number;
  return 0;
}
std::string& architecture() {
  static auto* name = new std::string("gfx90a:sramecc+:xnack-");
  return *name;
}

struct Program {
  std::string source, log, code;
};

std::string image_for(uint32_t number) {
  std::string names;
  for (const auto& kernel : kernels()) names += std::string(kernel.name) + '\0';
  std::string header(kElfHeader, '\0');
  const uint64_t end = kElfHeader + names.size();
  std::memcpy(&header[0], "\177ELF\2", 5);
  std::memcpy(&header[18], &kAmd, sizeof kAmd);
  std::memcpy(&header[40], &end, sizeof end);
  std::memcpy(&header[48], &number, sizeof number);
  return header + names;
}

} // namespace

ACCEL_VISIBLE int hipInit(unsigned) {
  machine().ready = true;
  return kSuccess;
}
ACCEL_VISIBLE int hipGetDevice(int* out) {
  *out = device;
  return machine().ready ? kSuccess : kNotInitialized;
}
ACCEL_VISIBLE int hipSetDevice(int wanted) {
  if (!context_of(wanted)) return kInvalidDevice;
  device = wanted;
  return kSuccess;
}
ACCEL_VISIBLE int hipModuleLoadData(void** module, const void* image) {
  if (!machine().ready) return kNotInitialized;
  if (std::memcmp(image, "\177ELF", 4) || elf_machine(image) != kAmd) return kInvalidImage;
  if ((elf_flags(image) & 0xff) != number_of(architecture())) return kNoBinary;
  *module = keep_image(elf_content(image), context_of(device));
  return kSuccess;
}
ACCEL_VISIBLE int hipModuleGetFunction(void** function, void* module, const char* name) {
  return find_function(function, module, name);
}
ACCEL_VISIBLE int hipModuleLaunchKernel(
    void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
    unsigned block_z, unsigned, void* stream, void** arguments, void**) {
  return launch(function, context_of(device), {grid_x, grid_y, grid_z, block_x, block_y, block_z}, stream, arguments);
}
ACCEL_VISIBLE const char* hipGetErrorName(int status) {
  switch (status) {
    case kInvalidValue: return "hipErrorInvalidValue";
    case kNotInitialized: return "hipErrorNotInitialized";
    case kInvalidDevice: return "hipErrorInvalidDevice";
    case kInvalidImage: return "hipErrorInvalidImage";
    case kInvalidContext: return "hipErrorInvalidContext";
    case kNoBinary: return "hipErrorNoBinaryForGpu";
    case kInvalidHandle: return "hipErrorInvalidHandle";
    case kNotFound: return "hipErrorNotFound";
    case kLaunchFailed: return "hipErrorLaunchFailure";
    default: return "hipErrorUnknown";
  }
}

ACCEL_VISIBLE int hiprtcCreateProgram(
    void** out, const char* source, const char*, int headers, const char**, const char**) {
  *out = new Program{source, "", ""};
  return headers ? kInvalidValue : kSuccess;
}
ACCEL_VISIBLE int hiprtcCompileProgram(void* of, int count, const char** options) {
  auto& program = *static_cast<Program*>(of);
  std::string target, contraction;
  for (int i = 0; i < count; ++i) {
    const std::string option = options[i];
    if (option.rfind("--offload-arch=", 0) == 0) target = option.substr(15);
    if (option.rfind("-ffp-contract=", 0) == 0) contraction = option.substr(14);
  }
  if (!number_of(target)) program.log = "error: unknown target '" + target + "'";
  else if (contraction != "off") program.log = "error: a * b + c would be contracted";
  else if (program.source.find("#include \"") != std::string::npos) program.log = "fatal error: file not found";
  else if (program.source.find("ACCEL_KERNEL accel_") == std::string::npos) program.log = "error: no kernels";
  else program.code = image_for(number_of(target));
  return program.code.empty() ? kCompilation : kSuccess;
}
ACCEL_VISIBLE int hiprtcGetProgramLogSize(void* of, size_t* size) {
  *size = static_cast<Program*>(of)->log.size() + 1;
  return kSuccess;
}
ACCEL_VISIBLE int hiprtcGetProgramLog(void* of, char* log) {
  const auto& text = static_cast<Program*>(of)->log;
  std::memcpy(log, text.c_str(), text.size() + 1);
  return kSuccess;
}
ACCEL_VISIBLE int hiprtcGetCodeSize(void* of, size_t* size) {
  *size = static_cast<Program*>(of)->code.size();
  return kSuccess;
}
ACCEL_VISIBLE int hiprtcGetCode(void* of, char* code) {
  const auto& made = static_cast<Program*>(of)->code;
  std::memcpy(code, made.data(), made.size());
  return kSuccess;
}
ACCEL_VISIBLE int hiprtcDestroyProgram(void** of) {
  delete static_cast<Program*>(*of);
  return kSuccess;
}

// For tests: another architecture.
ACCEL_VISIBLE void accel_driver_set_architecture(const char* name) {
  architecture() = name;
}
