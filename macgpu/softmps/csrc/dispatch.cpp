#include "dispatch.h"

#include "alias.h"
#include "device_check.h"
#include "generator.h"

#include <ATen/native/CPUFallback.h>
#include <c10/util/Exception.h>
#include <caffe2/core/common.h>
#include <torch/library.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string>

namespace softmps {
namespace {

using torch::jit::Stack;

bool draws_random_numbers(const c10::Argument& argument) {
  const auto& type = *argument.type();
  return type.kind() == c10::TypeKind::GeneratorType ||
      (type.kind() == c10::TypeKind::OptionalType &&
       type.castRaw<c10::OptionalType>()->getElementType()->kind() ==
           c10::TypeKind::GeneratorType);
}

void to_cpu(c10::IValue& value, const c10::Argument& argument, Aliases& aliases) {
  if (value.isTensor()) {
    value = aliases.to_cpu(value.toTensor());
  } else if (value.isTensorList()) {
    auto tensors = value.toTensorVector();
    for (auto& tensor : tensors) {
      tensor = aliases.to_cpu(tensor);
    }
    value = std::move(tensors);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      tensors.push_back(tensor ? std::optional(aliases.to_cpu(*tensor)) : std::nullopt);
    }
    value = std::move(tensors);
  } else if (value.isDevice()) {
    value = c10::Device(c10::kCPU);
  } else if (draws_random_numbers(argument)) {
    value = cpu_engine(value.isNone() ? default_generator() : value.toGenerator());
  }
}

void update(const c10::IValue& value, Aliases& aliases) {
  if (value.isTensor()) {
    aliases.update(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      aliases.update(tensor);
    }
  }
}

void to_mps(c10::IValue& value, Aliases& aliases) {
  if (value.isTensor()) {
    value = aliases.to_mps(value.toTensor());
  } else if (value.isTensorList()) {
    auto tensors = value.toTensorVector();
    for (auto& tensor : tensors) {
      tensor = aliases.to_mps(tensor);
    }
    value = std::move(tensors);
  }
}

bool fallback_is_enabled() {
  // Read once, when torch has just been imported: set later it does nothing, as on a Mac.
  static const bool enabled = [] {
    const char* text = std::getenv("PYTORCH_ENABLE_MPS_FALLBACK");
    return text && std::strtol(text, nullptr, 10) != 0;
  }();
  return enabled;
}

void fall_back(const c10::OperatorHandle& op, Stack* stack) {
  TORCH_WARN_ONCE(
      "The operator '", op.operator_name(), "' is not currently supported on the MPS backend and "
      "will fall back to run on the CPU. This may have performance implications.");
  at::native::cpu_fallback(op, stack);
}

// For every operator that is not in the table and does not decompose.
void refuse_or_fall_back(const c10::OperatorHandle& op, Stack* stack) {
  const auto& name = op.operator_name();
  TORCH_CHECK(
      name.getNamespace() != "c10d",
      "The operator '", name, "' is not currently implemented for the MPS device. Note that "
      "distributed operators can not fall back to CPU.");
  if (fallback_is_enabled()) {
    fall_back(op, stack);
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "The operator '", name, "' is not currently implemented for the MPS device. If you want this "
      "op to be considered for addition please comment on "
      "https://github.com/pytorch/pytorch/issues/141287 and mention use-case, that resulted in "
      "missing op as well as commit hash ", caffe2::GetBuildOptions().at("COMMIT_SHA"),
      ". As a temporary fix, you can set the environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` "
      "to use the CPU as a fallback for this op. WARNING: this will be slower than running "
      "natively on MPS.");
}

void refuse_without_cpu_kernel(const c10::OperatorHandle& op, Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "The operator '", op.operator_name(), "' runs on a Mac, but the software MPS device "
      "has no CPU kernel to run it with.");
}

void refuse_without_mps_part(const c10::OperatorHandle& op, Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "The operator '", op.operator_name(), "' is not currently implemented for the MPS "
      "device: its one kernel for all devices has no part for MPS. PYTORCH_ENABLE_MPS_FALLBACK=1 "
      "does not reach it; compute it on the CPU and move the result.");
}

// Operators with one kernel for all devices, which looks the device's part up in a table that a
// torch built without MPS leaves empty.
constexpr std::array kGeneric{"ldexp.Tensor", "ldexp_", "ldexp.out"};
// The same, with no part known for MPS in a torch built with it: an assertion inside torch would
// fail, with words that name no operator.
constexpr std::array kGenericWithoutMps{
    "kaiser_window", "kaiser_window.periodic", "kaiser_window.beta"};

std::optional<c10::OperatorHandle> find(const std::string& name) {
  const auto dot = name.find('.');
  return c10::Dispatcher::singleton().findOp(
      {"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
}

// names: those of the table. kernels.cpp has registered some of them before.
void register_operators(c10::List<std::string> names, c10::List<std::string> elementwise) {
  for (const std::string& name : elementwise) {
    declare_elementwise(name);
  }
  // Lives as long as the process: kernels go with the library that registered them.
  static torch::Library aten(
      torch::Library::IMPL, "aten", c10::DispatchKey::MPS, __FILE__, __LINE__);
  for (const std::string& name : names) {
    const auto op = find(name);
    if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::MPS)) {
      continue;
    }
    if (op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) {
      aten.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
    } else {
      aten.impl(
          name.c_str(), torch::CppFunction::makeFromBoxedFunction<&refuse_without_cpu_kernel>());
    }
  }
  const auto is_generic = [](const char* name) {
    const auto op = find(name);
    return op && op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
  };
  for (const char* name : kGeneric) {
    if (is_generic(name)) {
      aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
    }
  }
  for (const char* name : kGenericWithoutMps) {
    if (is_generic(name)) {
      aten.impl(
          name, torch::CppFunction::makeFromBoxedFunction<&refuse_without_mps_part>());
    }
  }
}

TORCH_LIBRARY(macgpu_softmps, library) {
  library.def("register_operators(str[] names, str[] elementwise) -> ()", &register_operators);
}

TORCH_LIBRARY_IMPL(_, MPS, library) {
  fallback_is_enabled();
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_or_fall_back>());
}

TORCH_LIBRARY_IMPL(aten, MPS, library) {
  // The one operator that a Mac always sends to the CPU.
  library.impl("embedding_renorm_", torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

// torchvision's wheel for macOS brings Metal kernels for these.
TORCH_LIBRARY_IMPL(torchvision, MPS, library) {
  for (const char* name :
       {"nms", "roi_align", "_roi_align_backward", "roi_pool", "_roi_pool_backward",
        "ps_roi_align", "_ps_roi_align_backward", "ps_roi_pool", "_ps_roi_pool_backward",
        "deform_conv2d", "_deform_conv2d_backward"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
}

}  // namespace

void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
  const auto& schema = op.schema();
  const auto& arguments = schema.arguments();
  auto* const inputs = stack->data() + (stack->size() - arguments.size());
  check_devices(op, c10::ArrayRef<c10::IValue>(inputs, arguments.size()));

  Aliases aliases;
  c10::SmallVector<c10::IValue, 4> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    to_cpu(inputs[i], arguments[i], aliases);
    if (is_written(arguments[i])) {
      written.push_back(inputs[i]);
    }
  }
  {
    CpuKernelScope scope;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  for (const auto& value : written) {
    update(value, aliases);
  }
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    to_mps((*stack)[i], aliases);
  }
}

}  // namespace softmps
