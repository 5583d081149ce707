// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The extension module accel_shm, in Python's limited API: one file serves every Python from 3.10. It does not include
// torch, so that it serves every release of torch, too.
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "group.h"
#include "reduce.h"

namespace accel_shm {
namespace {

// Up to this size one thread works.
constexpr int64_t kQuickBytes = 1 << 20;

// What `setup` was given; the objects live as long as the module.
PyObject *g_types, *g_plain, *g_plain_too, *g_main_is_alive;
PyObject *g_dtype, *g_is_cpu, *g_is_contiguous, *g_is_neg, *g_nbytes, *g_data_ptr, *g_shape;

struct Handle {
  PyObject_HEAD
  Group* group;  // null after `close`
  pid_t process;
  unsigned long caller;  // the thread whose turn it is; 0: nobody's
  bool closing;
};

Handle* of(PyObject* self) {
  return reinterpret_cast<Handle*>(self);
}

void close_group(Handle* handle) {
  delete handle->group;
  handle->group = nullptr;
}

void end_turn(Handle* handle) {
  handle->caller = 0;
  if (handle->closing) close_group(handle);
}

// 32 bits that are the same for shapes that differ only in dimensions of size 1; 0 for a single dimension, whose size is
// compared as bytes. -1 with an exception set.
int64_t shape_number(PyObject* shape) {
  uint32_t hash = 2166136261u;
  const Py_ssize_t dimensions = PyTuple_Size(shape);
  Py_ssize_t counted = 0;
  for (Py_ssize_t i = 0; i < dimensions; ++i) {
    const auto size = static_cast<uint64_t>(PyLong_AsLongLong(PyTuple_GetItem(shape, i)));
    if (size == 1) continue;
    ++counted;
    for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ (size >> shift & 0xff)) * 16777619u;
  }
  if (PyErr_Occurred()) return -1;
  return counted > 1 ? hash : 0;
}

PyObject* tuple_of(const Request& of) {
  return Py_BuildValue("iiiiLL", of.kind, of.type, of.operation, of.root, static_cast<long long>(of.bytes),
                       static_cast<long long>(of.detail));
}

// None; (status, rank, request of that rank, this request) if it failed; null if a signal handler raised an exception.
PyObject* run_request(Handle* handle, const Request& request, const Buffers& buffers) {
  PyThreadState* const thread = PyEval_SaveThread();
  const Result& result = handle->group->run(request, buffers);
  PyEval_RestoreThread(thread);
  if (result.status == ACCEL_SHM_OK) Py_RETURN_NONE;
  if (PyErr_Occurred()) return nullptr;
  return Py_BuildValue("iiNN", result.status, result.rank, tuple_of(result.theirs), tuple_of(request));
}

// run(kind, type, operation, root, bytes, detail, threads[, read, write[, sends, receives]])
// detail: a number or a shape.
PyObject* run(PyObject* self, PyObject* arguments) {
  Request request{};
  Buffers buffers{};
  long long bytes;
  unsigned long long read = 0, write = 0;
  const char *sends = nullptr, *receives = nullptr;
  Py_ssize_t given, taken;
  PyObject* detail;
  if (!PyArg_ParseTuple(arguments, "iiiiLOi|KKy#y#", &request.kind, &request.type, &request.operation, &request.root,
                        &bytes, &detail, &buffers.threads, &read, &write, &sends, &given, &receives, &taken))
    return nullptr;
  if (!of(self)->group || !of(self)->group->has(request.root)) {
    PyErr_SetString(PyExc_ValueError, "a closed group, or a root that is not in the group");
    return nullptr;
  }
  request.bytes = bytes;
  request.detail = PyTuple_Check(detail) ? shape_number(detail) : PyLong_AsLongLong(detail);
  if (PyErr_Occurred()) return nullptr;
  buffers.input = reinterpret_cast<const uint8_t*>(read), buffers.output = reinterpret_cast<uint8_t*>(write);
  buffers.sends = reinterpret_cast<const int64_t*>(sends), buffers.receives = reinterpret_cast<const int64_t*>(receives);
  return run_request(of(self), request, buffers);
}

// The answer of a getter, or of a method without arguments, as a number; false if it has none.
bool ask(PyObject* object, PyObject* name, bool method, int64_t& answer) {
  PyObject* found = PyObject_GetAttr(object, name);
  if (found && method) {
    PyObject* const bound = found;
    found = PyObject_CallNoArgs(bound);
    Py_DECREF(bound);
  }
  if (!found) return false;
  answer = PyLong_AsLongLong(found);
  Py_DECREF(found);
  return answer != -1 || !PyErr_Occurred();
}

// What an all_reduce of a plain tensor in host memory asks for; false for any other tensor.
bool read(PyObject* tensor, PyObject* operation, Request& request, Buffers& buffers) {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(tensor));
  if (type != g_plain && type != g_plain_too) return false;
  PyObject* const dtype = PyObject_GetAttr(tensor, g_dtype);
  PyObject* const number = dtype ? PyDict_GetItemWithError(g_types, dtype) : nullptr;
  Py_XDECREF(dtype);
  if (!number) return false;
  int64_t is_cpu, is_contiguous, is_neg, address;
  if (!ask(tensor, g_is_cpu, false, is_cpu) || !is_cpu || !ask(tensor, g_is_contiguous, true, is_contiguous) ||
      !is_contiguous || !ask(tensor, g_is_neg, true, is_neg) || is_neg || !ask(tensor, g_nbytes, false, request.bytes) ||
      request.bytes > kQuickBytes || !ask(tensor, g_data_ptr, true, address))
    return false;
  PyObject* const sizes = PyObject_GetAttr(tensor, g_shape);
  request.detail = sizes ? shape_number(sizes) : -1;
  Py_XDECREF(sizes);
  request.kind = ACCEL_SHM_ALL_REDUCE;
  request.type = static_cast<int32_t>(PyLong_AsLong(number));
  request.operation = static_cast<int32_t>(PyLong_AsLong(operation));
  buffers.output = reinterpret_cast<uint8_t*>(address);
  buffers.threads = 1;
  return request.detail >= 0 && reducible(request.type, request.operation);
}

// all_reduce(tensor, operation): what `run` returns; False, with nothing done, where the caller has to do it.
PyObject* all_reduce(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  Handle* const handle = of(self);
  Request request{};
  Buffers buffers{};
  if (count != 2 || !handle->group || handle->caller || handle->process != getpid()) Py_RETURN_FALSE;
  handle->caller = PyThread_get_thread_ident();  // first: torch releases the interpreter lock while it is asked
  PyObject* result = Py_False;
  if (read(given[0], given[1], request, buffers)) {
    result = run_request(handle, request, buffers);
  } else {
    PyErr_Clear();
    Py_INCREF(result);
  }
  end_turn(handle);
  return result;
}

// begin(): True once the turn is the caller's; False if it has been, in a call that is under way.
PyObject* begin(PyObject* self, PyObject*) {
  Handle* const handle = of(self);
  const unsigned long me = PyThread_get_thread_ident();
  if (handle->caller == me) Py_RETURN_FALSE;
  while (handle->caller != 0) {
    PyThreadState* const thread = PyEval_SaveThread();
    usleep(1000);
    PyEval_RestoreThread(thread);
    if (PyErr_CheckSignals() != 0) return nullptr;
  }
  handle->caller = me;
  Py_RETURN_TRUE;
}

PyObject* finish(PyObject* self, PyObject*) {
  end_turn(of(self));
  Py_RETURN_NONE;
}

// end(status, rank)
PyObject* end(PyObject* self, PyObject* arguments) {
  int status, rank;
  if (!PyArg_ParseTuple(arguments, "ii", &status, &rank)) return nullptr;
  if (of(self)->group) of(self)->group->end(status, rank);
  Py_RETURN_NONE;
}

// Leaves the group: after the turn, if it is somebody's. Its segment is gone when its last rank has left or ended.
PyObject* close(PyObject* self, PyObject*) {
  Handle* const handle = of(self);
  handle->closing = true;
  if (handle->caller == 0) close_group(handle);
  Py_RETURN_NONE;
}

// A group that was not closed is kept: a rank leaves by closing it, or by its end.
void deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyMethodDef g_methods[] = {
    {"run", run, METH_VARARGS, nullptr},
    {"all_reduce", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(all_reduce)), METH_FASTCALL, nullptr},
    {"begin", begin, METH_NOARGS, nullptr},
    {"finish", finish, METH_NOARGS, nullptr},
    {"end", end, METH_VARARGS, nullptr},
    {"close", close, METH_NOARGS, nullptr},
    {}};
PyType_Slot g_slots[] = {
    {Py_tp_methods, g_methods}, {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)}, {0, nullptr}};
PyType_Spec g_spec{"accel_shm.Group", sizeof(Handle), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, g_slots};
PyTypeObject* g_type;

// join(fd, bytes, rank, pids, spin_us, timeout_ms): the Group of a segment of so many bytes, which may be closed then.
// pids: process of each rank; spin_us: how long to wait busily before sleeping. Raises OSError.
PyObject* join(PyObject*, PyObject* arguments) {
  int fd, rank, spin_us;
  long long bytes, timeout_ms;
  PyObject* given;
  if (!PyArg_ParseTuple(arguments, "iLiO!iL", &fd, &bytes, &rank, &PyTuple_Type, &given, &spin_us, &timeout_ms))
    return nullptr;
  std::vector<int32_t> pids;
  for (Py_ssize_t i = 0; i < PyTuple_Size(given); ++i)
    pids.push_back(static_cast<int32_t>(PyLong_AsLong(PyTuple_GetItem(given, i))));
  if (PyErr_Occurred()) return nullptr;
  Segment segment;
  errno = segment.map(fd, bytes, static_cast<int32_t>(pids.size()));
  if (errno) return PyErr_SetFromErrno(PyExc_OSError);
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(g_type, Py_tp_alloc));
  auto* const handle = reinterpret_cast<Handle*>(allocate(g_type, 0));
  if (!handle) return nullptr;
  handle->group = new Group(segment, rank, pids, spin_us, timeout_ms);
  handle->process = getpid();
  return reinterpret_cast<PyObject*>(handle);
}

// setup(number by dtype, torch.Tensor, torch.nn.Parameter, main_thread().is_alive)
PyObject* setup(PyObject*, PyObject* arguments) {
  if (!PyArg_ParseTuple(arguments, "O!OOO", &PyDict_Type, &g_types, &g_plain, &g_plain_too, &g_main_is_alive))
    return nullptr;
  for (PyObject* object : {g_types, g_plain, g_plain_too, g_main_is_alive}) Py_INCREF(object);
  Py_RETURN_NONE;
}

PyMethodDef g_functions[] = {
    {"join", join, METH_VARARGS, nullptr},
    {"setup", setup, METH_VARARGS, nullptr},
    {}};
PyModuleDef g_module{PyModuleDef_HEAD_INIT, "accel_shm", nullptr, -1, g_functions, nullptr, nullptr, nullptr, nullptr};

} // namespace

bool gives_up() {
  const PyGILState_STATE state = PyGILState_Ensure();
  bool gone = PyErr_CheckSignals() != 0;
  if (!gone) {
    // Signals are for the main thread. Another one has to notice that the interpreter waits for it to end.
    PyObject* const alive = PyObject_CallNoArgs(g_main_is_alive);
    gone = alive != Py_True;
    PyErr_Clear();
    Py_XDECREF(alive);
  }
  PyGILState_Release(state);
  return gone;
}

} // namespace accel_shm

PyMODINIT_FUNC PyInit_accel_shm() {
  using namespace accel_shm;
  g_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&g_spec));
  if (!g_type) return nullptr;
  const struct {
    PyObject** place;
    const char* name;
  } names[] = {{&g_dtype, "dtype"}, {&g_is_cpu, "is_cpu"}, {&g_is_contiguous, "is_contiguous"}, {&g_is_neg, "is_neg"},
               {&g_nbytes, "nbytes"}, {&g_data_ptr, "data_ptr"}, {&g_shape, "shape"}};
  for (const auto& each : names)
    if (!(*each.place = PyUnicode_InternFromString(each.name))) return nullptr;
  return PyModule_Create(&g_module);
}
