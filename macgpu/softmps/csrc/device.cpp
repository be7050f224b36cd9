// What torch asks of a device apart from operators: its guard and streams, its random generator,
// its hooks (which `torch.mps` calls).
#include "generator.h"
#include "memory.h"

#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <mutex>
#include <set>

namespace softmps {
namespace {

// Kernels run to their end before they return, so one stream serves and it never has work waiting.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return c10::DeviceType::MPS;
  }
  c10::Device exchangeDevice(c10::Device /*device*/) const override {
    return kDevice;
  }
  c10::Device getDevice() const override {
    return kDevice;
  }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() <= 0, "There is one MPS device, not a number ", device.index());
  }
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override {
    return 1;
  }

  c10::Stream getStream(c10::Device /*device*/) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return getStream(device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high_priority*/) const override {
    return getStream(device);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return getStream(device);
  }
  c10::Stream exchangeStream(c10::Stream /*stream*/) const override {
    return getStream(kDevice);
  }
  bool queryStream(const c10::Stream& /*stream*/) const override {
    return true;
  }
  void synchronizeStream(const c10::Stream& /*stream*/) const override {}
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override {}

  void record(void** /*event*/, const c10::Stream& /*stream*/, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {}
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  bool queryEvent(void* /*event*/) const override {
    return true;
  }
  void synchronizeEvent(void* /*event*/) const override {}
};

C10_REGISTER_GUARD_IMPL(MPS, Guard)

// The identifiers of `torch.mps.Event`. An event is a mark in the one stream, so recording it is
// all that happens; there is no GPU clock to read.
class Events {
 public:
  uint32_t acquire() {
    return next_++;
  }
  void record(uint32_t event) {
    std::lock_guard lock(mutex_);
    recorded_.insert(event);
  }
  void release(uint32_t event) {
    std::lock_guard lock(mutex_);
    recorded_.erase(event);
  }
  bool is_recorded(uint32_t event) {
    std::lock_guard lock(mutex_);
    return recorded_.count(event) > 0;
  }

 private:
  std::atomic<uint32_t> next_{1};
  std::mutex mutex_;
  std::set<uint32_t> recorded_;
};

Events& events() {
  static Events* const instance = new Events();
  return *instance;
}

// Torch looks the hooks up by this name.
struct MPSHooks : at::MPSHooksInterface {
  MPSHooks() = default;
  // Torch before 2.12 builds hooks with this argument.
  explicit MPSHooks(at::MPSHooksArgs /*arguments*/) {}

  void init() const override {}
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasMPS() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override {
    return true;
  }
  bool isOnMacOSorNewer(unsigned major, unsigned /*minor*/) const override {
    return major <= 26;
  }

  c10::DeviceIndex deviceCount() const override {
    return 1;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return 0;
  }
  void setCurrentDevice(c10::DeviceIndex /*device*/) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex /*device*/) const override {
    return 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex /*device*/) const override {
    return 0;
  }
  c10::Device getDeviceFromPtr(void* /*data*/) const override {
    return kDevice;
  }

  void deviceSynchronize() const override {}
  void commitStream() const override {}

  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*device*/) const override {
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex /*device*/) const override {
    return new_generator();
  }

  c10::Allocator* getMPSDeviceAllocator() const override {
    return device_allocator();
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return pinned_allocator();
  }
  bool isPinnedPtr(const void* data) const override {
    return is_pinned(data);
  }
  void emptyCache() const override {
    empty_cache();
  }
  size_t getCurrentAllocatedMemory() const override {
    return current_allocated_memory();
  }
  size_t getDriverAllocatedMemory() const override {
    return driver_allocated_memory();
  }
  size_t getRecommendedMaxMemory() const override {
    return recommended_max_memory();
  }
  // Not marked override: torch 2.11 does not ask for it.
  size_t getMaxBufferLength() const {
    return recommended_max_memory();
  }
  void setMemoryFraction(double ratio) const override {
    set_memory_fraction(ratio);
  }

  uint32_t acquireEvent(bool /*enable_timing*/) const override {
    return events().acquire();
  }
  void releaseEvent(uint32_t event) const override {
    events().release(event);
  }
  void recordEvent(uint32_t event) const override {
    events().record(event);
  }
  void waitForEvent(uint32_t /*event*/) const override {}
  void synchronizeEvent(uint32_t /*event*/) const override {}
  bool queryEvent(uint32_t event) const override {
    return events().is_recorded(event);
  }
  double elapsedTimeOfEvents(uint32_t /*start*/, uint32_t /*end*/) const override {
    TORCH_CHECK(false, "The software MPS device has no GPU clock: its events measure no time.");
  }

  void profilerStartTrace(const std::string& /*mode*/, bool /*wait*/) const override {
    TORCH_CHECK(false, "The software MPS device has no Metal signposts to trace.");
  }
  void profilerStopTrace() const override {
    TORCH_CHECK(false, "The software MPS device has no Metal signposts to trace.");
  }
};

}  // namespace
}  // namespace softmps

namespace at {
using softmps::MPSHooks;
REGISTER_MPS_HOOKS(MPSHooks)
}  // namespace at
