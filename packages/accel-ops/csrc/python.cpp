// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The library as an extension module in Python's limited API, so that one file serves every Python from 3.10. Preparing a
// call through ctypes costs several times what a step on a small tensor does. Tensors are read through torch's table for
// DLPack's C exchange: no header of torch is needed.
//
// Everything else (a subclass of tensor, other strides, wrong arguments) is left to the Python function, which serves or
// refuses it. A library compiled without Python's headers has no module: all calls then go through ctypes.
#if __has_include(<Python.h>)
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <cstdlib>

#include "accel_ops.h"

namespace accel_ops {
namespace {

// DLPack's DLTensor and DLPackExchangeAPI, ABI version 1.
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
struct Exchange {
  uint32_t major, minor;
  Exchange* previous;
  void *allocator, *managed_tensor_from, *managed_tensor_to;
  int (*dltensor_from)(void*, DLTensor*);
  void* work_stream;
};
constexpr uint32_t kMajor = 1;
constexpr int32_t kHost = 1;
constexpr uint8_t kFloat = 2, kBfloat = 4;

constexpr int64_t kGrain = 32768;  // up to this many elements one thread works, and the GIL is kept

// What `setup` was given; the objects live as long as the module.
PyObject *g_plain, *g_plain_too, *g_get_num_threads;
int (*g_dltensor_from)(void*, DLTensor*);
PyCFunction g_is_neg;

// A tensor that a kernel can work on in place.
struct Tensor {
  void* data;
  int64_t size;
  int32_t type;
};

int32_t element_type(const DLTensor& tensor) {
  if (tensor.lanes != 1) return -1;
  if (tensor.code == kFloat && tensor.bits == 32) return ACCEL_F32;
  if (tensor.code == kBfloat && tensor.bits == 16) return ACCEL_BF16;
  return tensor.code == kFloat && tensor.bits == 16 ? ACCEL_F16 : -1;
}

// Whether the negative bit is set, which DLPack does not show: the memory then has the opposite of each value.
bool is_negative_view(PyObject* object) {
  PyObject* const answer = g_is_neg(object, nullptr);
  const bool negative = answer != Py_False;
  if (!answer) PyErr_Clear();
  Py_XDECREF(answer);
  return negative;
}

// Reads a dense, contiguous tensor of a float type in host memory; false for any other object. The bits are the values
// only if it is not a negative view.
bool read_bits(PyObject* object, Tensor& tensor) {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (type != g_plain && type != g_plain_too) return false;
  DLTensor found;
  if (g_dltensor_from(object, &found)) {
    PyErr_Clear();
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

bool read(PyObject* object, Tensor& tensor) {
  return read_bits(object, tensor) && !is_negative_view(object);
}

bool read_real(PyObject* object, double& value) {
  if (!PyFloat_CheckExact(object) && !PyLong_CheckExact(object)) return false;
  value = PyFloat_AsDouble(object);
  if (value != -1 || !PyErr_Occurred()) return true;
  PyErr_Clear();  // an integer beyond every double
  return false;
}

bool read_step(PyObject* object, int64_t& value) {
  if (!PyLong_CheckExact(object)) return false;
  value = PyLong_AsLongLong(object);
  if (value == -1) PyErr_Clear();
  return value >= 1;
}

bool read_bool(PyObject* object, int32_t& value) {
  value = object == Py_True;
  return value || object == Py_False;
}

// torch's number of threads, at least 1.
int32_t threads() {
  PyObject* const answer = PyObject_CallNoArgs(g_get_num_threads);
  const long number = answer ? PyLong_AsLong(answer) : -1;
  Py_XDECREF(answer);
  PyErr_Clear();
  return number < 1 ? 1 : static_cast<int32_t>(number);
}

// Calls work(threads), without the GIL where it takes longer than a switch of threads.
template <class Work>
int run(int64_t elements, const Work& work) {
  if (elements <= kGrain) return work(1);
  const int32_t count = threads();
  PyThreadState* const state = PyEval_SaveThread();
  const int status = work(count);
  PyEval_RestoreThread(state);
  return status;
}

// Calls a Python function with the arguments of a builtin one.
PyObject* call(PyObject* function, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  PyObject* const positional = PyTuple_New(count);
  PyObject* const named = names ? PyDict_New() : nullptr;
  PyObject* result = nullptr;
  if (positional && (named || !names)) {
    for (Py_ssize_t i = 0; i < count; ++i) {
      Py_INCREF(given[i]);
      PyTuple_SetItem(positional, i, given[i]);
    }
    bool filled = true;
    for (Py_ssize_t i = 0; filled && names && i < PyTuple_Size(names); ++i)
      filled = PyDict_SetItem(named, PyTuple_GetItem(names, i), given[count + i]) == 0;
    if (filled) result = PyObject_Call(function, positional, named);
  }
  Py_XDECREF(positional);
  Py_XDECREF(named);
  return result;
}

// The arguments of DeepSpeed's adam_update.
enum { kId, kStep, kLr, kBeta1, kBeta2, kEps, kDecay, kCorrection, kParam, kGrad, kFirst, kSecond, kArguments };

// Takes the step; false, with nothing written and no exception set, where the Python function has to.
bool try_adam_update(PyObject* adams, PyObject* const* given) {
  PyObject* const decoupled = PyDict_GetItemWithError(adams, given[kId]);
  accel_adam_options o{};
  Tensor param, grad, first, second;
  if (!decoupled) {
    PyErr_Clear();  // an ID that cannot be hashed
    return false;
  }
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
  o.grad_factor = 1;
  accel_tensor_lists lists{};
  lists.tensors = 1;
  lists.sizes = &param.size;
  lists.params = &param.data, lists.grads = &grad.data, lists.first = &first.data, lists.second = &second.data;
  lists.param_type = param.type, lists.grad_type = grad.type, lists.state_type = first.type;
  return run(param.size, [&](int32_t count) {
           lists.threads = count;
           return accel_adam(&lists, &o);
         }) == ACCEL_OK;
}

// self: (options of the optimizers by ID, the Python function).
PyObject* adam_update(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  if (count == kArguments && !names && try_adam_update(PyTuple_GetItem(self, 0), given)) return PyLong_FromLong(0);
  return call(PyTuple_GetItem(self, 1), given, count, names);
}

Py_ssize_t length(PyObject* list) {
  return PyList_CheckExact(list) ? PyList_Size(list) : -1;
}

// Null for an index beyond the end: a mode of torch, which runs Python code, may have changed the list.
PyObject* entry(PyObject* list, Py_ssize_t index) {
  PyObject* const object = PyList_GetItem(list, index);
  if (!object) PyErr_Clear();
  return object;
}

// Writes the addresses of a list of tensors of one type, and their sizes if it is the first one; false for others.
bool pack_list(PyObject* list, Py_ssize_t count, bool first, int64_t* sizes, void** addresses, int64_t& type) {
  if (length(list) != count) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    Tensor tensor;
    PyObject* const object = entry(list, i);
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
PyObject* pack(PyObject*, PyObject* const* given, Py_ssize_t lists) {
  const Py_ssize_t count = lists > 0 ? length(given[0]) : -1;
  if (count < 1) Py_RETURN_NONE;
  const Py_ssize_t words = lists + (1 + lists) * count;
  PyObject* const made = PyBytes_FromStringAndSize(nullptr, 8 * words);
  if (!made) return nullptr;
  auto* const types = reinterpret_cast<int64_t*>(PyBytes_AsString(made));
  int64_t* const sizes = types + lists;
  auto** const addresses = reinterpret_cast<void**>(sizes + count);
  for (Py_ssize_t i = 0; i < lists; ++i)
    if (!pack_list(given[i], count, i == 0, sizes, addresses + i * count, types[i])) {
      Py_DECREF(made);
      Py_RETURN_NONE;
    }
  return made;
}

template <class Function>
PyCFunction method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef g_adam_update{
    "adam_update", method(adam_update), METH_FASTCALL | METH_KEYWORDS,
    "adam_update($self, optimizer_id, step, lr, beta1, beta2, epsilon, weight_decay, bias_correction, params, grads, "
    "exp_avg, exp_avg_sq, *, rollback=False, grad_factor=1.0, copy=None)\n--\n\nTake one step in place; returns 0."};

// adam_update(decoupled decay by optimizer ID, function): DeepSpeed's adam_update as a builtin function, with the Python
// function for all other calls.
PyObject* new_adam_update(PyObject*, PyObject* state) {
  return PyCFunction_NewEx(&g_adam_update, state, nullptr);
}

// setup(torch.Tensor, torch.nn.Parameter, get_num_threads, the capsule of DLPack's exchange, is_neg of a tensor): False where
// torch has another version of the exchange.
PyObject* setup(PyObject*, PyObject* arguments) {
  PyObject *capsule, *is_neg;
  if (!PyArg_ParseTuple(arguments, "OOOOO", &g_plain, &g_plain_too, &g_get_num_threads, &capsule, &is_neg)) return nullptr;
  auto* exchange = static_cast<Exchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  if (!exchange) return nullptr;
  while (exchange && exchange->major > kMajor) exchange = exchange->previous;
  if (!exchange || exchange->major != kMajor || PyCFunction_GetFlags(is_neg) != METH_NOARGS) Py_RETURN_FALSE;
  Py_INCREF(g_plain);
  Py_INCREF(g_plain_too);
  Py_INCREF(g_get_num_threads);
  g_dltensor_from = exchange->dltensor_from;
  g_is_neg = PyCFunction_GetFunction(is_neg);
  Py_RETURN_TRUE;
}

PyMethodDef g_functions[] = {
    {"adam_update", new_adam_update, METH_VARARGS, nullptr},
    {"pack", method(pack), METH_FASTCALL, nullptr},
    {"setup", setup, METH_VARARGS, nullptr},
    {}};
PyModuleDef g_module{PyModuleDef_HEAD_INIT, "accel_ops_library", nullptr, -1, g_functions, nullptr, nullptr, nullptr, nullptr};

} // namespace
} // namespace accel_ops

PyMODINIT_FUNC PyInit_accel_ops_library() {
  return PyModule_Create(&accel_ops::g_module);
}
#endif
