// How the operators of the table run: on the CPU kernel, over the same memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "memory.h"

namespace softmps {

// What holds while a CPU kernel computes for the device: its memory comes from the pool, and
// neither autograd nor CPU autocast, which have had their turn on the MPS tensors, see it.
struct CpuKernelScope {
  PoolScope pool;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

// The kernel of every operator in the table that has a CPU kernel.
void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace softmps
