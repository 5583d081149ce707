// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Every aten operator that has a CPU kernel, on the device: one boxed function that runs the CPU's kernel on host views
// of the device tensors, which are the same memory under the CPU's key. Nothing is copied.
#include "aten.h"
#include "hooks.h"
#include "graphs.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/quantized/QTensorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <optional>
#include <unordered_set>

namespace accel_sim {

namespace {

at::Tensor quantized_like(const at::Tensor& source, c10::Storage storage, c10::DispatchKey key) {
  const auto quantized =
      c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::Quantized, c10::toBackendComponent(key));
  return at::detail::make_tensor<at::QTensorImpl>(
      std::move(storage), c10::DispatchKeySet(quantized), source.dtype(), at::get_qtensorimpl(source)->quantizer());
}

at::SparseTensorImpl& parts(const at::Tensor& tensor) {
  return *static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

void set_parts(at::SparseTensorImpl& to, const at::SparseTensorImpl& like, at::Tensor indices, at::Tensor values) {
  to.raw_resize_(like.sparse_dim(), like.dense_dim(), like.sizes());
  to.set_indices_and_values_unsafe(indices, values);
  to.set_coalesced(like.coalesced());
}

at::Tensor sparse_like(const at::Tensor& source, c10::DispatchKey key, at::Tensor indices, at::Tensor values) {
  const auto sparse = c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::Sparse, c10::toBackendComponent(key));
  auto tensor = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(sparse), source.dtype());
  set_parts(parts(tensor), parts(source), std::move(indices), std::move(values));
  return tensor;
}

void check_layout(const at::Tensor& tensor, const char* found) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.is_sparse() || (tensor.has_storage() && tensor.layout() == c10::kStrided), "the simulated device '",
      config().name, "' has dense and COO tensors only, ", found, " layout ", tensor.layout());
}

} // namespace

at::Tensor with_metadata_of(const at::Tensor& source, c10::Storage storage, c10::DispatchKey key) {
  auto tensor = source.is_quantized()
      ? quantized_like(source, std::move(storage), key)
      : at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), source.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(source.sizes(), source.strides(), source.storage_offset());
  if (source.is_conj()) impl->_set_conj(true);
  if (source.is_neg()) impl->_set_neg(true);
  if (source.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return tensor;
}

void set_shape(const at::Tensor& tensor, const at::Tensor& like) {
  const bool same = tensor.sizes() == like.sizes() && tensor.strides() == like.strides() &&
      tensor.storage_offset() == like.storage_offset();
  if (!same) tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
}

c10::Storage& Aliases::alias_of(const c10::Storage& real) {
  for (auto& known : storages_) {
    if (known.real.is_alias_of(real)) return known.alias;
  }
  auto alias = make_alias(real);
  const auto* data = alias.data();
  storages_.push_back({std::move(alias), real, data, real.nbytes()});
  return storages_.back().alias;
}

at::Tensor Aliases::to_alias(const at::Tensor& real) {
  for (auto& known : tensors_) {
    if (known.real.is_same(real)) return known.alias;
  }
  check_layout(real, "found");
  at::Tensor alias;
  if (real.is_sparse()) {
    const auto indices = to_alias(parts(real).indices()), values = to_alias(parts(real).values());
    alias = sparse_like(real, key_, indices, values);
  } else {
    alias = with_metadata_of(real, alias_of(real.storage()), key_);
  }
  tensors_.push_back({alias, real});
  return alias;
}

at::Tensor Aliases::to_real(const at::Tensor& alias, c10::Device device) {
  if (!alias.defined() || !alias.key_set().has_backend(c10::toBackendComponent(key_))) return alias;
  for (auto& known : tensors_) {
    if (known.alias.is_same(alias)) return known.real;
  }
  check_layout(alias, "the result has");
  const auto key = device.is_cpu() ? c10::DispatchKey::CPU : config().key;
  if (alias.is_sparse()) {
    const auto indices = to_real(parts(alias).indices(), device), values = to_real(parts(alias).values(), device);
    return sparse_like(alias, key, indices, values);
  }
  for (auto& known : storages_) {
    if (known.alias.is_alias_of(alias.storage())) return with_metadata_of(alias, known.real, key);
  }
  auto real = make_real(alias, device);
  storages_.push_back({alias.storage(), real, alias.storage().data(), alias.storage().nbytes()});
  return with_metadata_of(alias, std::move(real), key);
}

void Aliases::write_back() {
  for (auto& known : storages_) {
    if (known.alias.data() != known.data || known.alias.nbytes() != known.bytes) write_back_storage(known);
  }
  for (auto& known : tensors_) {
    known.real.is_sparse() ? write_back_sparse(known) : set_shape(known.real, known.alias);
  }
}

void Aliases::write_back_sparse(const AliasedTensor& known) {
  auto &real = parts(known.real), &alias = parts(known.alias);
  const auto device = known.real.device();
  const auto indices = to_real(alias.indices(), device), values = to_real(alias.values(), device);
  if (indices.is_same(real.indices()) && values.is_same(real.values())) return real.set_coalesced(alias.coalesced());
  set_parts(real, alias, indices, values);
}

// The alias keeps its device storage alive: work that is still running may outlive every device tensor.
c10::Storage HostAliases::make_alias(const c10::Storage& real) {
  if (auto copy = capture_copy_of(real)) return std::move(*copy);
  auto* impl = real.unsafeGetStorageImpl();
  c10::raw::intrusive_ptr::incref(impl);
  c10::DataPtr data(
      impl->mutable_data(), impl,
      [](void* context) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(context)); },
      c10::Device(c10::DeviceType::CPU));
  return make_storage(std::move(data), impl->nbytes(), c10::GetCPUAllocator());
}

// The device takes over the memory of a result.
c10::Storage HostAliases::make_real(const at::Tensor& alias, c10::Device device) {
  check_stores(alias.scalar_type());
  const auto bytes = alias.storage().nbytes();
  if (!bytes) return make_storage(c10::DataPtr(nullptr, device), 0, allocator());
  auto* holder = new c10::Storage(alias.storage());
  c10::DataPtr host(
      holder->mutable_data(), holder, [](void* context) { delete static_cast<c10::Storage*>(context); },
      c10::Device(c10::DeviceType::CPU));
  return make_storage(adopt(std::move(host), bytes, device.index()), bytes, allocator());
}

void HostAliases::write_back_storage(AliasedStorage& changed) {
  auto *host = changed.alias.unsafeGetStorageImpl(), *device = changed.real.unsafeGetStorageImpl();
  const auto where = device->device();
  auto moved = std::move(host->_mutable_data_ptr_no_checks());
  device->set_data_ptr_noswap(
      host->nbytes() ? adopt(std::move(moved), host->nbytes(), where.index()) : c10::DataPtr(nullptr, where));
  device->set_nbytes(host->nbytes());
}

at::Tensor host_alias(const at::Tensor& device_tensor) {
  if (!is_simulated(device_tensor)) return device_tensor;
  check_not_capturing("a collective", device_tensor.device().index());  // on the hosts' network it cannot be recorded
  return HostAliases().to_alias(device_tensor);
}

// ----------------------------------------------------------------------------------------- operators
namespace {

// The device that an operator works on: that of its first device tensor, or the one that it is to make one on.
c10::DeviceIndex device_of(const Stack& arguments) {
  for (const auto& value : arguments) {
    if (value.isTensor() && is_simulated(value.toTensor())) return value.toTensor().device().index();
    if (value.isDevice() && is_simulated(value.toDevice())) return index_of(value.toDevice());
    if (value.isTensorList()) {
      for (const auto& item : value.toTensorVector()) {
        if (is_simulated(item)) return item.device().index();
      }
    }
  }
  return current_device();
}

} // namespace

std::vector<at::Tensor> tensors_of(const Stack& values) {
  std::vector<at::Tensor> result;
  for (const auto& value : values) each_tensor(value, [&](const at::Tensor& tensor) { result.push_back(tensor); });
  return result;
}

torch::Library& library(c10::DispatchKey key, const char* name) {
  return *new torch::Library(torch::Library::IMPL, name, std::make_optional(key), __FILE__, __LINE__);
}

void each_operator(
    const std::string& name, c10::function_ref<void(const std::string&, const c10::OperatorHandle&)> visit) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& each : dispatcher.getAllOpNames()) {
    if (each.name.rfind(name + "::", 0) != 0) continue;
    const auto op = dispatcher.findOp(each);
    if (op && op->hasSchema()) visit(c10::toString(each), *op);
  }
}

void run_observed(
    const c10::OperatorHandle& op, Stack* stack,
    c10::function_ref<void(const c10::OperatorHandle&, Stack*)> run) {
  check_fork();
  if (!Observer::any()) {
    DeviceWorkGuard inside;
    return run(op, stack);
  }
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  const Stack arguments(first, stack->end());
  const Work work{op, arguments, current_stream(device_of(arguments))};
  Observer::each([&](auto& observer) { observer.before_work(work); });
  {
    DeviceWorkGuard inside;
    if (!is_dropped(op, stack)) run(op, stack);
  }
  const Stack results(stack->end() - static_cast<std::ptrdiff_t>(op.schema().returns().size()), stack->end());
  Observer::each([&](auto& observer) { observer.after_work(work, results); });
}

namespace {

// Operators that take host tensors together with device tensors on real accelerators as well.
const std::unordered_set<std::string> kMixesDevices = {
    "aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index",
    "aten::_unsafe_index_put", "aten::_pack_padded_sequence", "aten::_copy_from", "aten::_copy_from_and_resize",
    "aten::set_", "aten::is_set_to", "aten::empty_quantized", "aten::copy_", "aten::_ctc_loss", "aten::_fused_sdp_choice",
    "aten::_local_scalar_dense"};

// The arguments of one call, converted to host tensors.
struct Call {
  Call(const c10::OperatorHandle& handle, c10::DispatchKey key)
      : op(handle), host_key(key), computes(!is_view(handle)) {}

  const c10::OperatorHandle& op;
  c10::DispatchKey host_key;  // of the CPU's kernel
  bool computes;              // it is not a view
  HostAliases aliases;
  c10::DeviceIndex device = -1;
  bool makes_device_tensors = false;
  bool makes_host_tensors = false;  // the caller asks for the CPU
  bool generator_given = false;
  at::Generator other_generator;  // of another device
  at::Tensor host_tensor;  // the first host tensor with a dimension, if any
  bool host_first = false;  // it is the first tensor of all

  at::Tensor tensor(const at::Tensor& value) {
    if (!value.defined()) return value;
    if (!is_simulated(value)) {
      if (value.device().is_cpu() && value.dim() > 0 && !host_tensor.defined()) {
        host_tensor = value;
        host_first = device < 0;
      }
      return value;
    }
    const auto index = value.device().index();
    if (device >= 0 && index != device && config().strict && op.operator_name().name != "aten::copy_") {
      at::Device seen(config().type, device);
      c10::impl::common_device_check_failure(seen, value, op.operator_name().name.c_str(), "other");
    }
    device = index;
    makes_device_tensors = true;
    if (computes) check_computes(value.scalar_type());
    return aliases.to_alias(value);
  }

  void check_devices() const {
    TORCH_CHECK(
        !makes_device_tensors || !other_generator.defined(), "Expected a '", config().type, "' device type for generator but found '",
        other_generator.device().type(), "'");
    if (!config().strict || !host_tensor.defined() || device < 0) return;
    const auto& name = op.operator_name().name;
    const bool mixes = kMixesDevices.count(name) != 0;
    TORCH_CHECK(
        !host_first || name.find("index") == std::string::npos || !mixes,
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)");
    if (mixes) return;
    at::Device mine(config().type, device);
    if (op.hasTag(at::Tag::pointwise)) {
      TORCH_CHECK(
          false, "Expected all tensors to be on the same device, but found at least two devices, ", mine,
          " and cpu!");
    }
    c10::impl::common_device_check_failure(mine, host_tensor, op.operator_name().name.c_str(), "other");
  }

  void convert(c10::IValue& value) {
    if (value.isDevice() && is_simulated(value.toDevice())) {
      if (device < 0) device = index_of(value.toDevice());
      makes_device_tensors = true;
      value = c10::Device(c10::DeviceType::CPU);
    } else if (value.isDevice()) {
      makes_host_tensors = true;
    } else if (value.isGenerator() && is_simulated(value.toGenerator().device())) {
      generator_given = true;
      value = next_generator(value.toGenerator());
    } else if (value.isGenerator()) {
      other_generator = value.toGenerator();
    } else {
      change_tensors(value, [this](const at::Tensor& item) { return tensor(item); });
    }
  }

  void convert_result(c10::IValue& value) {
    const c10::Device mine(config().type, device);
    change_tensors(value, [&](const at::Tensor& item) { return aliases.to_real(item, mine); });
  }
};

// Fills in the operator's generator argument where the caller left it out. False if it draws from the default one.
bool fill_generator(const c10::OperatorHandle& op, Stack& stack, size_t first, c10::DeviceIndex device) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    auto& value = stack[first + i];
    if (arguments[i].name() == "dropout_p" && value.toDouble() == 0) return true;  // attention draws for dropout alone
    if (arguments[i].name() != "generator") continue;
    if (value.isNone()) value = next_generator(default_generator(device));
    return true;
  }
  return false;
}

// Gives the host's default generator the state of the device's for a scope.
class DefaultGeneratorSwap {
 public:
  explicit DefaultGeneratorSwap(at::Generator device) : device_(std::move(device)), host_(at::detail::getDefaultCPUGenerator()) {
    std::lock_guard<std::mutex> lock(host_.mutex());
    before_ = host_.get_state();
    host_.set_state(device_.get_state());
  }
  ~DefaultGeneratorSwap() {
    std::lock_guard<std::mutex> lock(host_.mutex());
    device_.set_state(host_.get_state());
    host_.set_state(before_);
  }
  DefaultGeneratorSwap(const DefaultGeneratorSwap&) = delete;
  DefaultGeneratorSwap& operator=(const DefaultGeneratorSwap&) = delete;

 private:
  at::Generator device_, host_;
  at::Tensor before_;
};

// torch makes the gradient contiguous for some device types and not for xpu; the CPU's kernel relies on it.
void make_contiguous(const c10::OperatorHandle& op, Stack& stack, size_t first) {
  if (op.operator_name().name != "aten::native_group_norm_backward") return;
  for (size_t i = first; i < first + 2; i++) stack[i] = stack[i].toTensor().contiguous();
}

// Runs the CPU's operator on the arguments on the stack; its results there are host tensors.
void compute(Call& call, Stack* stack) {
  const auto& op = call.op;
  const auto arguments = op.schema().arguments().size();
  const auto first = stack->size() - arguments;
  make_contiguous(op, *stack, first);
  for (size_t i = first; i < stack->size(); i++) call.convert((*stack)[i]);
  call.check_devices();
  if (call.device < 0) call.device = current_device();

  std::optional<DefaultGeneratorSwap> swap;
  if (op.hasTag(at::Tag::nondeterministic_seeded) && !call.generator_given && !fill_generator(op, *stack, first, call.device)) {
    swap.emplace(next_generator(default_generator(call.device)));
  }
  {
    at::AutoDispatchBelowADInplaceOrView below;
    if (config().like_hardware) {
      run_as_hardware(op, call.host_key, stack);
    } else {
      op.redispatchBoxed(c10::DispatchKeySet(call.host_key), stack);
    }
  }
  swap.reset();
  call.aliases.write_back();
}

template <c10::DispatchKey key>
void run_on_host(const c10::OperatorHandle& op, Stack* stack) {
  if (dry_run() && key == c10::DispatchKey::CPU && !is_view(op) && dry_run()->skips(op, *stack)) {
    const auto device = device_of_results(op, *stack);
    if (device && run_shapes(op, stack, *device)) return;
  }
  Call call(op, key);
  if (!config().like_hardware) {
    compute(call, stack);
  } else {
    const auto count = op.schema().arguments().size();
    const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    const auto below = stack->size() - count;
    try {
      compute(call, stack);
    } catch (const c10::Error& error) {
      stack->resize(below);
      if (!fails_late(op, error.what_without_backtrace(), arguments, stack)) throw;
      return;
    }
  }
  if (!call.makes_device_tensors || call.makes_host_tensors) return;
  const auto results = op.schema().returns().size();
  for (size_t i = stack->size() - results; i < stack->size(); i++) call.convert_result((*stack)[i]);
}

template <c10::DispatchKey key>
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  run_observed(op, stack, &run_on_host<key>);
}

// Sparse and quantized tensors have kernels of their own, and torch composes their copies for the types that it knows.
template <c10::DispatchKey host>
void register_kind(c10::DispatchKey functionality) {
  const auto key = c10::toRuntimePerBackendFunctionalityKey(functionality, c10::toBackendComponent(config().key));
  auto& kernels = library(key);
  each_operator("aten", [&](const std::string& name, const c10::OperatorHandle& op) {
    if (op.hasKernelForDispatchKey(key)) return;
    if (!op.hasKernelForDispatchKey(host) && op.operator_name().name != "aten::copy_") return;
    kernels.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback<host>>());
  });
}

// Composite operators that choose their parts by device type: the CPU's kernel is called for the whole.
const char* const kCompositeOperators[] = {
    "aten::convolution", "aten::convolution_backward", "aten::_convolution_double_backward",
    "aten::native_batch_norm", "aten::native_batch_norm_backward"};

} // namespace

void run_on_device(const c10::OperatorHandle& op, Stack* stack) {
  run_observed(op, stack, &run_on_host<c10::DispatchKey::CPU>);
}

void run_into(const c10::OperatorHandle& op, Stack* stack, const std::vector<at::Tensor>& results) {
  Call call(op, c10::DispatchKey::CPU);
  compute(call, stack);
  size_t next = 0;
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); i++) {
    change_tensors((*stack)[i], [&](const at::Tensor& made) {
      const auto& result = results[next++];
      if (result.defined()) call.aliases.to_alias(result).copy_(made);
      return result;
    });
  }
}

namespace {

using at::ScalarType;

// The dtype to compute in; the same one where the CPU's kernel has it.
ScalarType wider(const c10::OperatorHandle& op, ScalarType given) {
  const auto& name = op.operator_name().name;
  const auto widest = config().type == c10::DeviceType::MPS ? at::kFloat : at::kDouble;
  if (name == "aten::histc") return c10::isIntegralType(given, /*includeBool=*/false) ? widest : given;
  if (given == at::kHalf) return at::kFloat;
  return given == at::kComplexHalf ? at::kComplexFloat : given;
}

// The dtype of a result, for arguments that were given in a narrower one.
ScalarType narrower(ScalarType given, ScalarType result) {
  if (c10::isIntegralType(given, false)) return given;
  if (result == at::kFloat) return at::kHalf;
  return result == at::kComplexFloat ? at::kComplexHalf : result;
}

void compute_wider(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const auto first = stack->size() - op.schema().arguments().size();
  const auto given = (*stack)[first].toTensor().scalar_type();
  const auto wide = wider(op, given);
  if (wide == given) return run_on_device(op, stack);
  for (size_t i = first; i < stack->size(); i++) {
    change_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.to(wider(op, tensor.scalar_type())) : tensor;
    });
  }
  op.callBoxed(stack);
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); i++) {
    change_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      return tensor.to(narrower(given, tensor.scalar_type()));
    });
  }
}

} // namespace

void register_fallback() {
  auto& kernels = library(config().key);
  for (const auto* name : {"histc", "_fft_r2c", "_fft_c2r", "_fft_c2c"}) {
    kernels.impl(name, torch::CppFunction::makeFromBoxedFunction<&compute_wider>());
  }
  const auto add = [&](const std::string& name) {
    kernels.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback<c10::DispatchKey::CPU>>());
  };
  each_operator("aten", [&](const std::string& name, const c10::OperatorHandle& op) {
    // kernels.cpp has those that allocate, change storages or cross devices.
    if (op.hasKernelForDispatchKey(c10::DispatchKey::CPU) && !op.hasKernelForDispatchKey(config().key)) add(name);
  });
  for (const auto* name : kCompositeOperators) {
    const auto op = c10::Dispatcher::singleton().findOp({name, ""});
    if (op && !op->hasKernelForDispatchKey(config().key)) add(name);
  }
  register_kind<c10::DispatchKey::SparseCPU>(c10::DispatchKey::Sparse);
  register_kind<c10::DispatchKey::QuantizedCPU>(c10::DispatchKey::Quantized);
}

// ------------------------------------------------------------------------------------- the host's own
namespace {

class WrappedKernel final : public c10::OperatorKernel {
 public:
  WrappedKernel(BeforeKernel* before, c10::SafeKernelFunction kernel) : before_(before), kernel_(std::move(kernel)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    if (!before_(op, stack)) kernel_.callBoxed(op, keys, stack);
  }

 private:
  BeforeKernel* before_;
  c10::SafeKernelFunction kernel_;
};

bool cannot_be_wrapped(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name().name;
  if (name == "aten::set_" || name == "aten::resize_" || name == "aten::_resize_output_") return true;
  for (const auto& argument : op.schema().arguments()) {
    const auto kind = argument.type()->kind();
    if (kind == c10::TypeKind::StorageType || kind == c10::TypeKind::QSchemeType) return true;
  }
  return false;
}

struct IgnoreWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

} // namespace

void wrap_host_kernels(BeforeKernel* before, c10::function_ref<bool(const c10::OperatorHandle&)> leaves_out) {
  IgnoreWarnings silent;  // torch warns of each kernel that is replaced
  c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  auto& kernels = library(c10::DispatchKey::CPU);
  each_operator("aten", [&](const std::string& name, const c10::OperatorHandle& op) {
    const bool on_cpu = op.hasKernelForDispatchKey(c10::DispatchKey::CPU) || op.operator_name().name == "aten::copy_";
    if (!on_cpu || cannot_be_wrapped(op) || leaves_out(op)) return;
    auto kernel = std::make_unique<WrappedKernel>(before, op.getComputedKernelForDispatchKey(c10::DispatchKey::CPU));
    kernels.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
  });
}

} // namespace accel_sim
