// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// libopapi.so: handles of operators, and what is common to all of them.
#include "handles.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <cstring>
#include <limits>

namespace emulated {

thread_local bool g_wrong = false;

// Numbers of the interface of aclnn operators, which no header of the wheel has.
constexpr aclError kInvalidParameter = 161002, kInnerError = 561000;

aclError Plan::end(uint64_t* workspace, aclOpExecutor** executor, std::function<void()> work) {
  executor_->planted = fault(executor_->name);
  if (executor_->planted == "refuse") return fail(kInvalidParameter, executor_->name + " was made to fail at the call");
  executor_->work = std::move(work);
  *workspace = 0;
  *executor = executor_.release();
  return ACL_SUCCESS;
}

// The bytes from a tensor's first element to behind its last one.
static size_t extent(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.numel()) return 0;
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  return static_cast<size_t>(last + 1) * tensor.element_size();
}

aclError computed(const std::string& name, const std::function<void()>& work) {
  const at::AutoDispatchBelowADInplaceOrView below;
  try {
    work();
    return ACL_SUCCESS;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return fail(kInnerError, name + ": " + text.substr(0, text.find("\nException raised")));
  }
}

aclError queue(aclOpExecutor* raw, aclrtStream stream) {
  const std::shared_ptr<aclOpExecutor> executor(raw);
  const int device = device_of(stream);
  return submit(stream, executor->name, executor->planted, [executor, device]() -> aclError {
    for (size_t i = 0; i < executor->tensors.size(); ++i) {
      const at::Tensor& tensor = executor->tensors[i];
      const size_t bytes = extent(tensor);
      if (const std::string why = bytes ? unusable(tensor.data_ptr(), bytes, device) : ""; !why.empty())
        return fail(kInvalidParameter, "tensor " + std::to_string(i) + " of " + executor->name + " is in " + why);
    }
    g_wrong = executor->planted == "wrong";
    const aclError error = computed(executor->name, executor->work);
    g_wrong = false;
    return error;
  });
}

at::ScalarType type_of(int type) {
  switch (type) {
    case ACL_FLOAT: return at::kFloat;
    case ACL_FLOAT16: return at::kHalf;
    case ACL_INT8: return at::kChar;
    case ACL_INT32: return at::kInt;
    case ACL_UINT8: return at::kByte;
    case ACL_INT16: return at::kShort;
    case ACL_UINT16: return at::kUInt16;
    case ACL_UINT32: return at::kUInt32;
    case ACL_INT64: return at::kLong;
    case ACL_UINT64: return at::kUInt64;
    case ACL_DOUBLE: return at::kDouble;
    case ACL_BOOL: return at::kBool;
    case ACL_COMPLEX64: return at::kComplexFloat;
    case ACL_COMPLEX128: return at::kComplexDouble;
    case ACL_BF16: return at::kBFloat16;
    default: throw std::runtime_error("the emulated CANN has no type " + std::to_string(type));
  }
}

void put(const Tensor& out, const Tensor& value) {
  if (!out.defined()) return;
  out.copy_(out.sizes() != value.sizes() && out.numel() == value.numel() ? value.reshape(out.sizes()) : value);
  if (!g_wrong || !out.numel()) return;
  if (out.is_floating_point()) out.fill_(std::numeric_limits<double>::quiet_NaN());
  else out.bitwise_not_();
}

void put(const Output& out, const Tensor& value) {
  out->tensor = out->tensor.flatten().narrow(0, 0, value.numel()).view(value.sizes());
  put(out->tensor, value);
}

at::Generator generator(uint64_t seed, uint64_t offset) {
  return at::detail::createCPUGenerator(seed + 0x9E3779B97F4A7C15ull * offset);
}

template <class Handle, class Item>
static Handle* made(const Item* values, uint64_t count) {
  return new Handle{{values, values + count}};
}

template <class Handle>
static int destroyed(const Handle* handle) {
  delete handle;
  return ACL_SUCCESS;
}

} // namespace emulated

using namespace emulated;

CANN_API aclTensor* aclCreateTensor(
    const int64_t* sizes, uint64_t dims, aclDataType type, const int64_t* strides, int64_t offset, aclFormat, const int64_t*,
    uint64_t, void* data) {
  aclTensor* handle = nullptr;
  computed("aclCreateTensor", [&] {
    const auto found = type_of(type);
    const at::IntArrayRef shape(sizes, dims);
    const auto options = at::TensorOptions().dtype(found).device(at::kCPU);
    char* const begin = static_cast<char*>(data) + offset * static_cast<int64_t>(c10::elementSize(found));
    const at::Tensor tensor = strides ? at::from_blob(begin, shape, at::IntArrayRef(strides, dims), options)
                                      : at::from_blob(begin, shape, options);
    handle = new aclTensor{std::make_shared<View>(View{tensor})};
  });
  return handle;
}

CANN_API aclScalar* aclCreateScalar(void* value, aclDataType type) {
  aclScalar* handle = nullptr;
  computed("aclCreateScalar", [&] { handle = new aclScalar{at::from_blob(value, {}, type_of(type)).item()}; });
  return handle;
}

CANN_API aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t count) {
  return made<aclIntArray>(values, count);
}
CANN_API aclFloatArray* aclCreateFloatArray(const float* values, uint64_t count) {
  return made<aclFloatArray>(values, count);
}
CANN_API aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t count) {
  return made<aclBoolArray>(values, count);
}
CANN_API aclTensorList* aclCreateTensorList(aclTensor* const* items, uint64_t count) {
  return made<aclTensorList>(items, count);
}
CANN_API aclScalarList* aclCreateScalarList(aclScalar* const* items, uint64_t count) {
  return made<aclScalarList>(items, count);
}

CANN_API int aclDestroyTensor(const aclTensor* handle) { return destroyed(handle); }
CANN_API int aclDestroyScalar(const aclScalar* handle) { return destroyed(handle); }
CANN_API int aclDestroyIntArray(const aclIntArray* handle) { return destroyed(handle); }
CANN_API int aclDestroyFloatArray(const aclFloatArray* handle) { return destroyed(handle); }
CANN_API int aclDestroyBoolArray(const aclBoolArray* handle) { return destroyed(handle); }
CANN_API int aclDestroyAclOpExecutor(const aclOpExecutor* handle) { return destroyed(handle); }
CANN_API int aclDestroyTensorList(const aclTensorList* handle) {
  for (const aclTensor* item : handle->items) delete item;
  return destroyed(handle);
}
CANN_API int aclDestroyScalarList(const aclScalarList* handle) {
  for (const aclScalar* item : handle->items) delete item;
  return destroyed(handle);
}

CANN_API int aclGetViewShape(const aclTensor* handle, int64_t** sizes, uint64_t* dims) {
  const auto found = handle->view->tensor.sizes();
  *dims = found.size();
  *sizes = new int64_t[found.size() + 1];
  memcpy(*sizes, found.data(), found.size() * sizeof(int64_t));
  return ACL_SUCCESS;
}
