// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// libacl_op_compiler.so: options of compilation, and operators by their names in graphs, which torch_npu calls where
// libopapi.so has no function for an operator.
#include <acl/acl_op_compiler.h>

#include <cstring>
#include <map>

#include "handles.h"

struct aclTensorDesc {
  int type;
  std::vector<int64_t> sizes;
  int format;
  bool on_host = false;
};
struct aclDataBuffer {
  void* data;
  size_t size;
};
struct aclopAttr {
  std::map<std::string, int64_t> integers;
};

namespace emulated {
namespace {

using Body = void (*)(Tensors& in, Tensors& out, aclopAttr& attributes);

bool attribute(const aclopAttr& attributes, const char* name) {
  const auto found = attributes.integers.find(name);
  return found != attributes.integers.end() && found->second;
}

Ints axes(const Tensor& tensor) {
  const Tensor wide = tensor.to(at::kLong).contiguous();
  return {wide.const_data_ptr<int64_t>(), wide.const_data_ptr<int64_t>() + wide.numel()};
}

// The indices of each dimension.
c10::List<std::optional<Tensor>> columns(const Tensor& indices) {
  c10::List<std::optional<Tensor>> found;
  for (const Tensor& column : indices.to(at::kLong).unbind(-1)) found.push_back(column);
  return found;
}

// Inputs: parameter, two moments, powers of the betas, lr, decay, betas, eps, gradient. In float64, from scalars as they
// arrive: torch_npu has rounded them to the parameter's type.
void adam_w(Tensors& in, Tensors& out, aclopAttr& attributes) {
  double number[7];
  for (int i = 0; i < 7; ++i) number[i] = in[3 + i].to(at::kDouble).item<double>();
  const auto [power1, power2, lr, decay, beta1, beta2, eps] = number;
  const auto wide = [&](int i) { return in[i].to(at::kDouble); };
  const Tensor grad = attribute(attributes, "maximize") ? wide(10).neg() : wide(10);
  const Tensor m = wide(1) * beta1 + grad * (1 - beta1), v = wide(2) * beta2 + grad * grad * (1 - beta2);
  const Tensor below = (v / (1 - power2 * beta2)).sqrt() + eps;
  put(out[0], wide(0) * (1 - lr * decay) - lr * (m / (1 - power1 * beta1)) / below);
  put(out[1], m);
  put(out[2], v);
}

const std::map<std::string, Body> kBodies = {
    {"ApplyAdamW", adam_w},
    {"ScatterNdAdd", [](Tensors& in, Tensors& out, aclopAttr&) { put(out[0], at::index_put(in[0], columns(in[1]), in[2], true)); }},
    {"ReduceMax", [](Tensors& in, Tensors& out, aclopAttr& a) { put(out[0], at::amax(in[0], axes(in[1]), attribute(a, "keep_dims"))); }},
    {"ReduceMin", [](Tensors& in, Tensors& out, aclopAttr& a) { put(out[0], at::amin(in[0], axes(in[1]), attribute(a, "keep_dims"))); }},
    {"ReduceLogSumExp",
     [](Tensors& in, Tensors& out, aclopAttr& a) { put(out[0], at::logsumexp(in[0], axes(in[1]), attribute(a, "keep_dims"))); }},
};

Tensor tensor(const aclTensorDesc* description, const aclDataBuffer* buffer) {
  if (!buffer || description->type == ACL_DT_UNDEFINED) return {};
  if (!buffer->data) return at::empty(description->sizes, type_of(description->type));  // without elements
  const Tensor found = at::from_blob(buffer->data, description->sizes, at::TensorOptions(type_of(description->type)));
  return description->on_host ? found.clone() : found;  // memory of the host is the caller's again after the call
}

aclError execute(
    const char* type, int inputs, const aclTensorDesc* const* in, const aclDataBuffer* const* in_data, int outputs,
    const aclTensorDesc* const* out, aclDataBuffer* const* out_data, const aclopAttr* attributes, aclrtStream stream) {
  const std::string name = type;
  const auto body = kBodies.find(name);
  if (body == kBodies.end()) return fail(ACL_ERROR_OP_NOT_FOUND, "there is no graph operator " + name);
  Tensors read, written;
  const aclError error = computed(name, [&] {
    for (int i = 0; i < inputs; ++i) read.push_back(tensor(in[i], in_data[i]));
    for (int i = 0; i < outputs; ++i) written.push_back(tensor(out[i], out_data[i]));
  });
  if (error) return error;
  const std::string planted = fault(name);
  return submit(stream, name, planted, [=, run = body->second, given = attributes ? *attributes : aclopAttr{}]() mutable {
    g_wrong = planted == "wrong";
    const aclError ended = computed(name, [&] { run(read, written, given); });
    g_wrong = false;
    return ended;
  });
}

std::map<int, std::string>& options() {
  static auto* const made = new std::map<int, std::string>;
  return *made;
}

} // namespace
} // namespace emulated

using namespace emulated;

CANN_API aclError aclSetCompileopt(aclCompileOpt option, const char* value) {
  return options()[option] = value, ACL_SUCCESS;
}
CANN_API size_t aclGetCompileoptSize(aclCompileOpt option) {
  return options()[option].size() + 1;
}
CANN_API aclError aclGetCompileopt(aclCompileOpt option, char* value, size_t size) {
  return strncpy(value, options()[option].c_str(), size), ACL_SUCCESS;
}

CANN_API aclTensorDesc* aclCreateTensorDesc(aclDataType type, int dims, const int64_t* sizes, aclFormat format) {
  return new aclTensorDesc{type, {sizes, sizes + dims}, format};
}
CANN_API void aclDestroyTensorDesc(const aclTensorDesc* description) {
  delete description;
}
CANN_API aclDataBuffer* aclCreateDataBuffer(void* data, size_t size) {
  return new aclDataBuffer{data, size};
}
CANN_API aclError aclDestroyDataBuffer(const aclDataBuffer* buffer) {
  return delete buffer, ACL_SUCCESS;
}
CANN_API void aclSetTensorDescName(aclTensorDesc*, const char*) {}
CANN_API aclError aclSetTensorFormat(aclTensorDesc*, aclFormat) {
  return ACL_SUCCESS;
}
CANN_API aclError aclSetTensorShape(aclTensorDesc*, int, const int64_t*) {
  return ACL_SUCCESS;
}
CANN_API aclError aclSetTensorPlaceMent(aclTensorDesc* description, aclMemType place) {
  return description->on_host = place != ACL_MEMTYPE_DEVICE, ACL_SUCCESS;
}
CANN_API aclError aclGetTensorDescDimV2(const aclTensorDesc* description, size_t dim, int64_t* size) {
  return *size = description->sizes.at(dim), ACL_SUCCESS;
}
CANN_API size_t aclGetTensorDescNumDims(const aclTensorDesc* description) {
  return description->sizes.size();
}
CANN_API aclDataType aclGetTensorDescType(const aclTensorDesc* description) {
  return static_cast<aclDataType>(description->type);
}
CANN_API aclFormat aclGetTensorDescFormat(const aclTensorDesc* description) {
  return static_cast<aclFormat>(description->format);
}

CANN_API aclopAttr* aclopCreateAttr() {
  return new aclopAttr;
}
CANN_API void aclopDestroyAttr(const aclopAttr* attributes) {
  delete attributes;
}
CANN_API aclError aclopSetAttrBool(aclopAttr* attributes, const char* name, uint8_t value) {
  return attributes->integers[name] = value, ACL_SUCCESS;
}
CANN_API aclError aclopSetAttrInt(aclopAttr* attributes, const char* name, int64_t value) {
  return attributes->integers[name] = value, ACL_SUCCESS;
}
CANN_API aclError aclopSetAttrDataType(aclopAttr*, const char*, aclDataType) {
  return ACL_SUCCESS;
}
CANN_API aclError aclopSetAttrFloat(aclopAttr*, const char*, float) {
  return ACL_SUCCESS;
}
CANN_API aclError aclopSetAttrString(aclopAttr*, const char*, const char*) {
  return ACL_SUCCESS;
}
CANN_API aclError aclopSetAttrListInt(aclopAttr*, const char*, int, const int64_t*) {
  return ACL_SUCCESS;
}
CANN_API aclError aclopSetAttrListBool(aclopAttr*, const char*, int, const uint8_t*) {
  return ACL_SUCCESS;
}
CANN_API aclError aclopSetAttrListFloat(aclopAttr*, const char*, int, const float*) {
  return ACL_SUCCESS;
}
CANN_API aclError aclopSetAttrListListInt(aclopAttr*, const char*, int, const int*, const int64_t* const[]) {
  return ACL_SUCCESS;
}

CANN_API aclError aclopCompileAndExecute(
    const char* type, int inputs, const aclTensorDesc* const in[], const aclDataBuffer* const in_data[], int outputs,
    const aclTensorDesc* const out[], aclDataBuffer* const out_data[], const aclopAttr* attributes, aclopEngineType,
    aclopCompileType, const char*, aclrtStream stream) {
  return execute(type, inputs, in, in_data, outputs, out, out_data, attributes, stream);
}
CANN_API aclError aclopCompileAndExecuteV2(
    const char* type, int inputs, aclTensorDesc* in[], aclDataBuffer* in_data[], int outputs, aclTensorDesc* out[],
    aclDataBuffer* out_data[], aclopAttr* attributes, aclopEngineType, aclopCompileType, const char*, aclrtStream stream) {
  return execute(type, inputs, in, in_data, outputs, out, out_data, attributes, stream);
}
