// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Steps that the interpreter calls as its own builtin functions: preparing a call through ctypes costs several times what
// a step on a small tensor does. Neither Python's nor torch's headers are needed: the interpreter's functions, all of its
// stable ABI, come as addresses (accel_python), tensors are read through DLPack's C exchange table.
//
// What is no plain case (a subclass of tensor, other strides, wrong arguments) is left to the Python function, which serves
// or refuses it.
#include <cstdlib>

#include "accel_ops.h"

namespace accel_ops {
namespace {

// Objects of the interpreter, with the layout of the stable ABI; free-threaded interpreters have another and use ctypes.
struct Object {
  intptr_t references;
  void* type;
};
using Length = intptr_t;
using Call = Object* (*)(Object*, Object* const*, Length, Object*);
using CallMethod = Object* (*)(Object*, Object* const*, size_t, Object*);
using CallObjects = Object* (*)(Object*, ...);  // ends with a null

// PyMethodDef.
struct Method {
  const char* name;
  Call function;
  int flags;
  const char* doc;
};
constexpr int kFastCallWithKeywords = 0x0080 | 0x0002;

// DLPack's DLTensor, ABI version 1.
struct DLTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t dimensions;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
constexpr int32_t kHost = 1;
constexpr uint8_t kFloat = 2, kBfloat = 4;

constexpr Object* kEnd = nullptr;
constexpr int64_t kGrain = 32768;  // up to this many elements one thread works, and the GIL is kept

accel_python g_python{};

template <class Function>
Function as(void* address) {
  return reinterpret_cast<Function>(address);
}

// A tensor that a kernel can work on in place.
struct Tensor {
  void* data;
  int64_t size;
  int32_t type;
};

bool is_plain(const Object* object) {
  return object->type == g_python.tensor_type || object->type == g_python.parameter_type;
}

int32_t element_type(const DLTensor& tensor) {
  if (tensor.lanes != 1) return -1;
  if (tensor.code == kFloat && tensor.bits == 32) return ACCEL_F32;
  if (tensor.code == kBfloat && tensor.bits == 16) return ACCEL_BF16;
  return tensor.code == kFloat && tensor.bits == 16 ? ACCEL_F16 : -1;
}

// Whether the negative bit is set, which DLPack does not show: the memory then has the opposite of each value.
bool is_negative_view(Object* object) {
  Object* const answer = as<Object* (*)(Object*, Object*)>(g_python.is_neg)(object, nullptr);
  if (!answer) as<void (*)()>(g_python.err_clear)();
  const bool negative = answer != g_python.false_object;
  if (answer) as<void (*)(Object*)>(g_python.dec_ref)(answer);
  return negative;
}

// Reads a dense, contiguous tensor of a float type in host memory; false for any other object. The bits are the values
// only if it is no negative view.
bool read_bits(Object* object, Tensor& tensor) {
  if (!is_plain(object)) return false;
  DLTensor found;
  if (as<int (*)(void*, DLTensor*)>(g_python.dltensor_from)(object, &found)) {
    as<void (*)()>(g_python.err_clear)();
    return false;
  }
  tensor.type = element_type(found);
  if (tensor.type < 0 || found.device_type != kHost || !found.data) return false;
  tensor.size = 1;
  for (int32_t i = found.dimensions - 1; i >= 0; --i) {
    if (found.shape[i] != 1 && found.strides && found.strides[i] != tensor.size) return false;
    tensor.size *= found.shape[i];
  }
  tensor.data = static_cast<char*>(found.data) + found.byte_offset;
  return true;
}

bool read(Object* object, Tensor& tensor) {
  return read_bits(object, tensor) && !is_negative_view(object);
}

bool read_real(Object* object, double& value) {
  if (object->type != g_python.float_type && object->type != g_python.int_type) return false;
  value = as<double (*)(Object*)>(g_python.float_as_double)(object);
  if (value != -1 || !as<Object* (*)()>(g_python.err_occurred)()) return true;
  as<void (*)()>(g_python.err_clear)();  // an integer beyond every double
  return false;
}

bool read_step(Object* object, int64_t& value) {
  if (object->type != g_python.int_type) return false;
  value = as<long long (*)(Object*)>(g_python.long_as_longlong)(object);
  if (value == -1) as<void (*)()>(g_python.err_clear)();
  return value >= 1;
}

bool read_bool(Object* object, int32_t& value) {
  value = object == g_python.true_object;
  return value || object == g_python.false_object;
}

// torch's number of threads; -1 with an exception set.
int32_t threads() {
  Object* const answer = as<CallObjects>(g_python.call_objects)(static_cast<Object*>(g_python.get_num_threads), kEnd);
  if (!answer) return -1;
  const auto number = as<long long (*)(Object*)>(g_python.long_as_longlong)(answer);
  as<void (*)(Object*)>(g_python.dec_ref)(answer);
  return static_cast<int32_t>(number);
}

// Calls work(threads), without the GIL where it takes longer than a switch of threads.
template <class Work>
int run(int64_t elements, const Work& work) {
  if (elements <= kGrain) return work(1);
  const int32_t count = threads();
  if (count < 0) as<void (*)()>(g_python.err_clear)();
  void* const state = as<void* (*)()>(g_python.save_thread)();
  const int status = work(count < 1 ? 1 : count);
  as<void (*)(void*)>(g_python.restore_thread)(state);
  return status;
}

Object* number(long value) {
  return as<Object* (*)(long)>(g_python.long_from_long)(value);
}

Object* none() {
  auto* const object = static_cast<Object*>(g_python.none);
  as<void (*)(Object*)>(g_python.inc_ref)(object);
  return object;
}

Object* item(Object* tuple, Length index) {
  return as<Object* (*)(Object*, Length)>(g_python.tuple_item)(tuple, index);
}

// Calls a Python function with the same arguments. PyObject_Vectorcall is no function before Python 3.11.
Object* call(Object* function, Object* const* given, Length count, Object* names) {
  const Length total = count + (names ? as<Length (*)(Object*)>(g_python.tuple_size)(names) : 0);
  auto* const all = static_cast<Object**>(std::malloc(static_cast<size_t>(total + 1) * sizeof(Object*)));
  if (!all) return nullptr;  // the interpreter makes it a SystemError
  all[0] = function;
  for (Length i = 0; i < total; ++i) all[i + 1] = given[i];
  const auto method = as<CallMethod>(g_python.vectorcall_method);
  Object* const result = method(static_cast<Object*>(g_python.call_name), all, static_cast<size_t>(count + 1), names);
  std::free(all);
  return result;
}

// The arguments of DeepSpeed's adam_update.
enum { kId, kStep, kLr, kBeta1, kBeta2, kEps, kDecay, kCorrection, kParam, kGrad, kFirst, kSecond, kArguments };

// Takes the step; false, with nothing written and no exception set, where the Python function has to.
bool try_adam_update(Object* adams, Object* const* given) {
  Object* const decoupled = as<Object* (*)(Object*, Object*)>(g_python.dict_item)(adams, given[kId]);
  accel_adam_arguments a{};
  Tensor param, grad, first, second;
  if (!decoupled) {
    as<void (*)()>(g_python.err_clear)();  // an ID that cannot be hashed
    return false;
  }
  auto& o = a.options;
  if (!read_bool(decoupled, o.decoupled) || !read_step(given[kStep], o.step) || !read_real(given[kLr], o.lr) ||
      !read_real(given[kBeta1], o.beta1) || !read_real(given[kBeta2], o.beta2) || !read_real(given[kEps], o.eps) ||
      !read_real(given[kDecay], o.weight_decay) || !read_bool(given[kCorrection], o.bias_correction))
    return false;
  if (!read(given[kParam], param) || !read(given[kGrad], grad) || !read(given[kFirst], first) ||
      !read(given[kSecond], second))
    return false;
  if (param.size != grad.size || param.size != first.size || param.size != second.size || param.type != grad.type ||
      first.type != second.type)
    return false;
  a.param = param.data, a.grad = grad.data, a.first = first.data, a.second = second.data;
  a.size = param.size;
  a.param_type = param.type, a.grad_type = grad.type, a.state_type = first.type;
  o.grad_factor = 1;
  return run(a.size, [&](int32_t count) {
           a.threads = count;
           return accel_adam_single_tensor(&a);
         }) == ACCEL_OK;
}

// self: (options of the optimizers by ID, the Python function).
Object* adam_update(Object* self, Object* const* given, Length count, Object* names) {
  if (count == kArguments && !names && try_adam_update(item(self, 0), given)) return number(0);
  return call(item(self, 1), given, count, names);
}

Length length(Object* list) {
  return list->type == g_python.list_type ? as<Length (*)(Object*)>(g_python.list_size)(list) : -1;
}

// Null for an index beyond the end: a mode of torch, which runs Python code, may have changed the list.
Object* entry(Object* list, Length index) {
  Object* const object = as<Object* (*)(Object*, Length)>(g_python.list_item)(list, index);
  if (!object) as<void (*)()>(g_python.err_clear)();
  return object;
}

// Writes the addresses of a list of tensors of one type, and their sizes if it is the first one; false for others.
bool pack_list(Object* list, Length count, bool first, int64_t* sizes, void** addresses, int64_t& type) {
  if (length(list) != count) return false;
  for (Length i = 0; i < count; ++i) {
    Tensor tensor;
    Object* const object = entry(list, i);
    if (!object || !read(object, tensor)) return false;
    if (i == 0) type = tensor.type;
    if (first) sizes[i] = tensor.size;
    if (tensor.type != type || tensor.size != sizes[i]) return false;
    addresses[i] = tensor.data;
  }
  return true;
}

// pack(list, ...): bytes with the element type of each list, the sizes, and the addresses of each list, 64 bits each; None
// where a list has anything but plain tensors of one type, with the sizes of those in the first list.
Object* pack(Object*, Object* const* given, Length lists, Object* names) {
  const Length count = lists > 0 && !names ? length(given[0]) : -1;
  if (count < 1) return none();
  const Length words = lists + (1 + lists) * count;
  Object* const made = as<Object* (*)(const char*, Length)>(g_python.bytes_new)(nullptr, 8 * words);
  if (!made) return nullptr;
  auto* const types = reinterpret_cast<int64_t*>(as<char* (*)(Object*)>(g_python.bytes_data)(made));
  int64_t* const sizes = types + lists;
  auto** const addresses = reinterpret_cast<void**>(sizes + count);
  for (Length i = 0; i < lists; ++i)
    if (!pack_list(given[i], count, i == 0, sizes, addresses + i * count, types[i])) {
      as<void (*)(Object*)>(g_python.dec_ref)(made);
      return none();
    }
  return made;
}

// advance(list, amount): adds a number to step counters, float32 scalars, if all have one value; returns the new value, or
// None, with nothing written.
Object* advance(Object*, Object* const* given, Length count, Object* names) {
  double amount;
  const Length counters = count == 2 && !names && read_real(given[1], amount) ? length(given[0]) : -1;
  if (counters < 1) return none();
  auto** const all = static_cast<float**>(std::malloc(static_cast<size_t>(counters) * sizeof(float*)));
  bool equal = all != nullptr;
  for (Length i = 0; equal && i < counters; ++i) {
    Tensor tensor;
    Object* const object = entry(given[0], i);
    equal = object && read_bits(object, tensor) && tensor.type == ACCEL_F32 && tensor.size == 1;
    if (equal) all[i] = static_cast<float*>(tensor.data);
    equal = equal && *all[i] == *all[0];
  }
  const float value = equal ? *all[0] + static_cast<float>(amount) : 0;
  if (equal && amount != 0)
    for (Length i = 0; i < counters; ++i) *all[i] = value;
  std::free(all);
  return equal ? as<Object* (*)(double)>(g_python.float_from_double)(value) : none();
}

Method g_pack{"pack", pack, kFastCallWithKeywords, "Return types, sizes and addresses of lists of tensors."};
Method g_advance{"advance", advance, kFastCallWithKeywords, "Add a number to equal step counters."};
Method g_adam_update{
    "adam_update", adam_update, kFastCallWithKeywords,
    "adam_update($self, optimizer_id, step, lr, beta1, beta2, epsilon, weight_decay, bias_correction, params, grads, "
    "exp_avg, exp_avg_sq, *, rollback=False, grad_factor=1.0, copy=None)\n--\n\nTake one step in place; returns 0."};

} // namespace
} // namespace accel_ops

void* accel_python_function(const accel_python* python, int32_t index, void* self) {
  using namespace accel_ops;
  static Method* const methods[] = {&g_adam_update, &g_pack, &g_advance};
  g_python = *python;
  return as<void* (*)(Method*, void*, void*)>(g_python.new_function)(methods[index], self, nullptr);
}
