// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// libascendcl.so: devices whose memory is the host's, streams that are threads, events, graphs of captured work.
//
//   EMULATED_CANN_DEVICES (2)   EMULATED_CANN_MEMORY_MIB (4096)   EMULATED_CANN_FAULTS   EMULATED_CANN_TRACE
//   EMULATED_CANN_SECONDS (120): after which a kernel that hangs, or a rank that does not come, is an error
#include "driver.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

namespace emulated {
namespace {

using Work = std::function<aclError()>;
using Lock = std::lock_guard<std::mutex>;
using UniqueLock = std::unique_lock<std::mutex>;

constexpr size_t kPage = 4096;
constexpr size_t kBlock = 512;
// Fresh memory of a device is not zero: as floats these bytes are NaN.
constexpr int kPoison = 0xFF;

thread_local int g_device = -1;
thread_local std::string g_message;
int g_default_device = -1;  // of threads that set none; aclInit's file names it

uint64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

size_t rounded(size_t size, size_t to) {
  return (size + to - 1) / to * to;
}

// Blocks of memory by their address.
class Blocks {
 public:
  void insert(const void* address, size_t size) {
    const Lock lock(mutex_);
    blocks_[static_cast<const char*>(address)] = size;
  }

  // The size of the block that begins there; 0: none does.
  size_t remove(const void* address) {
    const Lock lock(mutex_);
    const auto found = blocks_.find(static_cast<const char*>(address));
    if (found == blocks_.end()) return 0;
    const size_t size = found->second;
    blocks_.erase(found);
    return size;
  }

  bool holds(const void* address, size_t bytes) {
    const Lock lock(mutex_);
    const char* const begin = static_cast<const char*>(address);
    auto after = blocks_.upper_bound(begin);
    if (after == blocks_.begin()) return false;
    --after;
    return begin + bytes <= after->first + after->second && begin < after->first + after->second;
  }

 private:
  std::mutex mutex_;
  std::map<const char*, size_t> blocks_;
};

struct Graph {
  std::vector<Work> work;
  std::string broken;  // why the capture is not valid
};

class Stream {
 public:
  Stream(int number, int device) : number(number), device(device) {}

  const int number, device;
  std::shared_ptr<Graph> capture;

  void push(Work work) {
    {
      const Lock lock(mutex_);
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }

  // The first error since the last call.
  aclError wait(int milliseconds = -1) {
    UniqueLock lock(mutex_);
    const auto idle = [this] { return queue_.empty() && !busy_; };
    if (milliseconds < 0) changed_.wait(lock, idle);
    else if (!changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), idle)) return ACL_ERROR_RT_STREAM_SYNC_TIMEOUT;
    const aclError error = error_;
    g_message = error ? message_ : g_message;
    error_ = ACL_SUCCESS;
    return error;
  }

  bool idle() {
    const Lock lock(mutex_);
    return queue_.empty() && !busy_;
  }

  void end() {
    {
      const Lock lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    g_device = device;
    for (;;) {
      Work work;
      {
        UniqueLock lock(mutex_);
        changed_.wait(lock, [this] { return over_ || !queue_.empty(); });
        if (queue_.empty()) return;
        work = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
      }
      const aclError error = work();
      work = nullptr;
      if (error) fprintf(stderr, "%s\n", g_message.c_str());  // torch_npu reports the code alone
      {
        const Lock lock(mutex_);
        if (error && !error_) error_ = error, message_ = g_message;
        busy_ = false;
      }
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  std::thread thread_;
  std::string message_;
  aclError error_ = ACL_SUCCESS;
  bool busy_ = false, over_ = false;
};

// What a record refers to, also after the event was destroyed.
struct Moments {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0, time = 0;
  std::shared_ptr<Graph> capture;

  // An event whose record failed is never reached.
  aclError wait(uint64_t ticket) {
    UniqueLock lock(mutex);
    const auto limit = std::chrono::seconds(setting("EMULATED_CANN_SECONDS", 120));
    if (changed.wait_for(lock, limit, [&] { return reached >= ticket; })) return ACL_SUCCESS;
    return fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "aclrtRecordEvent did not end in time");
  }
};

struct Event {
  std::shared_ptr<Moments> moments = std::make_shared<Moments>();
};

struct Device {
  Blocks blocks;
  std::mutex mutex;
  size_t used = 0;
  std::unique_ptr<Stream> usual;
  std::set<int> peers;
  bool active = false;

  bool take(size_t size) {
    const Lock lock(mutex);
    if (used + size > capacity()) return false;
    used += size;
    return true;
  }
  void give(size_t size) {
    const Lock lock(mutex);
    used -= size;
  }
  static size_t capacity() { return static_cast<size_t>(setting("EMULATED_CANN_MEMORY_MIB", 4096)) << 20; }
};

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

struct Driver {
  std::mutex mutex;
  std::vector<int> numbers = visible_devices();
  std::vector<std::unique_ptr<Device>> devices;
  std::set<Stream*> streams;
  Blocks host;
  std::map<const void*, std::shared_ptr<Graph>> graphs;
  int last_stream = 0;
  bool initialized = false, forked = false;

  Driver() {
    for (size_t i = 0; i < numbers.size(); ++i) devices.push_back(std::make_unique<Device>());
    pthread_atfork(nullptr, nullptr, [] {
      for (auto& device : driver().devices) driver().forked |= device->active;  // an unused driver is usable in a child
    });
  }

  static Driver& driver() {
    static Driver* const made = new Driver;  // never destroyed: threads of streams outlive static objects
    return *made;
  }
};

Driver& driver() {
  return Driver::driver();
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

// The device of this thread; -1: none was set.
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

// ---------------------------------------------------------------------------- memory

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

// ---------------------------------------------------------------------------- streams and events

CANN_API aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) {
  const int device = current();
  if (device < 0) return no_context();
  const Lock lock(driver().mutex);
  auto* const made = new Stream(++driver().last_stream, device);
  driver().streams.insert(made);
  *stream = made;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtCreateStream(aclrtStream* stream) {
  return aclrtCreateStreamWithConfig(stream, 0, 0);
}

CANN_API aclError aclrtDestroyStream(aclrtStream stream) {
  auto* const found = static_cast<Stream*>(stream);
  {
    const Lock lock(driver().mutex);
    if (!driver().streams.erase(found)) return fail(ACL_ERROR_RT_PARAM_INVALID, "there is no such stream");
  }
  found->end();
  delete found;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return aclrtDestroyStream(stream);
}

CANN_API aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t milliseconds) {
  Stream* const found = find(stream);
  if (!found) return no_stream();
  if (!found->capture) return found->wait(milliseconds);
  found->capture->broken = "a stream was synchronized";
  return fail(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, "a stream cannot be synchronized while it is captured");
}

CANN_API aclError aclrtSynchronizeStream(aclrtStream stream) {
  return aclrtSynchronizeStreamWithTimeout(stream, -1);
}

CANN_API aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  Stream* const found = find(stream);
  if (!found) return no_stream();
  *status = found->idle() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtStreamGetId(aclrtStream stream, int32_t* number) {
  Stream* const found = find(stream);
  if (!found) return no_stream();
  *number = found->number;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtSynchronizeDeviceWithTimeout(int32_t milliseconds) {
  const int device = current();
  if (device < 0) return no_context();
  std::vector<Stream*> all{driver().devices[device]->usual.get()};
  {
    const Lock lock(driver().mutex);
    for (Stream* stream : driver().streams)
      if (stream->device == device) all.push_back(stream);
  }
  aclError first = ACL_SUCCESS;
  for (Stream* stream : all)
    if (const aclError error = stream->wait(milliseconds); error && !first) first = error;
  return first;
}

CANN_API aclError aclrtSynchronizeDevice() {
  return aclrtSynchronizeDeviceWithTimeout(-1);
}

CANN_API aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t) {
  *event = new Event;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  return aclrtCreateEventExWithFlag(event, flag);
}

CANN_API aclError aclrtDestroyEvent(aclrtEvent event) {
  delete static_cast<Event*>(event);
  return ACL_SUCCESS;
}

CANN_API aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  const auto moments = static_cast<Event*>(event)->moments;
  Stream* const found = find(stream);
  if (!found) return no_stream();
  uint64_t ticket;
  {
    const Lock lock(moments->mutex);
    moments->capture = found->capture;
    ticket = ++moments->recorded;
  }
  return submit(stream, "aclrtRecordEvent", [moments, ticket] {
    {
      const Lock lock(moments->mutex);
      moments->reached = std::max(moments->reached, ticket);
      moments->time = nanoseconds();
    }
    moments->changed.notify_all();
    return ACL_SUCCESS;
  });
}

CANN_API aclError aclrtResetEvent(aclrtEvent, aclrtStream) {
  return ACL_SUCCESS;
}

CANN_API aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  const auto moments = static_cast<Event*>(event)->moments;
  Stream* const found = find(stream);
  if (!found) return no_stream();
  UniqueLock lock(moments->mutex);
  const uint64_t ticket = moments->recorded;
  if (moments->capture) {  // the stream joins the capture, whose work has one order
    found->capture = moments->capture;
    return ACL_SUCCESS;
  }
  lock.unlock();
  return submit(stream, "aclrtStreamWaitEvent", [moments, ticket] {
    return moments->wait(ticket);
  });
}

CANN_API aclError aclrtSynchronizeEvent(aclrtEvent event) {
  const auto moments = static_cast<Event*>(event)->moments;
  return moments->wait(moments->recorded);
}

static bool reached(aclrtEvent event) {
  const auto moments = static_cast<Event*>(event)->moments;
  const Lock lock(moments->mutex);
  return moments->reached >= moments->recorded;
}

CANN_API aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  *status = reached(event) ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status) {
  *status = reached(event) ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtEventElapsedTime(float* milliseconds, aclrtEvent from, aclrtEvent to) {
  const auto begin = static_cast<Event*>(from)->moments, end = static_cast<Event*>(to)->moments;
  if (!begin->reached || !end->reached) return fail(ACL_ERROR_RT_PARAM_INVALID, "an event was not recorded");
  *milliseconds = static_cast<float>(static_cast<double>(static_cast<int64_t>(end->time) - static_cast<int64_t>(begin->time)) / 1e6);
  return ACL_SUCCESS;
}

CANN_API aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t* microseconds) {
  *microseconds = static_cast<Event*>(event)->moments->time / 1000;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc function, void* argument) {
  return submit(stream, "aclrtLaunchHostFunc", [=] { return function(argument), ACL_SUCCESS; });
}

CANN_API aclError aclrtLaunchCallback(aclrtCallback function, void* argument, aclrtCallbackBlockType, aclrtStream stream) {
  return submit(stream, "aclrtLaunchCallback", [=] { return function(argument), ACL_SUCCESS; });
}

// ---------------------------------------------------------------------------- graphs

CANN_API aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode) {
  Stream* const found = find(stream);
  if (!found) return no_stream();
  if (found->capture) return fail(ACL_ERROR_RT_STREAM_CAPTURED, "the stream is captured already");
  found->capture = std::make_shared<Graph>();
  return ACL_SUCCESS;
}

CANN_API aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus* status, aclmdlRI* graph) {
  Stream* const found = find(stream);
  if (!found) return no_stream();
  *status = !found->capture                ? ACL_MODEL_RI_CAPTURE_STATUS_NONE
          : found->capture->broken.empty() ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE
                                           : ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;
  if (graph) *graph = found->capture.get();
  return ACL_SUCCESS;
}

CANN_API aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI* graph) {
  Stream* const found = find(stream);
  if (!found || !found->capture) return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the stream is not captured");
  const auto capture = found->capture;
  {
    const Lock lock(driver().mutex);
    for (Stream* each : driver().streams)
      if (each->capture == capture) each->capture = nullptr;
  }
  found->capture = nullptr;
  if (!capture->broken.empty()) return fail(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "the capture is not valid: " + capture->broken);
  const Lock lock(driver().mutex);
  driver().graphs[capture.get()] = capture;
  *graph = capture.get();
  return ACL_SUCCESS;
}

CANN_API aclError aclmdlRIExecuteAsync(aclmdlRI graph, aclrtStream stream) {
  std::shared_ptr<Graph> work;
  {
    const Lock lock(driver().mutex);
    const auto found = driver().graphs.find(graph);
    if (found == driver().graphs.end()) return fail(ACL_ERROR_RT_PARAM_INVALID, "there is no such graph");
    work = found->second;
  }
  return submit(stream, "aclmdlRIExecuteAsync", [work] {
    aclError first = ACL_SUCCESS;
    for (const Work& each : work->work)
      if (const aclError error = each(); error && !first) first = error;
    return first;
  });
}

CANN_API aclError aclmdlRIDestroy(aclmdlRI graph) {
  const Lock lock(driver().mutex);
  return driver().graphs.erase(graph) ? ACL_SUCCESS : fail(ACL_ERROR_RT_PARAM_INVALID, "there is no such graph");
}

CANN_API aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode*) {
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
