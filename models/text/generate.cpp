#include "models/text/generate.h"

#include "ggml-train/gguf/gguf-read.h"
#include "models/base-weights.h"
#include "models/gguf-source.h"
#include "models/text/tokenizer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <llama.h>
#include <thread>

namespace gt {

Generator::Generator(
    const std::string & path, int threads, const std::string & adapter, int64_t most
)
    : model_(nullptr, llama_model_free), context_(nullptr, llama_free) {
    quiet_llama();
    const auto gguf = open_gguf(path);  // for its clearer errors
    if (gguf_find_key(gguf.get(), "gt.checkpoint.version") >= 0) {
        throw Error(path + ": is a checkpoint; convert it to a model with export");
    }
    if (gguf_find_key(gguf.get(), "adapter.type") >= 0) {
        throw Error(
            path + ": is an adapter; -m names the model that it is for, --lora the adapter"
        );
    }
    check_vectors(gguf.get(), path);
    // on the CPU: a sample during training must not take memory from the devices
    ggml_backend_dev_t no_device[]  = {nullptr};
    llama_model_params model_params = llama_model_default_params();
    model_params.devices            = no_device;
    model_params.use_extra_bufts    = adapter.empty();  // a base stays mapped, not repacked
    model_.reset(llama_model_load_from_file(path.c_str(), model_params));
    if (!model_) {
        throw Error(path + ": llama.cpp cannot load it (" + last_llama_error() + ")");
    }
    const int n =
        threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    llama_context_params params = llama_context_default_params();
    params.n_ctx =
        static_cast<uint32_t>(std::min<int64_t>(llama_model_n_ctx_train(model_.get()), most));
    params.n_batch         = params.n_ctx;
    params.n_ubatch        = std::min(params.n_ctx, 512u);
    params.n_threads       = n;
    params.n_threads_batch = n;
    params.no_perf         = true;
    // F32 throughout, as in training
    params.type_k          = GGML_TYPE_F32;
    params.type_v          = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    context_.reset(llama_init_from_model(model_.get(), params));
    if (!context_) {
        throw Error(path + ": llama.cpp cannot use it (" + last_llama_error() + ")");
    }
    if (!adapter.empty()) {
        add_adapter(adapter);
    }
}

void Generator::add_adapter(const std::string & path) {
    open_gguf(path);  // for its clearer errors
    llama_adapter_lora * adapter = llama_adapter_lora_init(model_.get(), path.c_str());
    float                scale   = 1.0f;
    if (!adapter || llama_set_adapters_lora(context_.get(), &adapter, 1, &scale) != 0) {
        throw Error(path + ": llama.cpp cannot load the adapter (" + last_llama_error() + ")");
    }
}

Generator::~Generator() = default;

int64_t Generator::context() const {
    // libllama rounds its context up, but learned positions end at the trained context
    return std::min<int64_t>(llama_n_ctx(context_.get()), llama_model_n_ctx_train(model_.get()));
}

void Generator::decode(std::span<const int32_t> tokens) {
    std::vector<int32_t> copy(tokens.begin(), tokens.end());
    if (llama_decode(
            context_.get(), llama_batch_get_one(copy.data(), static_cast<int32_t>(copy.size()))
        ) != 0) {
        throw Error("llama.cpp could not compute the next token (" + last_llama_error() + ")");
    }
}

void Generator::decode_all(std::span<const int32_t> tokens) {
    GT_CHECK(
        static_cast<int64_t>(tokens.size()) <= context(), "more tokens than fit into the context"
    );
    llama_memory_clear(llama_get_memory(context_.get()), true);
    const size_t n     = tokens.size();
    llama_batch  batch = llama_batch_init(static_cast<int32_t>(n), 0, 1);
    batch.n_tokens     = static_cast<int32_t>(n);
    for (size_t i = 0; i < n; ++i) {
        batch.token[i]     = tokens[i];
        batch.pos[i]       = static_cast<llama_pos>(i);
        batch.n_seq_id[i]  = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i]    = 1;
    }
    const int failed = llama_decode(context_.get(), batch);
    llama_batch_free(batch);
    if (failed != 0) {
        throw Error("llama.cpp could not compute logits (" + last_llama_error() + ")");
    }
}

std::span<const float> Generator::row(size_t i) const {
    const int32_t V = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
    return {llama_get_logits_ith(context_.get(), static_cast<int32_t>(i)), static_cast<size_t>(V)};
}

std::vector<float> Generator::logits(std::span<const int32_t> tokens) {
    decode_all(tokens);
    std::vector<float> all;
    for (size_t i = 0; i < tokens.size(); ++i) {
        all.insert(all.end(), row(i).begin(), row(i).end());
    }
    return all;
}

std::vector<double> Generator::losses(std::span<const int32_t> tokens) {
    decode_all(tokens.first(tokens.size() - 1));
    std::vector<double> all;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
        const auto   logits = row(i);
        const double top    = *std::max_element(logits.begin(), logits.end());
        double       total  = 0.0;
        for (const float x : logits) {
            total += std::exp(x - top);
        }
        all.push_back(top + std::log(total) - logits[static_cast<size_t>(tokens[i + 1])]);
    }
    return all;
}

using SamplerPtr = std::unique_ptr<llama_sampler, void (*)(llama_sampler *)>;

static SamplerPtr make_sampler(const GenerateOptions & options) {
    SamplerPtr chain(
        llama_sampler_chain_init(llama_sampler_chain_default_params()), llama_sampler_free
    );
    if (options.temperature <= 0.0f) {
        llama_sampler_chain_add(chain.get(), llama_sampler_init_greedy());
        return chain;
    }
    if (options.top_k > 0) {
        llama_sampler_chain_add(chain.get(), llama_sampler_init_top_k(options.top_k));
    }
    llama_sampler_chain_add(chain.get(), llama_sampler_init_top_p(options.top_p, 1));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_temp(options.temperature));
    // LLAMA_DEFAULT_SEED means "random"
    llama_sampler_chain_add(
        chain.get(),
        llama_sampler_init_dist(static_cast<uint32_t>(options.seed % LLAMA_DEFAULT_SEED))
    );
    return chain;
}

// A text has at most as many tokens as bytes, and the special ones that its vocabulary adds.
constexpr size_t kAdded = 16;

static std::vector<int32_t>
encode_prompt(const llama_vocab * vocab, const std::string & prompt, bool special) {
    std::vector<int32_t> tokens(prompt.size() + kAdded);
    const int32_t        n = llama_tokenize(
               vocab, prompt.data(), static_cast<int32_t>(prompt.size()), tokens.data(),
               static_cast<int32_t>(tokens.size()),
               /*add_special*/ true, /*parse_special*/ special
           );
    GT_CHECK(n >= 0, "a text has at most as many tokens as bytes");
    tokens.resize(n);
    if (tokens.empty()) {  // start as at a document boundary
        const int32_t bos = llama_vocab_bos(vocab), eos = llama_vocab_eos(vocab);
        tokens.push_back(bos >= 0 ? bos : eos >= 0 ? eos : 0);
    }
    return tokens;
}

std::string Generator::run(
    const std::string &                              prompt,
    const GenerateOptions &                          options,
    const std::function<bool(const std::string &)> & piece
) {
    const llama_vocab *  vocab   = llama_model_get_vocab(model_.get());
    const SamplerPtr     sampler = make_sampler(options);
    const auto           room    = static_cast<size_t>(context());
    std::vector<int32_t> seen    = encode_prompt(vocab, prompt, options.special);
    std::string          written;

    const auto restart = [&] {  // drop the older half
        seen.erase(
            seen.begin(),
            seen.end() - static_cast<long>(std::min(seen.size(), std::max<size_t>(1, room / 2)))
        );
        llama_memory_clear(llama_get_memory(context_.get()), true);
        decode(seen);
    };
    llama_memory_clear(llama_get_memory(context_.get()), true);
    if (seen.size() >= room) {
        restart();
    } else {
        decode(seen);
    }
    for (int64_t i = 0; options.n_tokens < 0 || i < options.n_tokens; ++i) {
        const int32_t token = llama_sampler_sample(sampler.get(), context_.get(), -1);
        if (llama_vocab_is_eog(vocab, token)) {
            break;
        }
        char          text[256];
        const int32_t n   = llama_token_to_piece(vocab, token, text, sizeof text, 0, false);
        const auto    bit = std::string(text, static_cast<size_t>(std::max(0, n)));
        written += bit;
        if (piece && !piece(bit)) {
            break;
        }
        seen.push_back(token);
        if (seen.size() >= room) {
            restart();
        } else {
            decode(std::span(seen).last(1));
        }
    }
    return written;
}

std::string generate_from(
    const ModelConfig &         config,
    const gguf_context *        keys,
    std::span<const WeightView> weights,
    const std::string &         folder,
    const std::string &         prompt,
    const GenerateOptions &     options,
    int                         threads
) {
    struct Removed {
        std::string path;
        ~Removed() {
            std::error_code ignored;
            std::filesystem::remove(path, ignored);
        }
    };
    const Removed file{folder + "/.sample.gguf"};
    save_model(file.path, config, keys, weights, WeightType::f32);
    const BaseWeights * base = config.lora.base.get();
    if (base) {
        base->release();  // libllama maps it, too
    }
    // room for this text alone: a training run has better use for memory
    int64_t room = Generator::kMostContext;
    if (options.n_tokens >= 0) {
        room = std::min(room, static_cast<int64_t>(prompt.size() + kAdded) + options.n_tokens);
    }
    Generator generator(base ? base->path() : file.path, threads, base ? file.path : "", room);
    return generator.run(prompt, options);
}

}  // namespace gt
