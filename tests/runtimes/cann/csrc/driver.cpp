// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// libascendcl.so, with memory.cpp and streams.cpp: start, devices, planted faults; what all libraries share (driver.h).
//
//   EMULATED_CANN_DEVICES (2)   EMULATED_CANN_MEMORY_MIB (4096)   EMULATED_CANN_FAULTS   EMULATED_CANN_TRACE
//   EMULATED_CANN_SECONDS (120): after which a kernel that hangs, or a rank that does not come, is an error
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "state.h"

namespace emulated {
namespace {

int g_default_device = -1;  // of threads that set none; aclInit's file names it

// The kinds of faults that are more than an error.
void suffer(const std::string& kind) {
  if (kind == "dead") kill(getpid(), SIGKILL);
  if (kind == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(500));
  if (kind == "hang") std::this_thread::sleep_for(std::chrono::seconds(setting("EMULATED_CANN_SECONDS", 120)));
}

struct Fault {
  std::string kind;
  long from = 1, calls = 0;
};

std::map<std::string, Fault>& faults() {
  static auto* const made = [] {
    auto* found = new std::map<std::string, Fault>;
    const char* const text = getenv("EMULATED_CANN_FAULTS");
    std::istringstream parts(text ? text : "");
    for (std::string part; std::getline(parts, part, ',');) {
      const size_t equal = part.find('='), at = part.find('@');
      if (equal == std::string::npos) continue;
      Fault& planted = (*found)[part.substr(0, equal)];
      planted.kind = part.substr(equal + 1, at == std::string::npos ? at : at - equal - 1);
      if (at != std::string::npos) planted.from = atol(part.c_str() + at + 1);
    }
    return found;
  }();
  return *made;
}

} // namespace

uint64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Devices that ASCEND_RT_VISIBLE_DEVICES leaves: CANN takes the numbers up to the first that is not valid.
std::vector<int> visible_devices() {
  const int all = static_cast<int>(setting("EMULATED_CANN_DEVICES", 2));
  std::vector<int> found;
  const char* const text = getenv("ASCEND_RT_VISIBLE_DEVICES");
  if (!text) {
    for (int i = 0; i < all; ++i) found.push_back(i);
    return found;
  }
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    char* end = nullptr;
    const long number = strtol(part.c_str(), &end, 10);
    if (part.empty() || *end || number < 0 || number >= all) break;
    found.push_back(static_cast<int>(number));
  }
  return found;
}

Driver::Driver() {
  for (size_t i = 0; i < numbers.size(); ++i) devices.push_back(std::make_unique<Device>());
  pthread_atfork(nullptr, nullptr, [] {
    for (auto& device : driver().devices) driver().forked |= device->active;  // an unused driver is usable in a child
  });
}

Driver& driver() {
  static Driver* const made = new Driver;  // never destroyed: threads of streams outlive static objects
  return *made;
}

int count() {
  return static_cast<int>(driver().devices.size());
}

void activate(int device) {
  Device& chosen = *driver().devices[device];
  const Lock lock(chosen.mutex);
  if (!chosen.usual) chosen.usual = std::make_unique<Stream>(0, device);
  chosen.active = true;
}

int current() {
  if (g_device < 0 && g_default_device >= 0) {
    activate(g_default_device);
    g_device = g_default_device;
  }
  return g_device;
}

Stream* find(aclrtStream stream) {
  if (stream) {
    Driver& all = driver();
    const Lock lock(all.mutex);
    auto* const found = static_cast<Stream*>(stream);
    return all.streams.count(found) ? found : nullptr;
  }
  const int device = current();
  return device < 0 ? nullptr : driver().devices[device]->usual.get();
}

aclError no_stream() {
  return fail(ACL_ERROR_RT_STREAM_CONTEXT, "the stream does not exist, or no device was set in this thread");
}

aclError bad_device(int device) {
  return fail(ACL_ERROR_RT_INVALID_DEVICEID, "device " + std::to_string(device) + " is not one of " + std::to_string(count()));
}

aclError no_context() {
  return fail(ACL_ERROR_RT_CONTEXT_NULL, "no device was set in this thread");
}

long setting(const char* variable, long otherwise) {
  const char* const text = getenv(variable);
  return text && *text ? atol(text) : otherwise;
}

aclError fail(aclError code, const std::string& message) {
  g_message = "the emulated CANN: " + message;
  return code;
}

std::string fault(const std::string& name) {
  static std::mutex mutex;
  if (faults().empty()) return "";
  const Lock lock(mutex);
  const auto found = faults().find(name);
  if (found == faults().end()) return "";
  return ++found->second.calls >= found->second.from ? found->second.kind : "";
}

int device_of(aclrtStream stream) {
  Stream* const found = find(stream);
  return found ? found->device : current();
}

std::string unusable(const void* address, size_t bytes, int device) {
  if (!bytes) return "";
  if (driver().host.holds(address, bytes)) return "";
  for (int each = 0; each < count(); ++each) {
    if (!driver().devices[each]->blocks.holds(address, bytes)) continue;
    if (each == device || driver().devices[device]->peers.count(each)) return "";
    return "memory of device " + std::to_string(each) + ", on device " + std::to_string(device);
  }
  return "memory that no device has: it was freed, or is the host's, or is too short";
}

aclError submit(aclrtStream stream, const std::string& name, Work work) {
  return submit(stream, name, fault(name), std::move(work));
}

aclError submit(aclrtStream stream, const std::string& name, const std::string& kind, Work work) {
  if (driver().forked) return fail(ACL_ERROR_RT_CONTEXT_NULL, name + " in a child of fork(), which has no device");
  Stream* const found = find(stream);
  if (!found) return no_stream();
  static const bool traced = setting("EMULATED_CANN_TRACE", 0);
  if (traced) fprintf(stderr, "[emulated CANN] stream %d.%d: %s\n", found->device, found->number, name.c_str());
  if (kind == "refuse") return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, name + " was made to fail at the call");
  if (!kind.empty() && kind != "wrong")
    work = [name, kind, work = std::move(work)] {
      suffer(kind);
      if (kind == "hang") return fail(ACL_ERROR_RT_AICORE_TIMEOUT, name + " did not end in time");
      return kind == "late" ? fail(ACL_ERROR_RT_AICORE_EXCEPTION, name + " was made to fail on the device") : work();
    };
  if (found->capture) found->capture->work.push_back(std::move(work));
  else found->push(std::move(work));
  return ACL_SUCCESS;
}

} // namespace emulated

using namespace emulated;

// ---------------------------------------------------------------------------- start, devices, contexts

CANN_API aclError aclInit(const char* file) {
  if (FILE* const opened = file ? fopen(file, "r") : nullptr) {
    char text[4096] = {};
    if (fread(text, 1, sizeof text - 1, opened) && strstr(text, "defaultDevice")) g_default_device = 0;
    fclose(opened);
  }
  const Lock lock(driver().mutex);
  if (driver().initialized) return fail(ACL_ERROR_REPEAT_INITIALIZE, "aclInit was called before");
  driver().initialized = true;
  return ACL_SUCCESS;
}

CANN_API aclError aclFinalize() {
  if (driver().forked) return ACL_SUCCESS;
  for (auto& device : driver().devices)
    if (device->usual) device->usual->end();
  for (Stream* stream : driver().streams) stream->end();
  return ACL_SUCCESS;
}

CANN_API const char* aclGetRecentErrMsg() {
  static thread_local std::string last;
  last.swap(g_message);
  g_message.clear();
  return last.empty() ? nullptr : last.c_str();
}

CANN_API void aclAppLog(aclLogLevel level, const char* function, const char*, uint32_t, const char* format, ...) {
  if (!setting("ASCEND_SLOG_PRINT_TO_STDOUT", 0) || level < setting("ASCEND_GLOBAL_LOG_LEVEL", 3)) return;
  va_list rest;
  va_start(rest, format);
  fprintf(stderr, "[%d] %s: ", static_cast<int>(level), function);
  vfprintf(stderr, format, rest);
  fputc('\n', stderr);
  va_end(rest);
}

CANN_API const char* aclrtGetSocName() {
  // torch_npu asks what a name means: a name of its own would be no Ascend at all.
  static const std::string name = getenv("EMULATED_CANN_SOC") ? getenv("EMULATED_CANN_SOC") : "Ascend910B2";
  return count() ? name.c_str() : nullptr;
}

static const char* release() {
  const char* const asked = getenv("EMULATED_CANN_RELEASE");
  return asked ? asked : "9.1.0";
}

CANN_API aclError aclsysGetCANNVersion(aclCANNPackageName, aclCANNPackageVersion* version) {
  memset(version, 0, sizeof *version);
  strncpy(version->version, release(), sizeof version->version - 1);
  return ACL_SUCCESS;
}

CANN_API aclError aclsysGetVersionStr(char*, char* version) {
  strcpy(version, release());
  return ACL_SUCCESS;
}

CANN_API aclError aclrtGetDeviceCount(uint32_t* found) {
  *found = static_cast<uint32_t>(count());
  return count() ? ACL_SUCCESS : fail(ACL_ERROR_RT_NO_DEVICE, "there is no device");
}

CANN_API aclError aclrtSetDevice(int32_t device) {
  if (device < 0 || device >= count()) return bad_device(device);
  if (driver().forked) return fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtSetDevice in a child of fork()");
  activate(device);
  g_device = device;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtGetDevice(int32_t* device) {
  *device = g_device;
  return g_device < 0 ? no_context() : ACL_SUCCESS;
}

CANN_API aclError aclrtResetDevice(int32_t device) {
  if (device < 0 || device >= count()) return bad_device(device);
  driver().devices[device]->active = false;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t* flags, int32_t* active) {
  if (device < 0 || device >= count()) return bad_device(device);
  if (flags) *flags = 0;
  *active = driver().devices[device]->active;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtGetCurrentContext(aclrtContext* context) {
  if (current() < 0) return no_context();
  *context = driver().devices[current()].get();
  return ACL_SUCCESS;
}

CANN_API aclError aclrtSetCurrentContext(aclrtContext context) {
  for (int device = 0; device < count(); ++device)
    if (driver().devices[device].get() == context) return g_device = device, ACL_SUCCESS;
  return fail(ACL_ERROR_RT_CONTEXT_NULL, "there is no such context");
}

CANN_API aclError aclrtGetLogicDevIdByUserDevId(const int32_t user, int32_t* const logical) {
  *logical = user;
  return ACL_SUCCESS;
}

constexpr int kCubeCores = 24, kVectorCores = 48;
constexpr int64_t kCache = int64_t{192} << 20;

CANN_API aclError aclGetDeviceCapability(uint32_t, aclDeviceInfo what, int64_t* value) {
  *value = what == ACL_DEVICE_INFO_AI_CORE_NUM ? kCubeCores : what == ACL_DEVICE_INFO_VECTOR_CORE_NUM ? kVectorCores : kCache;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtGetDeviceInfo(uint32_t, aclrtDevAttr what, int64_t* value) {
  switch (what) {
    case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE: *value = static_cast<int64_t>(Device::capacity()); break;
    case ACL_DEV_ATTR_L2_CACHE_SIZE: *value = kCache; break;
    case ACL_DEV_ATTR_VECTOR_CORE_NUM: *value = kVectorCores; break;
    default: *value = kCubeCores;
  }
  return ACL_SUCCESS;
}

CANN_API aclError aclrtGetDeviceResLimit(int32_t, aclrtDevResLimitType type, uint32_t* value) {
  *value = type == ACL_RT_DEV_RES_CUBE_CORE ? kCubeCores : kVectorCores;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtGetDeviceUtilizationRate(int32_t device, aclrtUtilizationInfo* found) {
  if (device < 0 || device >= count()) return bad_device(device);
  found->cubeUtilization = found->vectorUtilization = found->aicpuUtilization = 0;
  found->memoryUtilization = static_cast<int32_t>(100 * driver().devices[device]->used / Device::capacity());
  return ACL_SUCCESS;
}

CANN_API aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t device, int32_t peer) {
  *can = device != peer && device < count() && peer < count();
  return ACL_SUCCESS;
}

CANN_API aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t) {
  if (peer < 0 || peer >= count()) return bad_device(peer);
  if (current() < 0) return no_context();
  driver().devices[current()]->peers.insert(peer);
  return ACL_SUCCESS;
}

CANN_API aclError aclrtDeviceGetBareTgid(int32_t* process) {
  *process = getpid();
  return ACL_SUCCESS;
}

CANN_API aclError aclrtDeviceGetUuid(int32_t device, aclrtUuid* uuid) {
  if (device < 0 || device >= count()) return bad_device(device);
  memset(uuid, 0, sizeof *uuid);
  snprintf(reinterpret_cast<char*>(uuid), sizeof *uuid, "emulated%d", driver().numbers[device]);
  return ACL_SUCCESS;
}

// What build.py makes of functions that torch_npu's libraries refer to and that nothing here has.
CANN_API aclError emulated_missing(const char* name) {
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, std::string(name) + " is not emulated");
}

// ---------------------------------------------------------------------------- settings without an effect here

#define CANN_IGNORES(name, ...) \
  CANN_API aclError name(__VA_ARGS__) { return ACL_SUCCESS; }
CANN_IGNORES(aclrtSetDeviceSatMode, aclrtFloatOverflowMode)
CANN_IGNORES(aclrtSetOpExecuteTimeOut, uint32_t)
CANN_IGNORES(aclrtSetOpWaitTimeout, uint32_t)
CANN_IGNORES(aclrtSetSysParamOpt, aclSysParamOpt, int64_t)
CANN_IGNORES(aclrtCtxSetSysParamOpt, aclSysParamOpt, int64_t)
CANN_IGNORES(aclrtSetStreamFailureMode, aclrtStream, uint64_t)
CANN_IGNORES(aclrtSetStreamOverflowSwitch, aclrtStream, uint32_t)
CANN_IGNORES(aclrtSetStreamAttribute, aclrtStream, aclrtStreamAttr, aclrtStreamAttrValue*)
CANN_IGNORES(aclrtSubscribeReport, uint64_t, aclrtStream)
CANN_IGNORES(aclrtUnSubscribeReport, uint64_t, aclrtStream)
CANN_IGNORES(aclrtProcessReport, int32_t)
CANN_IGNORES(aclrtGetLastError, aclrtLastErrLevel)
CANN_IGNORES(aclrtPeekAtLastError, aclrtLastErrLevel)

CANN_API aclError aclrtSetOpExecuteTimeOutV2(uint64_t, uint64_t* actual) {
  if (actual) *actual = 0;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtGetSysParamOpt(aclSysParamOpt, int64_t* value) {
  return *value = 0, ACL_SUCCESS;
}

CANN_API aclError aclrtGetStreamOverflowSwitch(aclrtStream, uint32_t* value) {
  return *value = 0, ACL_SUCCESS;
}

// The profiler's front end, of which nobody is registered.
CANN_API uint64_t MsprofSysCycleTime() {
  return nanoseconds();
}
CANN_API uint64_t MsprofGetHashId(const char* text, size_t size) {
  return std::hash<std::string>()(std::string(text, size));
}
CANN_IGNORES(MsprofRegisterCallback, uint32_t, void*)
CANN_IGNORES(MsprofReportAdditionalInfo, uint32_t, const void*, uint32_t)
CANN_IGNORES(MsprofReportApi, uint32_t, const void*)
CANN_IGNORES(MsprofReportCompactInfo, uint32_t, const void*, uint32_t)
