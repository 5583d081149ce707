// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Drivers without a device: kernels are the host's functions of the same names. An image is looked at as a driver does, by
// its kind, its architecture and the names in it; its code is not run.
#include "blocks.h"

#include "accel/kernels.h"

#include <elf.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#define ACCEL_VISIBLE extern "C" __attribute__((visibility("default")))

namespace {

using namespace accel;

// --------------------------------------------------------------------------- what the drivers share
// The same numbers in CUDA and HIP.
enum Status {
  kSuccess = 0, kInvalidValue = 1, kNotInitialized = 3, kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201,
  kNoBinary = 209, kInvalidPtx = 218, kInvalidHandle = 400, kNotFound = 500, kLaunchFailed = 719, kNotSupported = 801,
};

constexpr int kMostDevices = 64;
struct Context {} contexts[kMostDevices]; // one a device
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
  void* last_stream = nullptr;
  int last_device = -1;
  uint64_t launches = 0;
};
Machine& machine() {
  static auto* made = new Machine();
  return *made;
}

// The context of a device; null if there is no such device.
Context* context_of(int device) {
  return device < 0 || device >= machine().devices ? nullptr : &contexts[device];
}

// What an ELF file is for.
Elf64_Ehdr elf_header(const void* bytes) {
  Elf64_Ehdr header;
  std::memcpy(&header, bytes, sizeof header);
  return header;
}
// Images and functions are never deleted: a program may use them until it ends.
Image* elf_image(const void* bytes, Context* context) {
  const auto header = elf_header(bytes);
  const auto end = header.e_shoff + uint64_t{header.e_shentsize} * header.e_shnum; // of the table of sections
  return new Image{std::string(static_cast<const char*>(bytes), end), context};
}

int find_function(void** out, void* image, const char* name) {
  const auto* of = static_cast<Image*>(image);
  const auto* kernel = find_kernel(name);
  if (!kernel || of->content.find(name) == std::string::npos) return kNotFound;
  *out = new Function{kernel, of->context};
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
    machine().last_device = static_cast<int>(current - contexts);
    ++machine().launches;
  }
  return run(*of->kernel, sizes[0], sizes[3], arguments) ? kLaunchFailed : kSuccess;
}

// The names of errors in CUDA and HIP; null for one that has none.
const char* error_name(int status, bool hip) {
  static const struct {
    int status;
    const char *cuda, *hip;
  } names[] = {
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "hipErrorInvalidValue"},
      {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "hipErrorNotInitialized"},
      {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "hipErrorInvalidDevice"},
      {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "hipErrorInvalidImage"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "hipErrorInvalidContext"},
      {kNoBinary, "CUDA_ERROR_NO_BINARY_FOR_GPU", "hipErrorNoBinaryForGpu"},
      {kInvalidPtx, "CUDA_ERROR_INVALID_PTX", nullptr},
      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "hipErrorInvalidHandle"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND", "hipErrorNotFound"},
      {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "hipErrorLaunchFailure"},
      {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", nullptr},
  };
  for (const auto& each : names)
    if (each.status == status) return hip ? each.hip : each.cuda;
  return nullptr;
}

// ------------------------------------------------------- the names of CUDA's driver that start a kernel
thread_local std::vector<Context*> stack;
Context* current() {
  return stack.empty() ? nullptr : stack.back();
}

int read_cubin(const void* bytes, Context* context, void** out) {
  const auto header = elf_header(bytes);
  if (header.e_machine != EM_CUDA) return kInvalidImage;
  // From version 8 of the format on, which NVRTC 12.9 writes for sm_100, the architecture is one byte higher.
  const int arch = header.e_flags >> (header.e_ident[EI_ABIVERSION] >= 8 ? 8 : 0) & 0xff;
  if (arch / 10 != machine().capability / 10 || arch > machine().capability) return kNoBinary;
  *out = elf_image(bytes, context);
  return kSuccess;
}

int read_ptx(const char* text, Context* context, void** out) {
  const char* target = std::strstr(text, ".target sm_");
  if (!target || std::atoi(target + 11) > machine().capability) return kInvalidPtx;
  *out = new Image{text, context};
  return kSuccess;
}

int read_image(const void* data, Context* context, void** out) {
  if (!std::memcmp(data, ELFMAG, SELFMAG)) return read_cubin(data, context, out);
  if (!std::memcmp(data, "//", 2)) return read_ptx(static_cast<const char*>(data), context, out);
  return kInvalidImage;
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
  const auto* found = error_name(status, /*hip=*/false);
  if (!found) return kInvalidValue;
  *name = found;
  return kSuccess;
}

// ------------------------------------ the names of HIP's runtime and of hipRTC that compile and start a kernel
// The compiler looks at its options and at the source's kernels; what it makes has names and no code.
namespace {

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
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_machine = EM_AMDGPU;
  header.e_flags = number;
  header.e_shoff = sizeof header + names.size();
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + names;
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
  if (std::memcmp(image, ELFMAG, SELFMAG) || elf_header(image).e_machine != EM_AMDGPU) return kInvalidImage;
  if ((elf_header(image).e_flags & 0xff) != number_of(architecture())) return kNoBinary;
  *module = elf_image(image, context_of(device));
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
  const auto* found = error_name(status, /*hip=*/true);
  return found ? found : "hipErrorUnknown";
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

// ---------------------------------------------------------------------------------------- for tests
// Another machine, and what was started last.
ACCEL_VISIBLE void accel_driver_set(int devices, int version, int capability) {
  machine().devices = devices;
  machine().version = version;
  machine().capability = capability;
}
ACCEL_VISIBLE uint64_t accel_driver_launches() {
  return machine().launches;
}
ACCEL_VISIBLE void* accel_driver_last_stream() {
  return machine().last_stream;
}
ACCEL_VISIBLE int accel_driver_last_device() {
  return machine().last_device;
}
ACCEL_VISIBLE void accel_driver_set_architecture(const char* name) {
  architecture() = name;
}

// Kernels by their names, without a driver.
// A line a kernel: its name, and the bytes of each argument.
ACCEL_VISIBLE const char* accel_host_kernels() {
  static const auto* text = [] {
    auto* made = new std::string();
    for (const auto& kernel : kernels()) {
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
  const auto* kernel = find_kernel(name);
  if (!kernel) return "no kernel of this name";
  if (!items || items > kMostThreads) return "a block has 1 to 1024 threads";
  return run(*kernel, groups, items, arguments);
}
