// The random generator of the device: an mps generator to torch, a CPU engine inside, because CPU
// kernels draw from it. Equal seeds therefore give the CPU's numbers, not a Mac's.
#pragma once

#include <ATen/core/Generator.h>

namespace softmps {

const at::Generator& default_generator();
at::Generator new_generator();

// The CPU engine of an mps generator. An error, worded as on a Mac, for any other generator.
at::Generator cpu_engine(const at::Generator& generator);

}  // namespace softmps
