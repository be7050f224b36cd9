// The device's memory: host memory from one caching pool that counts its bytes and keeps the
// limits of the real allocator.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <cstddef>

namespace softmps {

inline const c10::Device kDevice{c10::DeviceType::MPS, 0};

// Hands out memory tagged mps:0.
c10::DeviceAllocator* device_allocator();

// Hands out memory tagged cpu that counts as pinned.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* block);

// While one lives, what this thread asks of torch's CPU allocator comes from the device's pool:
// the results of a CPU kernel can then become MPS tensors without a copy, and are counted.
class PoolScope {
 public:
  PoolScope();
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;
};

// All in bytes.
size_t current_allocated_memory();
size_t driver_allocated_memory();
size_t recommended_max_memory();
void empty_cache();

// ratio: of recommended_max_memory(), 0 to 2; 0 lifts the limit.
void set_memory_fraction(double ratio);

}  // namespace softmps
