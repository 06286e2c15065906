// tests/golden/golden.h — compares our code with a golden file (tests/golden/*.gguf), by kind.
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

struct GoldenResult {
    std::string kind;
    double      worst = 0.0;  // largest error over its bound
    bool        ok    = false;
    std::string detail;  // the tensor with the largest error, or why the file is invalid
};

// Kinds gpt2.train, llama.train and vit.train: one result per form and device, or of one device.
std::vector<GoldenResult> golden_model(const std::string & path, const std::string & device);

// Kinds demo.run, repl.run and diloco.run.
GoldenResult golden_optim(const std::string & path);

}  // namespace gt
