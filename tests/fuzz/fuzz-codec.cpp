// fuzz-codec — libFuzzer over the parsers of other hosts' messages: no input may crash, read out of
// bounds, or be accepted with an ambiguous meaning.
#include "optim/optim.h"
#include "optim/wire/codec.h"
#include "optim/wire/indices.h"

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

// Weights stay finite whatever a round holds.
static void apply_round(const OptimOptions & options, const Round & round) {
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
    optimizer->apply(round);
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
    const OptimOptions options{.replicator = input[0] % 2 == 0 ? "demo" : "loco", .fragments = 1};
    const Shares       codec(options, make_params());
    const auto         mean_of = [&](const Bytes & share) {
        const Message messages[] = {{.host = "a", .bytes = share}, {.host = "b", .bytes = share}};
        return codec.mean(messages);
    };
    const Bytes bytes(input.begin(), input.end());
    (void) mean_of(bytes);
    // a valid share and its mean, with a few bytes changed
    const Bytes message = with_content(options, {});
    const auto  change  = [&](Bytes in) {
        for (size_t i = 2; i + 2 < input.size(); i += 3) {
            in[(input[i] | size_t{input[i + 1]} << 8) % in.size()] ^= input[i + 2];
        }
        return in;
    };
    const std::vector<Bytes> shares = codec.split(message, 2);
    const size_t             j      = input[1] % 2;
    const auto               mean   = mean_of(change(shares[j]));
    Round                    round{.in_shares = true};
    round.messages          = {{.bytes = *mean_of(shares[0])}, {.bytes = *mean_of(shares[1])}};
    round.messages[j].bytes = mean ? *mean : change(round.messages[j].bytes);
    apply_round(options, round);
    round.messages[j].bytes = bytes;
    apply_round(options, round);
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
    apply_round(options, {.messages = {{"x", 3, bytes}}});
    apply_round(options, {.messages = {{"x", 3, with_content(options, input)}}});
    return 0;
}
