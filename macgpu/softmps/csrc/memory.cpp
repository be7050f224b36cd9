#include "memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/util/Exception.h>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace softmps {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();
// The ratios that torch's documentation of the MPS variables gives.
constexpr double kHighestRatio = 2.0;
constexpr double kDefaultHighRatio = 1.7;
constexpr double kDefaultLowRatio = 1.4;

thread_local int pool_scopes = 0;

double ratio_from_environment(const char* name, double fallback) {
  const char* text = std::getenv(name);
  return text ? std::strtod(text, nullptr) : fallback;
}

std::string readable(size_t bytes) {
  std::ostringstream text;
  text.precision(2);
  text << std::fixed;
  if (bytes <= 1024) {
    text << bytes << " bytes";
  } else if (bytes <= size_t{1} << 20) {
    text << bytes / 1024.0 << " KiB";
  } else if (bytes <= size_t{1} << 30) {
    text << bytes / 1048576.0 << " MiB";
  } else {
    text << bytes / 1073741824.0 << " GiB";
  }
  return text.str();
}

// Eight sizes between one power of two and the next, so that a freed block fits many later
// requests and at most an eighth of it is wasted.
size_t block_size(size_t bytes) {
  constexpr size_t smallest = 256;
  if (bytes <= smallest) {
    return smallest;
  }
  const size_t step = std::max(smallest, std::bit_floor(bytes - 1) / 8);
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  Pool() {
    set_high_ratio(ratio_from_environment("PYTORCH_MPS_HIGH_WATERMARK_RATIO", kDefaultHighRatio));
    const double low = ratio_from_environment("PYTORCH_MPS_LOW_WATERMARK_RATIO", kDefaultLowRatio);
    const double highest_low = high_ratio_ == 0.0 ? kHighestRatio : high_ratio_;
    TORCH_CHECK(low >= 0.0 && low <= highest_low, "invalid low watermark ratio ", low);
    pressure_limit_ = limit(low);
  }

  void* take(size_t bytes) {
    TORCH_CHECK(
        bytes < recommended_max_memory(), "Invalid buffer size: ", readable(bytes));
    const size_t size = block_size(bytes);
    std::lock_guard lock(mutex_);
    if (in_use() + size > max_allowed_) {
      release_cached();
      ++stats_.num_ooms;
      TORCH_CHECK(
          false,
          "MPS backend out of memory (MPS allocated: ", readable(in_use()),
          ", other allocations: ", readable(0),
          ", max allowed: ", readable(max_allowed_),
          "). Tried to allocate ", readable(size),
          " on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit "
          "for memory allocations (may cause system failure).");
    }
    void* block = nullptr;
    auto cached = cached_.find(size);
    if (cached != cached_.end() && !cached->second.empty()) {
      block = cached->second.back();
      cached->second.pop_back();
    } else {
      if (held() + size > std::min(max_allowed_, pressure_limit_)) {
        release_cached();
      }
      block = std::aligned_alloc(c10::gAlignment, size);
      TORCH_CHECK(block, "MPS backend out of memory: the host has no ", readable(size), " left.");
      count(stats_.reserved_bytes, size);
      count(stats_.segment, 1);
    }
    live_.emplace(block, size);
    count(stats_.allocated_bytes, size);
    count(stats_.active_bytes, size);
    count(stats_.requested_bytes, size);
    count(stats_.allocation, 1);
    count(stats_.active, 1);
    return block;
  }

  // False if the block is not the pool's.
  bool give_back(void* block) {
    std::lock_guard lock(mutex_);
    const auto entry = live_.find(block);
    if (entry == live_.end()) {
      return false;
    }
    const size_t size = entry->second;
    live_.erase(entry);
    cached_[size].push_back(block);
    discount(stats_.allocated_bytes, size);
    discount(stats_.active_bytes, size);
    discount(stats_.requested_bytes, size);
    discount(stats_.allocation, 1);
    discount(stats_.active, 1);
    return true;
  }

  void empty_cache() {
    std::lock_guard lock(mutex_);
    release_cached();
  }

  void set_high_ratio(double ratio) {
    TORCH_CHECK(ratio >= 0.0 && ratio <= kHighestRatio, "invalid high watermark ratio ", ratio);
    std::lock_guard lock(mutex_);
    high_ratio_ = ratio;
    max_allowed_ = limit(ratio);
  }

  DeviceStats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }

  template <typename Change>
  void change_stats(Change change) {
    std::lock_guard lock(mutex_);
    for (auto* stat : {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.allocated_bytes,
                       &stats_.reserved_bytes, &stats_.active_bytes, &stats_.requested_bytes}) {
      change((*stat)[0]);
    }
  }

 private:
  static size_t limit(double ratio) {
    return ratio == 0.0 ? kUnlimited : static_cast<size_t>(ratio * recommended_max_memory());
  }

  // Index 0 of a statistic is the total over all kinds of blocks; there is one kind here.
  template <typename Stats>
  static void count(Stats& stats, size_t amount) {
    stats[0].increase(amount);
  }

  template <typename Stats>
  static void discount(Stats& stats, size_t amount) {
    stats[0].decrease(amount);
  }

  size_t in_use() const {
    return static_cast<size_t>(stats_.allocated_bytes[0].current);
  }

  size_t held() const {
    return static_cast<size_t>(stats_.reserved_bytes[0].current);
  }

  void release_cached() {
    for (auto& [size, blocks] : cached_) {
      for (void* block : blocks) {
        std::free(block);
        discount(stats_.reserved_bytes, size);
        discount(stats_.segment, 1);
      }
    }
    cached_.clear();
  }

  std::mutex mutex_;
  std::unordered_map<void*, size_t> live_;
  std::unordered_map<size_t, std::vector<void*>> cached_;
  DeviceStats stats_;
  double high_ratio_ = kDefaultHighRatio;
  size_t max_allowed_ = kUnlimited;
  size_t pressure_limit_ = kUnlimited;
};

// Made at the first use, as on a Mac: a wrong watermark ratio is an error of the first allocation
// and not of `import torch`. Never destroyed: tensors may outlive every static.
Pool& pool() {
  static Pool* const instance = new Pool();
  return *instance;
}

void release(void* block) {
  pool().give_back(block);
}

// Frees a block of either origin: oneDNN frees through the allocator, whose scope may have ended.
void release_cpu(void* block) {
  if (!pool().give_back(block)) {
    c10::GetDefaultCPUAllocator()->raw_deallocate(block);
  }
}

c10::DataPtr from_pool(size_t bytes, c10::Device device) {
  void* block = bytes == 0 ? nullptr : pool().take(bytes);
  return {block, block, &release, device};
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    return from_pool(bytes, kDevice);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t /*pool*/) override {
    pool().empty_cache();
  }
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    return pool().stats();
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {
    pool().change_stats([](auto& stat) { stat.reset_accumulated(); });
  }
  void resetPeakStats(c10::DeviceIndex /*device*/) override {
    pool().change_stats([](auto& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex /*device*/) {
    const size_t total = recommended_max_memory();
    return {total - std::min(total, driver_allocated_memory()), total};
  }
};

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    return pool_scopes > 0 ? from_pool(bytes, c10::Device(c10::kCPU))
                           : c10::GetDefaultCPUAllocator()->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release_cpu;
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return c10::GetDefaultCPUAllocator()->is_simple_data_ptr(data);
  }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
};

class Pinned {
 public:
  void add(const void* block) {
    std::lock_guard lock(mutex_);
    blocks_.insert(block);
  }
  void remove(const void* block) {
    std::lock_guard lock(mutex_);
    blocks_.erase(block);
  }
  bool contains(const void* block) {
    std::lock_guard lock(mutex_);
    return blocks_.count(block) > 0;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<const void*> blocks_;
};

Pinned& pinned() {
  static Pinned* const instance = new Pinned();
  return *instance;
}

void release_pinned(void* block) {
  pinned().remove(block);
  release(block);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto data = from_pool(bytes, c10::Device(c10::kCPU));
    pinned().add(data.get());
    return {data.get(), data.release_context(), &release_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release_pinned;
  }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
};

struct Registration {
  Registration() {
    c10::SetAllocator(c10::DeviceType::MPS, device_allocator());
    static CpuAllocator cpu;
    c10::SetCPUAllocator(&cpu);
  }
} const registration;

}  // namespace

c10::DeviceAllocator* device_allocator() {
  static DeviceAllocator* const allocator = new DeviceAllocator();
  return allocator;
}

c10::Allocator* pinned_allocator() {
  static PinnedAllocator* const allocator = new PinnedAllocator();
  return allocator;
}

bool is_pinned(const void* block) {
  return pinned().contains(block);
}

PoolScope::PoolScope() {
  ++pool_scopes;
}

PoolScope::~PoolScope() {
  --pool_scopes;
}

size_t current_allocated_memory() {
  return static_cast<size_t>(pool().stats().allocated_bytes[0].current);
}

size_t driver_allocated_memory() {
  return static_cast<size_t>(pool().stats().reserved_bytes[0].current);
}

// Three quarters of the machine's memory, the order of what Metal recommends on a Mac.
size_t recommended_max_memory() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
      static_cast<size_t>(sysconf(_SC_PAGE_SIZE)) / 4 * 3;
  return bytes;
}

void empty_cache() {
  pool().empty_cache();
}

void set_memory_fraction(double ratio) {
  pool().set_high_ratio(ratio);
}

}  // namespace softmps
