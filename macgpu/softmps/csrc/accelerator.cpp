// Preloaded into every process that uses the device. A torch wheel built with CUDA answers "CUDA"
// when it is asked for the accelerator, machine without a GPU or not, and autograd's engine then
// looks for CUDA streams. These definitions come first in symbol look-up and answer "MPS".
#include <c10/core/DeviceType.h>

#include <optional>

namespace at::accelerator {

std::optional<c10::DeviceType> getAccelerator(bool /*checked*/) {
  return c10::DeviceType::MPS;
}

bool isAccelerator(c10::DeviceType device_type) {
  return device_type == c10::DeviceType::MPS;
}

}  // namespace at::accelerator
