// One piece of memory, two tensors: the MPS tensor that the user holds and the CPU tensor that a
// CPU kernel works on.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace softmps {

// An error, worded as on a Mac, for the types that Metal does not have.
void check_dtype(c10::ScalarType dtype);

// The MPS tensors of one operation and the CPU tensors that stand for them.
class Aliases {
 public:
  // A CPU tensor over the memory of `tensor`. Tensors that share a storage get CPU tensors that
  // share one, so that kernels still see which of their arguments overlap.
  at::Tensor to_cpu(const at::Tensor& tensor);

  // After the kernel: takes over a new size, or newly allocated memory, of an argument that the
  // kernel wrote to.
  void update(const at::Tensor& cpu_tensor);

  // The MPS tensor for a result of the kernel: the argument itself, a view of an argument, or a
  // new tensor that takes over the result's memory.
  at::Tensor to_mps(const at::Tensor& result);

 private:
  struct Pair {
    at::Tensor cpu;
    at::Tensor mps;
  };

  const Pair* with_storage(const c10::StorageImpl* cpu_storage) const;

  c10::SmallVector<Pair, 8> pairs_;
};

}  // namespace softmps
