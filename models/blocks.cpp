#include "models/blocks.h"

#include "models/gpt.h"
#include "models/llama.h"
#include "models/vit.h"

namespace gt {

std::unique_ptr<Transformer>
make_model(const Backend & backend, const ModelConfig & config, bool with_grads) {
    if (config.arch == "gpt2") {
        return std::make_unique<Gpt>(backend, config, with_grads);
    }
    if (config.arch == "llama") {
        return std::make_unique<Llama>(backend, config, with_grads);
    }
    if (config.arch == "vit") {
        return std::make_unique<Vit>(backend, config, with_grads);
    }
    throw Error("architecture '" + config.arch + "' is not one we train: gpt2, llama, vit are");
}

}  // namespace gt
