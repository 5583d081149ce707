// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Lines of Python on a thread's stack.
#pragma once

#include "runtime.h"

#include <c10/util/FunctionRef.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace accel_sim {

// Internal: torch's, the simulation's and Python's own, which no text shows.
enum class File { Internal, Library, Program };
using Line = std::pair<PyCodeObject*, int>;

// Guarded by the GIL.
struct Lines {
  std::vector<std::string> internal, library;  // folders and files
  std::unordered_map<PyCodeObject*, File> files;  // each is kept: its address means nothing else
  std::map<Line, int> numbers;
  std::vector<Line> all{{nullptr, 0}};  // 0: no line
};
inline Lines& lines() {
  return singleton<Lines>();
}

inline bool begins_with_any(const std::string& text, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& prefix) { return text.rfind(prefix, 0) == 0; });
}

inline bool is_installed(const std::string& file) {
  return file.find("/site-packages/") != std::string::npos || file.find("/dist-packages/") != std::string::npos;
}

inline std::string attribute(PyCodeObject* code, const char* name) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(code)).attr(name).cast<std::string>();
}

inline File kind_of(PyCodeObject* code) {
  const auto [known, is_new] = lines().files.try_emplace(code, File::Program);
  if (!is_new) return known->second;
  Py_INCREF(code);
  const auto file = attribute(code, "co_filename");
  if (begins_with_any(file, lines().internal)) {
    known->second = File::Internal;
  } else if (is_installed(file) || begins_with_any(file, lines().library)) {
    known->second = File::Library;
  }
  return known->second;
}

inline int number_of(PyCodeObject* code, int line) {
  const auto [known, is_new] = lines().numbers.try_emplace({code, line}, static_cast<int>(lines().all.size()));
  if (is_new) lines().all.emplace_back(code, line);
  return known->second;
}

// "train.py:12"; empty for no line.
inline std::string text_of_line(int number) {
  const auto [code, line] = lines().all[static_cast<size_t>(number)];
  return code ? attribute(code, "co_filename") + ":" + std::to_string(line) : "";
}

// Calls a function with each frame of this thread, the innermost first, until it returns false.
inline void each_frame(c10::function_ref<bool(PyFrameObject*, PyCodeObject*)> visit) {
  auto* frame = PyThreadState_GetFrame(PyThreadState_Get());
  for (bool more = true; frame && more;) {
    auto* code = PyFrame_GetCode(frame);
    more = visit(frame, code);
    Py_DECREF(code);
    auto* outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  Py_XDECREF(frame);
}

} // namespace accel_sim
