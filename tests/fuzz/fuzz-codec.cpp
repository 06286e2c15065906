// fuzz-codec — libFuzzer over the parsers of other hosts' messages: no input may crash, read out of
// bounds, or be accepted with an ambiguous meaning.
#include "optim/optim.h"
#include "optim/wire/codec.h"
#include "optim/wire/indices.h"
#include "optim/wire/shares.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

using namespace gt;

static std::vector<ParamView> make_params() {
    std::vector<ParamView> params(3);
    params[0] = {.name = "m", .ne = {8, 16, 1, 1}, .kind = ParamKind::matrix, .row_end = 16};
    params[1] = {.name = "n", .ne = {5, 7, 1, 1}, .kind = ParamKind::embedding, .row_end = 7};
    params[2] = {.name = "v", .ne = {70, 1, 1, 1}, .kind = ParamKind::vector, .row_end = 70};
    return params;
}

static void require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

// Weights stay finite whatever a round of one message holds.
static void apply_message(const OptimOptions & options, uint64_t step, const Bytes & message) {
    static Workers                  workers(1);
    std::vector<std::vector<float>> weight, grad;
    auto                            params = make_params();
    for (auto & param : params) {
        const size_t n = param.ne[0] * param.ne[1];
        weight.emplace_back(n, 0.5f);
        grad.emplace_back(n, 0.0f);
    }
    for (size_t t = 0; t < params.size(); ++t) {
        params[t].weight = weight[t];
        params[t].grad   = grad[t];
    }
    const auto optimizer = make_optimizer(options, params, workers);
    optimizer->apply({.step = step, .messages = {{"x", 3, message}}});
    for (const auto & tensor : weight) {
        for (const float x : tensor) {
            require(std::isfinite(x));
        }
    }
}

// A message of the right length and head for the options, its content from the input.
static Bytes with_content(const OptimOptions & options, std::span<const uint8_t> input) {
    std::vector<std::vector<float>> room;
    auto                            params = make_params();
    for (auto & param : params) {
        room.emplace_back(param.ne[0] * param.ne[1], 0.0f);
        param.weight = param.grad = room.back();
    }
    Workers workers(1);
    Bytes   message = make_optimizer(options, params, workers)->prepare(0, 0.1f).message;
    for (size_t i = 0; i < input.size() && kHeadBytes + i < message.size(); ++i) {
        message[kHeadBytes + i] = input[i];
    }
    return message;
}

static void fuzz_indices(std::span<const uint8_t> input) {
    const int64_t   n = 1 + input[0] + 16 * input[1], k = 1 + input[2] % n;
    const IndexCode code(n, k);
    Bytes           bytes(input.begin() + 3, input.end());
    bytes.resize(code.bytes());
    std::vector<uint16_t> index(k);
    if (code.decode(bytes.data(), index.data()) == nullptr) {
        Bytes again(code.bytes());
        code.encode(index.data(), again.data());
        require(again == bytes);
    }
}

static void fuzz_shares(std::span<const uint8_t> input) {
    const OptimOptions options{.replicator = "full", .wire = "q8"};
    std::string        why;
    const Bytes        share(input.begin(), input.end());
    const Bytes        shares[]  = {share, share};
    const uint64_t     weights[] = {1, 2};
    (void) mean_share(make_params(), shares, weights, why);
    (void) join_means(shares, why);
    // and one with a valid head
    const Bytes message = with_content(options, input);
    if (check_message(options, make_params(), 0, message).empty()) {
        auto parts = split_shares(make_params(), message, 2);
        if (!input.empty()) {
            parts[0][40 + input[0] % 16] ^= 1;  // other bounds
        }
        (void
        ) mean_share(make_params(), std::span(parts).first(1), std::span(weights).first(1), why);
    }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    if (size < 4) {
        return 0;
    }
    const std::span<const uint8_t> input(data + 1, size - 1);
    const Bytes                    bytes(input.begin(), input.end());
    const int                      choice = data[0];
    if (choice % 8 == 7) {
        fuzz_indices(input);
        return 0;
    }
    if (choice % 8 == 6) {
        fuzz_shares(input);
        return 0;
    }
    if (choice % 8 == 5) {
        try {
            const Bytes parts[] = {bytes, bytes};
            (void) join_parts(parts);
        } catch (const Error &) {
        }
        return 0;
    }
    const auto   wires       = wire_names();
    const auto   replicators = replicator_names();
    OptimOptions options{
        .replicator    = replicators[choice / 8 % 7].name,
        .wire          = wires[choice % 5].name,
        .top_k         = 5,
        .every         = 1,
        .clip_messages = choice > 127 ? 0.5f : 2.0f};
    apply_message(options, 0, bytes);
    apply_message(options, 0, with_content(options, input));
    return 0;
}
