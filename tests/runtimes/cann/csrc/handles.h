// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The handles that operators take, and their two calls: the first plans the work, the second queues it on a stream.
// The bodies compute with torch's operators for the CPU, on the memory of the handles.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver.h"

namespace emulated {

// What a tensor handle refers to; an operator whose result has a shape of its own changes it.
struct View {
  at::Tensor tensor;
};

} // namespace emulated

struct aclTensor {
  std::shared_ptr<emulated::View> view;
};
struct aclScalar {
  at::Scalar value;
};
struct aclIntArray {
  std::vector<int64_t> values;
};
struct aclFloatArray {
  std::vector<float> values;
};
struct aclBoolArray {
  std::vector<bool> values;
};
struct aclTensorList {
  std::vector<aclTensor*> items;
};
struct aclScalarList {
  std::vector<aclScalar*> items;
};
struct aclOpExecutor {
  std::string name, planted;
  std::vector<at::Tensor> tensors;
  std::function<void()> work;
};

namespace emulated {

// The words of operators.txt, as an operator's body has them.
using Tensor = at::Tensor;  // undefined where none was given
using Output = std::shared_ptr<View>;
using Tensors = std::vector<at::Tensor>;
using Scalar = at::Scalar;
using MaybeScalar = std::optional<at::Scalar>;
using Scalars = std::vector<at::Scalar>;
using Ints = std::vector<int64_t>;
using Bools = std::vector<bool>;
using Text = std::string;

// Phase 1: converts what the caller passed into what the body takes.
class Plan {
 public:
  explicit Plan(const char* name) : executor_(std::make_unique<aclOpExecutor>()) { executor_->name = name; }

  template <class Word, class Raw>
  Word take(Raw raw) {
    if constexpr (std::is_same_v<Word, Tensor>) return tensor(raw);
    else if constexpr (std::is_same_v<Word, Output>) return tensor(raw), raw->view;
    else if constexpr (std::is_same_v<Word, Tensors>) {
      Tensors all;
      if (raw)
        for (const aclTensor* item : raw->items) all.push_back(tensor(item));
      return all;
    } else if constexpr (std::is_same_v<Word, MaybeScalar>) return raw ? MaybeScalar(raw->value) : std::nullopt;
    else if constexpr (std::is_same_v<Word, Scalar>) return raw->value;
    else if constexpr (std::is_same_v<Word, Scalars>) {
      Scalars all;
      for (const aclScalar* item : raw->items) all.push_back(item->value);
      return all;
    } else if constexpr (std::is_pointer_v<Raw> && !std::is_same_v<Word, Text>) return raw ? raw->values : Word();
    else return Word(raw);
  }

  aclError end(uint64_t* workspace, aclOpExecutor** executor, std::function<void()> work);

 private:
  at::Tensor tensor(const aclTensor* raw) {
    if (!raw) return {};
    executor_->tensors.push_back(raw->view->tensor);
    return raw->view->tensor;
  }

  std::unique_ptr<aclOpExecutor> executor_;
};

// Phase 2.
aclError queue(aclOpExecutor* executor, aclrtStream stream);

// torch's type of CANN's; raises for one that torch has not.
at::ScalarType type_of(int type);

// Copies a result into the caller's tensor, which has its own type.
void put(const Tensor& out, const Tensor& value);
void put(const Output& out, const Tensor& value);

at::Generator generator(uint64_t seed, uint64_t offset);

// None where all dimensions are meant.
inline at::OptionalIntArrayRef some(const Ints& dims) {
  return dims.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(dims);
}

// Runs work of the device outside of autograd; its exceptions become the error.
aclError computed(const std::string& name, const std::function<void()>& work);

// Whether results are to be wrong: a planted fault, in this thread.
extern thread_local bool g_wrong;

} // namespace emulated
