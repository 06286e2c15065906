// tests/golden.h — holds a golden file (tests/golden/*.gguf) against our code, kind by kind.
#pragma once

#include "ggml-train/base.h"

namespace gt {

struct GoldenResult {
    std::string kind;
    double      worst = 0.0;  // largest error over its bound
    bool        ok    = false;
    std::string detail;  // where the worst is, or why the file could not be used
};

// Kinds gpt2.train, llama.train and vit.train: one result per form and device.
std::vector<GoldenResult> golden_model(const std::string & path);

// Kinds demo.run, repl.run and diloco.run.
GoldenResult golden_optim(const std::string & path);

}  // namespace gt
