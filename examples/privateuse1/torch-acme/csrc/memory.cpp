// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The allocator: every storage of the device comes from here.
#include "device.h"
#include "driver.h"

#include <c10/util/Exception.h>

namespace acme {

namespace {

struct Block {
  int device;
  size_t bytes;
  void* data;
};

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  acme_free(block->device, block->data, block->bytes);
  delete block;
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto device = current_device();
    if (bytes == 0) return {nullptr, c10::Device(kType, device)};
    auto* data = acme_malloc(device, bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, data, "acme:", static_cast<int>(device), " has no ", bytes, " bytes left");
    return {data, new Block{device, bytes, data}, &release, c10::Device(kType, device)};
  }
  // The address alone does not say how many bytes to give back: storages are freed through their context.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { acme_copy(to, from, bytes); }
};

Allocator g_allocator;
const bool g_registered = (c10::SetAllocator(kType, &g_allocator), true);

}  // namespace

c10::Allocator* allocator() { return &g_allocator; }

}  // namespace acme
