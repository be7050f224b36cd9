// Tensors of two devices in one operation: which a Mac accepts, and its words for the rest.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace softmps {

// Whether the operation changes this argument, in place or as `out`.
bool is_written(const c10::Argument& argument);

// `name` computes element by element: its error lists the two devices.
void declare_elementwise(const std::string& name);

// RuntimeError if a CPU tensor among the arguments would be one on a Mac. CPU tensors without
// dimensions count as numbers and pass, unless they are written to.
void check_devices(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace softmps
