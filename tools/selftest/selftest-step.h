// tools/selftest/selftest-step.h — one training step of a small GPT on a device, against the CPU.
#pragma once

#include <string>

namespace gt {

struct StepCheck {
    std::string device;                      // its description
    double      loss = 0.0, cpu_loss = 0.0;  // per token
    double      error   = 0.0;  // of the gradients, relative to the largest of their tensor
    double      first_s = 0.0, step_s = 0.0;  // seconds: with all preparations, and from then on
    double      tokens_per_s = 0.0;

    bool ok() const;
};

// device: one, as --device names it.
StepCheck selftest_step(const std::string & device);

}  // namespace gt
