// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Host views of device tensors: the same memory under the CPU's key, so that CPU kernels work on it uncopied.
#include "aten.h"
#include "graphs.h"

#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

namespace accel_sim {

namespace {

// The alias keeps its device storage alive: work that is still running may outlive every device tensor.
c10::Storage alias_of(const c10::Storage& device_storage) {
  auto* impl = device_storage.unsafeGetStorageImpl();
  c10::raw::intrusive_ptr::incref(impl);
  c10::DataPtr data(
      impl->mutable_data(), impl,
      [](void* context) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(context)); },
      c10::Device(c10::DeviceType::CPU));
  return c10::Storage(
      c10::Storage::use_byte_size_t(), impl->nbytes(), std::move(data), c10::GetCPUAllocator(), /*resizable=*/true);
}

at::Tensor quantized_like(const at::Tensor& source, c10::Storage storage, c10::DispatchKey key) {
  const auto quantized =
      c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::Quantized, c10::toBackendComponent(key));
  return at::detail::make_tensor<at::QTensorImpl>(
      std::move(storage), c10::DispatchKeySet(quantized), source.dtype(), at::get_qtensorimpl(source)->quantizer());
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

c10::Storage& Aliases::storage_for(const c10::Storage& device_storage) {
  for (auto& known : storages_) {
    if (known.device.unsafeGetStorageImpl() == device_storage.unsafeGetStorageImpl()) return known.host;
  }
  auto copy = capture_copy_of(device_storage);
  auto host = copy ? std::move(*copy) : alias_of(device_storage);
  auto* data = host.mutable_data();
  storages_.push_back({std::move(host), device_storage, data, device_storage.nbytes()});
  return storages_.back().host;
}

at::Tensor Aliases::to_host(const at::Tensor& device_tensor) {
  for (auto& known : tensors_) {
    if (known.device.is_same(device_tensor)) return known.host;
  }
  if (device_tensor.is_sparse()) return sparse_to_host(device_tensor);
  TORCH_CHECK_NOT_IMPLEMENTED(
      device_tensor.has_storage() && device_tensor.layout() == c10::kStrided,
      "the simulated device '", config().name, "' has dense and COO tensors only, found layout ", device_tensor.layout());
  auto host = with_metadata_of(device_tensor, storage_for(device_tensor.storage()), c10::DispatchKey::CPU);
  tensors_.push_back({host, device_tensor});
  return host;
}

at::Tensor Aliases::to_device(const at::Tensor& host_tensor, c10::DeviceIndex device) {
  if (!host_tensor.defined() || !host_tensor.device().is_cpu()) return host_tensor;
  for (auto& known : tensors_) {
    if (known.host.is_same(host_tensor)) return known.device;
  }
  if (host_tensor.is_sparse()) return sparse_to_device(host_tensor, device);
  TORCH_CHECK_NOT_IMPLEMENTED(
      host_tensor.has_storage() && host_tensor.layout() == c10::kStrided,
      "the simulated device '", config().name, "' has dense and COO tensors only, the result has layout ",
      host_tensor.layout());
  for (auto& known : storages_) {
    if (known.host.is_alias_of(host_tensor.storage())) {
      return with_metadata_of(host_tensor, known.device, config().key);
    }
  }
  const auto bytes = host_tensor.storage().nbytes();
  auto* holder = new c10::Storage(host_tensor.storage());
  c10::DataPtr host(
      bytes ? holder->mutable_data() : nullptr, holder,
      [](void* context) { delete static_cast<c10::Storage*>(context); }, c10::Device(c10::DeviceType::CPU));
  auto data = bytes ? adopt(std::move(host), bytes, device) : c10::DataPtr(nullptr, c10::Device(config().type, device));
  c10::Storage mine(c10::Storage::use_byte_size_t(), bytes, std::move(data), allocator(), /*resizable=*/true);
  storages_.push_back({host_tensor.storage(), mine, mine.mutable_data(), bytes});
  return with_metadata_of(host_tensor, std::move(mine), config().key);
}

void Aliases::write_back() {
  for (auto& known : storages_) {
    auto* host = known.host.unsafeGetStorageImpl();
    if (host->data_ptr().get() == known.data && host->nbytes() == known.bytes) continue;
    auto* device = known.device.unsafeGetStorageImpl();
    const auto where = device->device();
    auto moved = std::move(host->_mutable_data_ptr_no_checks());
    device->set_data_ptr_noswap(
        host->nbytes() ? adopt(std::move(moved), host->nbytes(), where.index()) : c10::DataPtr(nullptr, where));
    device->set_nbytes(host->nbytes());
  }
  for (auto& known : tensors_) {
    auto* impl = known.device.unsafeGetTensorImpl();
    if (known.host.sizes() != known.device.sizes() || known.host.strides() != known.device.strides() ||
        known.host.storage_offset() != known.device.storage_offset()) {
      impl->set_sizes_and_strides(known.host.sizes(), known.host.strides(), known.host.storage_offset());
    }
  }
  write_back_sparse();
}

at::Tensor host_alias(const at::Tensor& device_tensor) {
  if (!is_simulated(device_tensor)) return device_tensor;
  check_not_capturing("a collective", device_tensor.device().index());  // on the hosts' network it cannot be recorded
  return Aliases().to_host(device_tensor);
}

namespace {

at::SparseTensorImpl& parts(const at::Tensor& tensor) {
  return *static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

void set_parts(at::SparseTensorImpl& to, const at::SparseTensorImpl& from, at::Tensor indices, at::Tensor values) {
  to.raw_resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
  to.set_indices_and_values_unsafe(indices, values);
  to.set_coalesced(from.coalesced());
}

at::Tensor sparse_of(c10::DispatchKey key, const at::Tensor& like) {
  const auto sparse =
      c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::Sparse, c10::toBackendComponent(key));
  return at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(sparse), like.dtype());
}

} // namespace

at::Tensor Aliases::sparse_to_host(const at::Tensor& device_tensor) {
  const auto& mine = parts(device_tensor);
  auto host = sparse_of(c10::DispatchKey::CPU, device_tensor);
  const auto indices = to_host(mine.indices()), values = to_host(mine.values());
  set_parts(parts(host), mine, indices, values);
  sparse_.push_back({host, device_tensor, indices, values});
  return host;
}

at::Tensor Aliases::sparse_to_device(const at::Tensor& host_tensor, c10::DeviceIndex device) {
  for (auto& known : sparse_) {
    if (known.host.is_same(host_tensor)) return known.device;
  }
  const auto& given = parts(host_tensor);
  auto result = sparse_of(config().key, host_tensor);
  set_parts(parts(result), given, to_device(given.indices(), device), to_device(given.values(), device));
  return result;
}

void Aliases::write_back_sparse() {
  for (auto& known : sparse_) {
    const auto& host = parts(known.host);
    if (host.indices().is_same(known.indices) && host.values().is_same(known.values)) {
      parts(known.device).set_coalesced(host.coalesced());
      continue;
    }
    const auto device = known.device.device().index();
    set_parts(parts(known.device), host, to_device(host.indices(), device), to_device(host.values(), device));
  }
}

} // namespace accel_sim
