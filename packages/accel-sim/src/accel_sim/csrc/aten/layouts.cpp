// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Host views of sparse tensors: a sparse tensor has no storage of its own, but indices and values that have.
#include "aten/aten.h"

#include <ATen/SparseTensorImpl.h>

namespace accel_sim {

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
