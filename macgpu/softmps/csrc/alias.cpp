#include "alias.h"

#include "memory.h"

#include <ATen/ops/clone.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <c10/util/Exception.h>

namespace softmps {
namespace {

// Keeps the MPS storage alive for as long as a CPU storage shows its memory.
void release_owner(void* storage) {
  c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(storage));
}

c10::Storage cpu_storage_over(const c10::Storage& storage) {
  auto* owner = storage.unsafeGetStorageImpl();
  c10::raw::intrusive_ptr::incref(owner);
  return c10::Storage(
      c10::Storage::use_byte_size_t(),
      storage.nbytes(),
      c10::DataPtr(owner->mutable_data(), owner, &release_owner, c10::Device(c10::kCPU)),
      c10::GetCPUAllocator(),
      /*resizable=*/true);
}

// Makes `tensor` look at its storage as `shape` does at its own.
at::Tensor shaped_like(const at::Tensor& shape, at::Tensor tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(shape.sizes(), shape.strides(), shape.storage_offset());
  // Setting a bit means setting its dispatch key: only where it is needed.
  if (shape.is_conj()) {
    tensor._set_conj(true);
  }
  if (shape.is_neg()) {
    tensor._set_neg(true);
  }
  return tensor;
}

at::Tensor over(c10::Storage storage, c10::DispatchKey key, caffe2::TypeMeta dtype) {
  return at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), dtype);
}

// The constructor for views takes the keys as they are; the bits come with the shape.
at::Tensor view_of(const at::Tensor& base, caffe2::TypeMeta dtype) {
  const auto keys = base.key_set() -
      c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base.storage()), keys, dtype);
}

}  // namespace

void check_dtype(c10::ScalarType dtype) {
  TORCH_CHECK_TYPE(
      dtype != c10::kDouble,
      "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
      "Please use float32 instead.");
  TORCH_CHECK_TYPE(
      dtype != c10::kComplexDouble,
      "Trying to convert ", dtype,
      " to the MPS backend but it does not have support for that dtype.");
}

at::Tensor Aliases::to_cpu(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_mps()) {
    return tensor;
  }
  const auto& storage = tensor.storage();
  const Pair* sibling = nullptr;
  for (const auto& pair : pairs_) {
    if (pair.mps.unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl()) {
      return pair.cpu;
    }
    if (pair.mps.storage().is_alias_of(storage)) {
      sibling = &pair;
    }
  }
  auto alias = shaped_like(
      tensor,
      over(sibling ? sibling->cpu.storage() : cpu_storage_over(storage), c10::DispatchKey::CPU,
           tensor.dtype()));
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    alias.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  pairs_.push_back({alias, tensor});
  return alias;
}

void Aliases::update(const at::Tensor& cpu_tensor) {
  for (const auto& [cpu, mps] : pairs_) {
    if (cpu.unsafeGetTensorImpl() != cpu_tensor.unsafeGetTensorImpl()) {
      continue;
    }
    auto* from = cpu.storage().unsafeGetStorageImpl();
    auto* to = mps.storage().unsafeGetStorageImpl();
    if (from->data() != to->data()) {
      auto data = from->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
      data.unsafe_set_device(kDevice);
      to->set_data_ptr_noswap(std::move(data));
    }
    if (from->nbytes() != to->nbytes()) {
      to->set_nbytes(from->nbytes());
    }
    if (cpu.sizes() != mps.sizes() || cpu.strides() != mps.strides() ||
        cpu.storage_offset() != mps.storage_offset()) {
      mps.unsafeGetTensorImpl()->set_sizes_and_strides(
          cpu.sizes(), cpu.strides(), cpu.storage_offset());
    }
    return;
  }
}

const Aliases::Pair* Aliases::with_storage(const c10::StorageImpl* cpu_storage) const {
  for (const auto& pair : pairs_) {
    if (pair.cpu.storage().unsafeGetStorageImpl() == cpu_storage) {
      return &pair;
    }
  }
  return nullptr;
}

at::Tensor Aliases::to_mps(const at::Tensor& result) {
  if (!result.defined() || !result.is_cpu()) {
    return result;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      result.layout() == c10::kStrided, "The software MPS device has no tensors of layout ",
      result.layout(), "; a Mac has sparse COO and CSR ones.");
  for (const auto& [cpu, mps] : pairs_) {
    if (cpu.unsafeGetTensorImpl() == result.unsafeGetTensorImpl()) {
      return mps;
    }
  }
  auto* storage = result.storage().unsafeGetStorageImpl();
  if (const Pair* argument = with_storage(storage)) {
    return shaped_like(result, view_of(argument->mps, result.dtype()));
  }
  check_dtype(result.scalar_type());
  if (!result.storage().unique()) {
    // Somebody else's CPU tensor too (a 0-dim argument, say): it has to stay one.
    return to_mps(result.clone());
  }
  storage->mutable_data_ptr().unsafe_set_device(kDevice);
  storage->set_allocator(device_allocator());
  return shaped_like(result, over(result.storage(), c10::DispatchKey::MPS, result.dtype()));
}

}  // namespace softmps
