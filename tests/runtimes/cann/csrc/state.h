// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What there is in a process: devices with their memory and streams, events, graphs. Of libascendcl.so alone.
#pragma once

#include <condition_variable>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "driver.h"

namespace emulated {

using Work = std::function<aclError()>;
using Lock = std::lock_guard<std::mutex>;
using UniqueLock = std::unique_lock<std::mutex>;

// Of this thread: its device, -1 if none was set; the message that aclGetRecentErrMsg returns.
inline thread_local int g_device = -1;
inline thread_local std::string g_message;

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

std::vector<int> visible_devices();

// Everything of this process.
struct Driver {
  std::mutex mutex;
  std::vector<int> numbers = visible_devices();
  std::vector<std::unique_ptr<Device>> devices;
  std::set<Stream*> streams;
  Blocks host;
  std::map<const void*, std::shared_ptr<Graph>> graphs;
  int last_stream = 0;
  bool initialized = false, forked = false;

  Driver();
};

Driver& driver();

int count();

void activate(int device);

// The device of this thread, which is aclInit's default where it set none; -1: there is none.
int current();

// null: it does not exist, or the thread has no device.
Stream* find(aclrtStream stream);

aclError no_stream();
aclError bad_device(int device);
aclError no_context();

uint64_t nanoseconds();

} // namespace emulated
