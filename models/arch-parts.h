// models/arch-parts.h — helpers that the rows of arch.h's table are written with.
#pragma once

#include "models/arch.h"

#include <optional>

namespace gt {

// Collects the tensors of a model.
class SpecList {
public:
    using Shape = std::array<int64_t, 4>;

    explicit SpecList(const ModelConfig & config);

    Init  init = Init::normal;  // of matrices and tables added from here on
    float out_std;              // of projections that write to the residual stream

    void add(TensorSpec spec) { specs_.push_back(std::move(spec)); }
    void table(const std::string & name, Shape ne);
    void linear(const std::string & name, Shape ne, bool bias, float std = 0.02f);
    void norm(const std::string & name, int64_t width, bool bias);
    void token_table(const ModelConfig & config);   // token_embd
    void token_output(const ModelConfig & config);  // output, unless tied

    std::vector<TensorSpec> take() { return std::move(specs_); }

private:
    std::vector<TensorSpec> specs_;
};

// Reads keys "<arch>.<name>"; every Error names file and key.
class KeyReader {
public:
    KeyReader(const gguf_context * gguf, std::string arch, std::string where)
        : gguf_(gguf), arch_(std::move(arch)), where_(std::move(where)) {}

    int64_t                  need_int(const char * name) const;
    float                    need_float(const char * name) const;
    std::optional<int64_t>   find_int(const char * name) const;
    float                    get_float(const char * name, float otherwise) const;
    std::string              get_string(const char * name, const char * otherwise) const;
    std::vector<int64_t>     get_ints(const char * name) const;  // of one number, too
    std::vector<float>       get_floats(const char * name) const;
    std::vector<std::string> get_strings(const char * name) const;
    bool                     has_tensor(const std::string & name) const;

    // Throws if the model has a feature that we do not train.
    void refuse(bool bad, const char * feature) const;

    // Context, vocabulary, key-value heads and tying of a text model, as llama.cpp stores them.
    void read_text(ModelConfig & config) const;

private:
    std::string key(const char * name) const { return arch_ + "." + name; }

    const gguf_context * gguf_;
    std::string          arch_, where_;
};

// Sets keys "<arch>.<name>".
class KeyWriter {
public:
    KeyWriter(gguf_context * gguf, std::string arch) : gguf_(gguf), arch_(std::move(arch)) {}

    void set_int(const char * name, int64_t value) const;
    void set_float(const char * name, float value) const;
    void set_string(const char * name, const std::string & value) const;

    // An empty array removes the key.
    void set_floats(const char * name, const std::vector<float> & values) const;
    void set_strings(const char * name, const std::vector<std::string> & values) const;
    void remove(const char * name) const;

    // Counterpart of KeyReader::read_text.
    void write_text(const ModelConfig & config) const;

private:
    std::string key(const char * name) const { return arch_ + "." + name; }

    gguf_context * gguf_;
    std::string    arch_;
};

// Throws Errors that begin with `where`.
class Checks {
public:
    explicit Checks(std::string where) : where_(std::move(where)) {}

    [[noreturn]] void fail(const std::string & why) const;
    void              positive(const char * what, int64_t n) const;
    void              divides(const char * what, int64_t n, const char * of_what, int64_t of) const;

private:
    std::string where_;
};

// Sizes of a text model, for presets and defaults.
struct TextSizes {
    int64_t layers = 0, width = 0, heads = 0, kv_heads = 0, mlp = 0, context = 0;
};
ModelConfig text_config(const char * arch, const TextSizes & sizes);

}  // namespace gt
