// The message format: values and indices survive a round trip, and malformed bytes are refused.
#include "optim/wire/codec.h"
#include "optim/wire/indices.h"
#include "tests/catch.h"
#include "tests/optim/optim-sim.h"

#include <cmath>

using namespace gt;

static const Wire kAllWires[] = {Wire::fp32, Wire::fp16, Wire::q8, Wire::q4, Wire::q2, Wire::q1};

TEST_CASE("decoded_values_are_those_the_encoder_returned_and_near_the_originals") {
    for (const Wire wire : kAllWires) {
        for (const Group kind : {Group::sparse, Group::dense}) {
            for (const int64_t n : {1, 2, 3, 31, 32, 64}) {
                for (const float size : {1e-20f, 1e-3f, 1.0f, 1e6f}) {
                    std::vector<float> x(n), restored(n), read(n);
                    float              max = 0.0f;
                    for (int64_t i = 0; i < n; ++i) {
                        const float u = random_uniform(random_bits(n, i)) - 0.5f;
                        x[i] = size * (kind == Group::dense ? u : u + (u < 0 ? -0.2f : 0.2f));
                        max  = std::max(max, std::fabs(x[i]));
                    }
                    Bytes bytes(group_bytes(wire, kind, n));
                    encode_group(wire, kind, x.data(), n, bytes.data(), restored.data());
                    REQUIRE(decode_group(wire, kind, bytes.data(), n, read.data()) == nullptr);
                    REQUIRE(read == restored);
                    const float bound = wire == Wire::fp32   ? 0.0f
                                        : wire == Wire::fp16 ? max / 2048
                                        : wire == Wire::q8   ? max / 200
                                        : wire == Wire::q4 ? max / (kind == Group::sparse ? 8 : 13)
                                                           : max;
                    for (int64_t i = 0; i < n; ++i) {
                        REQUIRE(std::fabs(read[i] - x[i]) <= bound);
                    }
                }
            }
        }
    }
}

TEST_CASE("nan_inf_and_huge_values_encode_to_an_invalid_group") {
    for (const Wire wire : kAllWires) {
        for (const Group kind : {Group::sparse, Group::dense}) {
            for (const float bad : {NAN, -INFINITY, INFINITY, 3e9f}) {
                std::vector<float> x(20, 1.0f), restored(20);
                x[7] = bad;
                Bytes bytes(group_bytes(wire, kind, 20));
                encode_group(wire, kind, x.data(), 20, bytes.data(), restored.data());
                CHECK(decode_group(wire, kind, bytes.data(), 20, x.data()) != nullptr);
            }
        }
    }
}

TEST_CASE("the_byte_of_a_sign_scale_is_within_an_eighth_of_the_mean_magnitude") {
    const auto restored = [](float x) {
        Bytes bytes(group_bytes(Wire::q1, Group::dense, 1));
        encode_group(Wire::q1, Group::dense, &x, 1, bytes.data(), &x);
        return x;
    };
    for (float x = 0x1.8p-42f; x < 0x1.8p21f; x *= 1.0371f) {
        REQUIRE(std::fabs(restored(x) / x - 1.0f) <= 0.125f);
        REQUIRE(restored(restored(x)) == restored(x));
    }
    CHECK(restored(0x1p-43f) == 0.0f);        // stays in the residual
    CHECK(restored(-0x1p28f) == -0x1.8p21f);  // the rest, too
}

TEST_CASE("a_group_of_zeros_is_restored_exactly") {
    for (const Wire wire : kAllWires) {
        for (const Group kind : {Group::sparse, Group::dense}) {
            std::vector<float> x(33, 0.0f), restored(33, 1.0f);
            Bytes              bytes(group_bytes(wire, kind, 33));
            encode_group(wire, kind, x.data(), 33, bytes.data(), restored.data());
            CHECK(restored == x);
            CHECK(decode_group(wire, kind, bytes.data(), 33, restored.data()) == nullptr);
            CHECK(restored == x);
        }
    }
}

TEST_CASE("indices_survive_a_round_trip_and_take_few_bytes") {
    CHECK(IndexCode(4096, 32).bytes() == 36);
    CHECK(IndexCode(1856, 32).bytes() == 32);
    CHECK(IndexCode(64, 64).bytes() == 0);
    for (const int64_t n : {1, 2, 7, 64, 100, 1856, 4096, 65536}) {
        for (const int64_t k : {1, 2, 5, 32, 64, 1000}) {
            for (int trial = 0; trial < 5 && k <= n; ++trial) {
                std::vector<uint16_t> index, read(k);
                for (int64_t i = 0, left = k; i < n && left > 0; ++i) {
                    // trial 0: the first k; trial 1: the last k; then random
                    const bool take = trial == 0   ? true
                                      : trial == 1 ? n - i <= left
                                                   : random_bits(trial, n, k, i) % (n - i) <
                                                         static_cast<uint64_t>(left);
                    if (take) {
                        index.push_back(static_cast<uint16_t>(i));
                        --left;
                    }
                }
                const IndexCode code(n, k);
                Bytes           bytes(code.bytes());
                code.encode(index.data(), bytes.data());
                INFO(n << " choose " << k);
                REQUIRE(code.decode(bytes.data(), read.data()) == nullptr);
                REQUIRE(read == index);
            }
        }
    }
}

TEST_CASE("index_bytes_are_invalid_or_encode_to_themselves") {
    for (const auto & [n, k] :
         std::vector<std::pair<int, int>>{{20, 3}, {16, 5}, {40, 2}, {9, 8}}) {
        const IndexCode       code(n, k);
        std::vector<uint16_t> index(k);
        int                   n_good     = 0;
        const uint64_t        n_patterns = 1ull << std::min<int64_t>(20, 8 * code.bytes());
        for (uint64_t pattern = 0; pattern < n_patterns; ++pattern) {
            Bytes bytes(8), again(8);
            std::memcpy(bytes.data(), &pattern, 8);
            if (code.decode(bytes.data(), index.data()) == nullptr) {
                ++n_good;
                code.encode(index.data(), again.data());
                REQUIRE(std::memcmp(bytes.data(), again.data(), code.bytes()) == 0);
                for (int i = 0; i < k; ++i) {
                    REQUIRE(index[i] < n);
                    REQUIRE((i == 0 || index[i] > index[i - 1]));
                }
            }
        }
        CHECK(n_good > 0);
    }
}

TEST_CASE("a_message_with_any_deviation_is_refused") {
    Workers            workers(1);
    const OptimOptions options{.replicator = "demo", .top_k = 8};
    SimHost            host(0, options, workers);
    const auto         params = host.model.params(options);
    const Bytes        good   = host.prepare(0);
    const auto         check  = [&](const Bytes & bytes, uint64_t step = 0) {
        return check_message(options, params, step, bytes);
    };
    REQUIRE(check(good).empty());
    CHECK_FALSE(check(good, 1).empty());  // another step

    Bytes longer = good;
    longer.push_back(0);
    CHECK_FALSE(check(longer).empty());
    for (const size_t n : {0, 1, 39, 40, 41, 500}) {
        CHECK_FALSE(check(Bytes(good.begin(), good.begin() + n)).empty());
    }
    for (size_t i = 0; i < kHeadBytes; ++i) {  // every bit of the head
        for (int bit = 0; bit < 8; ++bit) {
            Bytes bad = good;
            bad[i] ^= 1 << bit;
            const bool is_rate = i >= 24 && i < 28;  // another learning rate is valid by itself
            INFO("byte " << i << " bit " << bit);
            CHECK((is_rate || !check(bad).empty()));
        }
    }
    // other settings, other shapes
    OptimOptions other = options;
    other.top_k        = 9;
    CHECK_FALSE(check_message(other, params, 0, good).empty());
    auto smaller = params;
    smaller.pop_back();
    CHECK_FALSE(check_message(options, smaller, 0, good).empty());
    // NaN in fp32
    OptimOptions wide = options;
    wide.wire         = "fp32";
    SimHost     wide_host(0, wide, workers);
    Bytes       message = wide_host.prepare(0);
    const float bad     = NAN;
    std::memcpy(message.data() + kHeadBytes + 4, &bad, 4);
    CHECK_FALSE(check_message(wide, params, 0, message).empty());
    // the learning rate of most messages is used
    Bytes odd = host.prepare(1);
    odd[24] ^= 1;
    const auto before = host.model.weight;
    host.optimizer->apply({.step = 1, .messages = {{"x", 1, odd}}});
    CHECK_FALSE(same_bits(before, host.model.weight));
}

TEST_CASE("joining_parts_that_do_not_fit_is_an_error") {
    Workers            workers(1);
    const OptimOptions options{.replicator = "demo", .top_k = 8};
    SimModel           model;
    model.set_gradients(0, 0);
    std::vector<Bytes> parts;
    for (int r = 0; r < 3; ++r) {
        parts.push_back(
            make_optimizer(options, model.params(options, r, 3), workers)->prepare(0, 0.1f).message
        );
    }
    CHECK_NOTHROW(join_parts(parts));
    std::vector<Bytes> twice{parts[0], parts[1], parts[1]};
    CHECK_THROWS_AS(join_parts(twice), Error);
    std::vector<Bytes> torn{parts[0], Bytes(parts[1].begin(), parts[1].end() - 24), parts[2]};
    CHECK_THROWS_AS(join_parts(torn), Error);
    CHECK_THROWS_AS(join_parts({}), Error);
    CHECK_FALSE(check_message(options, model.params(options), 0, parts[0]).empty());
}

TEST_CASE("a_prime_number_of_rows_sends_about_the_same_fraction_of_a_matrix") {
    const auto bytes = [](int64_t rows, const OptimOptions & options) {
        ParamView table{.name = "table", .kind = ParamKind::embedding};
        table.ne[0] = 128;
        table.ne[1] = rows;
        return message_bytes(options, {table}, 0);
    };
    const OptimOptions by_density{.replicator = "demo"};
    CHECK(bytes(256, by_density) == bytes(256, {.replicator = "demo", .top_k = 32}));
    // chunks of 64 cannot send less than one value, with its own scale: 1 of 64 instead of 1 of 128
    CHECK(bytes(257, by_density) < 8 * bytes(256, by_density));
    CHECK(values_per_chunk(by_density, 64) == 1);
    CHECK(values_per_chunk(by_density, 4096) == 32);
    CHECK(values_per_chunk({.top_k = 32}, 64) == 32);
}
