#include "generator.h"

#include "memory.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/util/Exception.h>

namespace softmps {
namespace {

class GeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit GeneratorImpl(uint64_t seed)
      : GeneratorImpl(at::detail::createCPUGenerator(seed)) {}
  explicit GeneratorImpl(at::Generator engine)
      : c10::GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::MPS)),
        engine_(std::move(engine)) {}

  const at::Generator& engine() const {
    return engine_;
  }

  void set_current_seed(uint64_t seed) override {
    engine_.set_current_seed(seed);
  }
  uint64_t current_seed() const override {
    return engine_.current_seed();
  }
  uint64_t seed() override {
    return engine_.seed();
  }
  void set_offset(uint64_t offset) override {
    engine_.set_offset(offset);
  }
  uint64_t get_offset() const override {
    return engine_.get_offset();
  }
  void set_state(const c10::TensorImpl& state) override {
    engine_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return engine_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  GeneratorImpl* clone_impl() const override {
    return new GeneratorImpl(engine_.clone());
  }

  at::Generator engine_;
};

}  // namespace

const at::Generator& default_generator() {
  static const at::Generator* const generator = new at::Generator(
      at::make_generator<GeneratorImpl>(c10::detail::getNonDeterministicRandom()));
  return *generator;
}

at::Generator new_generator() {
  return at::make_generator<GeneratorImpl>(c10::default_rng_seed_val);
}

at::Generator cpu_engine(const at::Generator& generator) {
  TORCH_CHECK(
      generator.device().type() == c10::DeviceType::MPS,
      "Expected a 'mps' device type for generator but found '", generator.device().type(), "'");
  return generator.get<GeneratorImpl>()->engine();
}

}  // namespace softmps
