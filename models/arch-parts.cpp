#include "models/arch-parts.h"

#include "ggml-train/gguf/gguf-read.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gt {

// --- tensors -------------------------------------------------------------------------------------

// Projections that write to the residual stream start smaller by 1/sqrt(2L) (GPT-2, section 2.3), so
// that its variance does not grow with depth. Rounded once, here: every host must init the same bits.
SpecList::SpecList(const ModelConfig & config)
    : out_std(static_cast<float>(0.02 / std::sqrt(2.0 * static_cast<double>(config.n_layer)))) {}

void SpecList::table(const std::string & name, Shape ne) {
    add({name + ".weight", ne, ParamKind::embedding, init, 0.02f});
}

void SpecList::linear(const std::string & name, Shape ne, bool bias, float std) {
    add({name + ".weight", ne, ParamKind::matrix, init, std});
    if (bias) {
        const int64_t n_out = ne[3] > 1 ? ne[3] : ne[1];
        add({name + ".bias", {n_out, 1, 1, 1}, ParamKind::vector, Init::zeros, 0});
    }
}

void SpecList::norm(const std::string & name, int64_t width, bool bias) {
    add({name + ".weight", {width, 1, 1, 1}, ParamKind::vector, Init::ones, 0});
    if (bias) {
        add({name + ".bias", {width, 1, 1, 1}, ParamKind::vector, Init::zeros, 0});
    }
}

void SpecList::token_table(const ModelConfig & c) {
    table("token_embd", {c.n_embd, c.n_vocab, 1, 1});
    specs_.back().per_token = true;
}

void SpecList::token_output(const ModelConfig & c) {
    if (!c.tied) {
        linear("output", {c.n_embd, c.n_vocab, 1, 1}, false);
        specs_.back().per_token = true;
    }
}

// --- keys ----------------------------------------------------------------------------------------

std::optional<int64_t> KeyReader::find_int(const char * name) const {
    const std::vector<int64_t> values = get_ints(name);
    if (values.empty()) {
        return std::nullopt;
    }
    if (std::any_of(values.begin(), values.end(), [&](int64_t x) { return x != values[0]; })) {
        throw Error(
            where_ + ": " + key(name) + " differs between layers; we train models of equal layers"
        );
    }
    return values[0];
}

std::vector<int64_t> KeyReader::get_ints(const char * name) const {
    return find_ints(gguf_, key(name), where_);
}

template <class T>
static T need(const std::optional<T> & value, const std::string & where, const std::string & key) {
    if (!value) {
        throw Error(where + ": key " + key + " is missing; is this a whole model file?");
    }
    return *value;
}

int64_t KeyReader::need_int(const char * name) const {
    return need(find_int(name), where_, key(name));
}

float KeyReader::need_float(const char * name) const {
    return static_cast<float>(need(find_float(gguf_, key(name), where_), where_, key(name)));
}

float KeyReader::get_float(const char * name, float otherwise) const {
    return static_cast<float>(find_float(gguf_, key(name), where_).value_or(otherwise));
}

std::string KeyReader::get_string(const char * name, const char * otherwise) const {
    return find_string(gguf_, key(name), where_).value_or(otherwise);
}

std::vector<float> KeyReader::get_floats(const char * name) const {
    return find_floats(gguf_, key(name), where_);
}

std::vector<std::string> KeyReader::get_strings(const char * name) const {
    return find_strings(gguf_, key(name), where_);
}

bool KeyReader::has_tensor(const std::string & name) const {
    return gguf_find_tensor(gguf_, name.c_str()) >= 0;
}

void KeyReader::refuse(bool bad, const char * feature) const {
    if (bad) {
        throw Error(
            where_ + ": this " + arch_ + " model has " + feature + ", which we do not train"
        );
    }
}

void KeyReader::read_text(ModelConfig & c) const {
    c.n_ctx     = need_int("context_length");
    c.n_head_kv = find_int("attention.head_count_kv").value_or(c.n_head);
    c.tied      = !has_tensor("output.weight");

    // The token list is exact; the embedding's rows may be padded, so they come last.
    const int64_t embedding = gguf_find_tensor(gguf_, "token_embd.weight");
    const auto    n_tokens  = find_array_size(gguf_, "tokenizer.ggml.tokens", where_);
    const auto    n_vocab   = find_int("vocab_size");
    c.n_vocab               = n_tokens         ? *n_tokens
                              : n_vocab        ? *n_vocab
                              : embedding >= 0 ? gguf_get_tensor_ne(gguf_, embedding)[1]
                                               : 0;
}

void KeyWriter::set_int(const char * name, int64_t value) const {
    gguf_set_val_u32(gguf_, key(name).c_str(), static_cast<uint32_t>(value));
}

void KeyWriter::set_float(const char * name, float value) const {
    gguf_set_val_f32(gguf_, key(name).c_str(), value);
}

void KeyWriter::set_string(const char * name, const std::string & value) const {
    gguf_set_val_str(gguf_, key(name).c_str(), value.c_str());
}

void KeyWriter::remove(const char * name) const {
    gguf_remove_key(gguf_, key(name).c_str());
}

void KeyWriter::set_floats(const char * name, const std::vector<float> & values) const {
    remove(name);
    if (!values.empty()) {
        gguf_set_arr_data(
            gguf_, key(name).c_str(), GGUF_TYPE_FLOAT32, values.data(), values.size()
        );
    }
}

void KeyWriter::set_strings(const char * name, const std::vector<std::string> & values) const {
    remove(name);
    if (!values.empty()) {
        std::vector<const char *> pointers;
        pointers.reserve(values.size());
        for (const std::string & value : values) {
            pointers.push_back(value.c_str());
        }
        gguf_set_arr_str(gguf_, key(name).c_str(), pointers.data(), pointers.size());
    }
}

void KeyWriter::write_text(const ModelConfig & c) const {
    set_int("context_length", c.n_ctx);
    set_int("vocab_size", c.n_vocab);
    set_int("attention.head_count_kv", c.n_head_kv);
}

// --- checks --------------------------------------------------------------------------------------

void Checks::fail(const std::string & why) const {
    throw Error(where_ + ": " + why);
}

void Checks::positive(const char * what, int64_t n) const {
    if (n < 1 || n > std::numeric_limits<int32_t>::max()) {
        fail(format("%s is %lld; it must be at least 1", what, static_cast<long long>(n)));
    }
}

void Checks::divides(const char * what, int64_t n, const char * of_what, int64_t of) const {
    if (of % n != 0) {
        fail(format(
            "%s (%lld) does not divide %s (%lld)", what, static_cast<long long>(n), of_what,
            static_cast<long long>(of)
        ));
    }
}

// --- sizes ---------------------------------------------------------------------------------------

ModelConfig text_config(const char * arch, const TextSizes & sizes) {
    ModelConfig c;
    c.arch      = arch;
    c.n_layer   = sizes.layers;
    c.n_embd    = sizes.width;
    c.n_head    = sizes.heads;
    c.n_head_kv = sizes.kv_heads;
    c.n_ff      = sizes.mlp;
    c.n_ctx     = sizes.context;
    return c;
}

}  // namespace gt
