// The operators that cannot be handed to a CPU kernel as they are: those that make, copy, view or
// resize MPS tensors, those that only the MPS backend has, and those that draw random numbers
// without a generator argument.
#include "alias.h"
#include "dispatch.h"
#include "memory.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/permute_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <array>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

namespace softmps {
namespace {

using at::IntArrayRef;
using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::MPS);

// ---- making tensors ----

// With torch.use_deterministic_algorithms(True), memory that nobody wrote yet holds NaN.
Tensor fill_if_deterministic(Tensor tensor) {
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

Tensor empty(IntArrayRef size, std::optional<c10::ScalarType> dtype,
             std::optional<c10::Layout> layout, std::optional<c10::Device> /*device*/,
             std::optional<bool> /*pin_memory*/, std::optional<c10::MemoryFormat> memory_format) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      layout.value_or(c10::kStrided) == c10::kStrided,
      "only strided tensors are supported on MPS");
  TORCH_CHECK(
      size.size() <= 16, "MPS supports tensors with dimensions <= 16, but got ", size.size(), ".");
  const auto type = c10::dtype_or_default(dtype);
  check_dtype(type);
  return fill_if_deterministic(
      at::detail::empty_generic(size, device_allocator(), kKeys, type, memory_format));
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                     std::optional<c10::Layout> /*layout*/, std::optional<c10::Device> /*device*/,
                     std::optional<bool> /*pin_memory*/) {
  const auto type = c10::dtype_or_default(dtype);
  check_dtype(type);
  return fill_if_deterministic(
      at::detail::empty_strided_generic(size, stride, device_allocator(), kKeys, type));
}

Tensor efficient_zero_tensor(IntArrayRef size, std::optional<c10::ScalarType> dtype,
                             std::optional<c10::Layout> /*layout*/,
                             std::optional<c10::Device> /*device*/,
                             std::optional<bool> /*pin_memory*/) {
  static at::native::ZeroTensorAllocator allocator(kDevice);
  const auto type = c10::dtype_or_default(dtype);
  check_dtype(type);
  return at::detail::empty_generic(
      size, &allocator, kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor), type,
      std::nullopt);
}

// ---- copying between devices and out of tensors ----

Tensor& copy_(Tensor& self, const Tensor& source, bool /*non_blocking*/) {
  Aliases aliases;
  CpuKernelScope scope;
  aliases.to_cpu(self).copy_(aliases.to_cpu(source));
  return self;
}

Tensor copy_from(const Tensor& self, const Tensor& target, bool non_blocking) {
  Tensor written = target;
  return copy_(written, self, non_blocking);
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& target) {
  Tensor written = target;
  written.resize_(self.sizes());
  return copy_(written, self, /*non_blocking=*/false);
}

at::Scalar local_scalar_dense(const Tensor& self) {
  Aliases aliases;
  return aliases.to_cpu(self).item();
}

// ---- pointing tensors at other memory ----

Tensor& set_empty(Tensor& self) {
  auto storage = c10::Storage(
      c10::Storage::use_byte_size_t(), 0, device_allocator(), /*resizable=*/true);
  return self.set_(std::move(storage), 0, {0}, {});
}

// ---- what only the MPS backend has, or what a torch built without MPS leaves out ----

std::tuple<Tensor, Tensor, Tensor> linear_backward(
    const Tensor& input, const Tensor& grad_output, const Tensor& weight,
    std::array<bool, 3> wanted) {
  Aliases aliases;
  CpuKernelScope scope;
  const auto x = aliases.to_cpu(input);
  const auto grad = aliases.to_cpu(grad_output);
  auto w = aliases.to_cpu(weight);
  if (w.dim() == 1) {
    w = w.unsqueeze(0);
  }
  const auto count = c10::multiply_integers(x.sizes().slice(0, x.dim() - 1));
  const auto rows = grad.reshape({count, w.size(0)});
  Tensor grad_input, grad_weight, grad_bias;
  if (wanted[0]) {
    grad_input = aliases.to_mps(rows.mm(w.conj()).view(x.sizes()));
  }
  if (wanted[1]) {
    const auto x_rows = x.reshape({count, w.size(1)});
    grad_weight = aliases.to_mps(rows.t().mm(x_rows.conj()).view(weight.sizes()));
  }
  if (wanted[2]) {
    grad_bias = aliases.to_mps(rows.sum(0));
  }
  return {grad_input, grad_weight, grad_bias};
}

Tensor max_pool2d_backward(const Tensor& grad_output, const Tensor& self, IntArrayRef kernel_size,
                           IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                           bool ceil_mode) {
  Aliases aliases;
  CpuKernelScope scope;
  const auto x = aliases.to_cpu(self);
  const auto indices = std::get<1>(
      at::max_pool2d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode));
  return aliases.to_mps(at::max_pool2d_with_indices_backward(
      aliases.to_cpu(grad_output), x, kernel_size, stride, padding, dilation, ceil_mode, indices));
}

void check_same_type(const Tensor& input, const Tensor& parameter, const char* name) {
  TORCH_CHECK(
      input.options().type_equal(parameter.options()), "Input type (", input.toString(), ") and ",
      name, " type (", parameter.toString(), ") should be the same");
}

Tensor convolve(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                   IntArrayRef output_padding, int64_t groups) {
  check_same_type(input, weight, "weight");
  if (bias && bias->defined()) {
    check_same_type(input, *bias, "bias");
  }
  Aliases aliases;
  CpuKernelScope scope;
  return aliases.to_mps(at::convolution(
      aliases.to_cpu(input), aliases.to_cpu(weight),
      bias ? std::optional(aliases.to_cpu(*bias)) : std::nullopt, stride, padding, dilation,
      transposed, output_padding, groups));
}

std::tuple<Tensor, Tensor, Tensor> convolve_backward(
    const Tensor& grad_output, const Tensor& input, const Tensor& weight, IntArrayRef stride,
    IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> wanted) {
  Aliases aliases;
  CpuKernelScope scope;
  const std::vector<int64_t> bias_size{transposed ? weight.size(1) * groups : weight.size(0)};
  auto [grad_input, grad_weight, grad_bias] = at::convolution_backward(
      aliases.to_cpu(grad_output), aliases.to_cpu(input), aliases.to_cpu(weight),
      wanted[2] ? at::OptionalIntArrayRef(bias_size) : std::nullopt, stride, padding, dilation,
      transposed, output_padding, groups, wanted);
  return {aliases.to_mps(grad_input), aliases.to_mps(grad_weight), aliases.to_mps(grad_bias)};
}

Tensor mps_convolution(const Tensor& self, const Tensor& weight, const std::optional<Tensor>& bias,
                       IntArrayRef padding, IntArrayRef stride, IntArrayRef dilation,
                       int64_t groups) {
  const std::vector<int64_t> no_padding(padding.size(), 0);
  return convolve(
      self, weight, bias, stride, padding, dilation, /*transposed=*/false, no_padding, groups);
}

std::tuple<Tensor, Tensor, Tensor> mps_convolution_backward(
    const Tensor& self, const Tensor& grad_output, const Tensor& weight, IntArrayRef padding,
    IntArrayRef stride, IntArrayRef dilation, int64_t groups, std::array<bool, 3> wanted) {
  const std::vector<int64_t> no_padding(padding.size(), 0);
  return convolve_backward(
      grad_output, self, weight, stride, padding, dilation, /*transposed=*/false, no_padding,
      groups, wanted);
}

Tensor mps_convolution_transpose(const Tensor& self, const Tensor& weight, IntArrayRef padding,
                                 IntArrayRef output_padding, IntArrayRef stride,
                                 IntArrayRef dilation, int64_t groups) {
  return convolve(
      self, weight, std::nullopt, stride, padding, dilation, /*transposed=*/true, output_padding,
      groups);
}

std::tuple<Tensor, Tensor> mps_convolution_transpose_backward(
    const Tensor& self, const Tensor& grad_output, const Tensor& weight, IntArrayRef padding,
    IntArrayRef output_padding, IntArrayRef stride, IntArrayRef dilation, int64_t groups,
    std::array<bool, 2> wanted) {
  auto [grad_input, grad_weight, grad_bias] = convolve_backward(
      grad_output, self, weight, stride, padding, dilation, /*transposed=*/true, output_padding,
      groups, {wanted[0], wanted[1], false});
  return {grad_input, grad_weight};
}

// A Mac meets this where one argument of a convolution is on the CPU.
Tensor slow_conv2d_forward(const Tensor& self, const Tensor& weight, IntArrayRef /*kernel_size*/,
                           const std::optional<Tensor>& /*bias*/, IntArrayRef /*stride*/,
                           IntArrayRef /*padding*/) {
  TORCH_CHECK(
      self.device() == weight.device(), "slow_conv2d_forward_mps: input(device='", self.device(),
      "') and weight(device=", weight.device(), "')  must be on the same device");
  TORCH_CHECK(false, "slow_conv2d_forward_mps should not be called for both tensors on MPS device");
}

// ---- random numbers without a generator argument ----

// On MPS tensors, so that the mask comes from the device's generator.
std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p,
                                          std::optional<bool> train) {
  if (!train.value_or(true)) {
    return {input.clone(), at::empty_like(input, c10::kBool).fill_(true)};
  }
  const double kept = 1 - p;
  const auto mask = at::empty_like(input, c10::kBool).bernoulli_(kept);
  return {input.mul(mask).mul_(kept == 0 ? 0.0 : 1 / kept), mask};
}

// The composition adds its mask to the scores, where a boolean one tells which keys take part.
std::optional<Tensor> additive_mask(const std::optional<Tensor>& mask, const Tensor& query) {
  if (!mask || !mask->defined()) {
    return std::nullopt;
  }
  if (mask->scalar_type() == c10::kBool) {
    return at::zeros_like(*mask, query.options())
        .masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
  }
  TORCH_CHECK(
      mask->scalar_type() == c10::kFloat || mask->scalar_type() == query.scalar_type(),
      "Expected attn_mask dtype to be bool or float or to match query dtype, but got ",
      mask->scalar_type(), " and ", query.scalar_type());
  return mask;
}

// Boxed, because torch 2.14 has an argument more than 2.11.
void attention_math_for_mps(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto count = op.schema().arguments().size();
  auto arguments = torch::jit::pop(*stack, count);
  const Tensor query = arguments[0].toTensor();
  auto [output, weights] = at::_scaled_dot_product_attention_math(
      query, arguments[1].toTensor(), arguments[2].toTensor(),
      additive_mask(arguments[3].toOptional<Tensor>(), query), arguments[4].toDouble(), arguments[5].toBool(),
      arguments[6].toOptional<Tensor>(), arguments[7].toOptional<double>(),
      count > 8 && arguments[8].toBool());
  torch::jit::push(*stack, output, weights);
}

// A torch built without MPS does not know what to choose for an MPS tensor. Where gradients are
// needed a Mac too computes attention from its parts.
Tensor scaled_dot_product_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
    double dropout, bool causal, std::optional<double> scale, bool grouped) {
  return std::get<0>(at::_scaled_dot_product_attention_math(
      query, key, value, additive_mask(mask, query), dropout, causal, std::nullopt, scale,
      grouped));
}

// Its MPS kernel has no backward: a torch built with MPS computes the norm from its parts where
// gradients are needed, a torch built without does not know to.
std::tuple<Tensor, Tensor> fused_rms_norm(const Tensor& input, IntArrayRef normalized_shape,
                                          const std::optional<Tensor>& weight,
                                          std::optional<double> eps) {
  if (at::GradMode::is_enabled() &&
      (input.requires_grad() || (weight && weight->requires_grad()))) {
    // The CPU key has no kernel of its own: what it finds is the composition, for any device.
    return at::_ops::_fused_rms_norm::redispatch(
        c10::DispatchKeySet(c10::DispatchKey::CPU), input, normalized_shape, weight, eps);
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return at::_fused_rms_norm(input, normalized_shape, weight, eps);
}

TORCH_LIBRARY_IMPL(aten, MPS, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_efficientzerotensor", &efficient_zero_tensor);

  library.impl("copy_", &copy_);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar_dense);

  // Torch's own, written for any memory that the host can reach.
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("permute", TORCH_FN(at::native::permute));
  library.impl("unfold", &at::native::unfold);
  library.impl("resize_", &at::native::resize_);
  library.impl(
      "set_.source_Storage", static_cast<Tensor& (*)(Tensor&, at::Storage)>(&at::native::set_));
  library.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  library.impl("set_.source_Tensor", &at::native::set_tensor_);
  library.impl("set_", &set_empty);

  library.impl("linear_backward", &linear_backward);
  library.impl("max_pool2d_backward", &max_pool2d_backward);
  library.impl("convolution_overrideable", &convolve);
  library.impl("convolution_backward_overrideable", &convolve_backward);
  library.impl("_mps_convolution", &mps_convolution);
  library.impl("mps_convolution_backward", &mps_convolution_backward);
  library.impl("_mps_convolution_transpose", &mps_convolution_transpose);
  library.impl("mps_convolution_transpose_backward", &mps_convolution_transpose_backward);
  library.impl("_slow_conv2d_forward", &slow_conv2d_forward);

  library.impl("native_dropout", &native_dropout);
  library.impl(
      "_scaled_dot_product_attention_math_for_mps",
      torch::CppFunction::makeFromBoxedFunction<&attention_math_for_mps>());
  library.impl("scaled_dot_product_attention", &scaled_dot_product_attention);
}

TORCH_LIBRARY_IMPL(aten, AutogradMPS, library) {
  library.impl("_fused_rms_norm", &fused_rms_norm);
  library.impl("scaled_dot_product_attention", &scaled_dot_product_attention);
}

}  // namespace
}  // namespace softmps
