#include "device_check.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <string_view>
#include <unordered_set>

namespace softmps {
namespace {

std::unordered_set<std::string>& elementwise_operators() {
  static auto* const names = new std::unordered_set<std::string>();
  return *names;
}

bool passes(const at::Tensor& tensor, const c10::Argument& argument) {
  return !tensor.defined() || !tensor.is_cpu() || (tensor.dim() == 0 && !is_written(argument));
}

[[noreturn]] void refuse(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                         size_t position) {
  const std::string_view name = std::string_view(op.operator_name().name).substr(6);  // after aten::
  const auto& argument = op.schema().arguments()[position].name();
  if (name == "linear") {
    TORCH_CHECK(false, "Tensor for argument ", argument, " is on cpu but expected on mps");
  }
  if (name == "mm" || name == "addmm") {
    TORCH_CHECK(
        false, "Tensor for argument #", position + 1, " '", argument,
        "' is on CPU, but expected it to be on GPU (while checking arguments for ",
        name == "mm" ? "mm" : "addmm_out_mps_impl", ")");
  }
  if (name == "dot" || name == "vdot") {
    TORCH_CHECK(
        false, "Expected all tensors to be on the same device. Found: ",
        arguments[0].toTensor().device(), ", ", arguments[1].toTensor().device());
  }
  if (name == "cat") {
    TORCH_CHECK(
        false, "torch.cat(): all input tensors must be on the same device. Received mps:0 and cpu");
  }
  if (name == "masked_fill_" && argument == "mask") {
    TORCH_CHECK(
        false, "expected self and mask to be on the same device, but got mask on cpu and self on ",
        arguments[0].toTensor().device());
  }
  if (position == 0 && (name == "index" || name.find("index_put") != std::string_view::npos)) {
    TORCH_CHECK(
        false,
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)");
  }
  if (elementwise_operators().count(toString(op.operator_name()).substr(6)) > 0) {
    TORCH_CHECK(
        false,
        "Expected all tensors to be on the same device, but found at least two devices, "
        "mps:0 and cpu!");
  }
  TORCH_CHECK(false, "Placeholder storage has not been allocated on MPS device!");
}

}  // namespace

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

void declare_elementwise(const std::string& name) {
  elementwise_operators().insert(name);
}

void check_devices(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& value = arguments[i];
    const auto& argument = op.schema().arguments()[i];
    if (value.isTensor()) {
      if (!passes(value.toTensor(), argument)) {
        refuse(op, arguments, i);
      }
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorList()) {
        if (!passes(tensor, argument)) {
          refuse(op, arguments, i);
        }
      }
    }
    // A list of optional tensors holds indices: those may be on the CPU.
  }
}

}  // namespace softmps
