// Chunks, DCT and top-k against their definitions.
#include "optim/math/chunk.h"
#include "optim/math/topk.h"
#include "optim/math/transform.h"
#include "tests/catch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace gt;

TEST_CASE("chunk_sides_are_the_largest_divisors") {
    CHECK(largest_divisor(50257, 64) == 29);
    CHECK(largest_divisor(768, 64) == 64);
    CHECK(largest_divisor(67, 64) == 1);
    CHECK(largest_divisor(96, 64) == 48);
    CHECK(largest_divisor(3, 64) == 3);
    CHECK(largest_divisor(1, 64) == 1);
    CHECK_THROWS_AS(parse_chunk("64x"), Error);
    CHECK_THROWS_AS(parse_chunk("0"), Error);
    CHECK_THROWS_AS(parse_chunk("512x512"), Error);
    CHECK(parse_chunk("4096").flat);
}

TEST_CASE("shards_are_cut_between_chunks") {
    for (const char * text : {"64x64", "4096", "100"}) {
        const ChunkTarget target = parse_chunk(text);
        for (const int64_t rows : {64, 67, 96, 1000, 58}) {
            for (const int64_t cols : {1, 24, 40, 768}) {
                const TensorShape shape{.rows = rows, .cols = cols};
                const ChunkGrid   grid = chunk_grid(shape, target);
                const int64_t     cut  = cut_rows(shape, target, false);
                CHECK(grid.n_chunks() * grid.chunk_size() == shape.size());
                CHECK((cut == rows || cut * cols % (grid.side_rows * grid.cols) == 0));
            }
        }
    }
    TensorShape vector{.rows = 768, .cols = 1, .is_vector = true};
    CHECK(cut_rows(vector, {}, false) == 768);
    CHECK(cut_rows({.rows = 128, .cols = 64}, {}, true) == 128);
}

TEST_CASE("cos_pi_agrees_with_std_cos") {
    for (int64_t q : {1, 2, 7, 64, 256, 10000}) {
        for (int64_t p = -3 * q; p <= 3 * q; p += std::max<int64_t>(1, q / 50)) {
            CHECK(cos_pi(p, q) == Approx(std::cos(M_PI * p / q)).margin(4e-15));
        }
    }
}

TEST_CASE("dct_is_orthonormal_at_every_size") {
    std::vector<int64_t> sizes(70);
    std::iota(sizes.begin(), sizes.end(), 1);
    for (const int64_t n : {96, 128, 130, 232, 512}) {
        sizes.push_back(n);
    }
    for (const int64_t n : sizes) {
        const Dct        dct(n);
        const LaneBuffer x(n * kRowLanes), y(n * kRowLanes), back(n * kRowLanes);
        for (int64_t i = 0; i < n * kRowLanes; ++i) {
            x.data()[i] = random_uniform(random_bits(3, n, i)) - 0.5f;
        }
        dct.forward(x.data(), kRowLanes, y.data(), kRowLanes, kRowLanes);
        double worst = 0.0;
        for (int64_t k = 0; k < n; ++k) {
            for (int64_t c = 0; c < kRowLanes; c += 5) {
                double want = 0.0;
                for (int64_t i = 0; i < n; ++i) {
                    want +=
                        x.data()[i * kRowLanes + c] * std::cos(M_PI * (2 * i + 1) * k / (2.0 * n));
                }
                want *= std::sqrt((k == 0 ? 1.0 : 2.0) / n);
                worst =
                    std::max(worst, std::fabs(y.data()[k * kRowLanes + c] * dct.scale() - want));
            }
        }
        INFO("size " << n);
        CHECK(worst < 1e-6 * std::sqrt(n));
        for (int64_t i = 0; i < n * kRowLanes; ++i) {
            y.data()[i] = y.data()[i] * dct.scale() * dct.scale();
        }
        dct.inverse(y.data(), kRowLanes, back.data(), kRowLanes, kRowLanes);
        worst = 0.0;
        for (int64_t i = 0; i < n * kRowLanes; ++i) {
            worst = std::max<double>(worst, std::fabs(back.data()[i] - x.data()[i]));
        }
        CHECK(worst < 1e-6 * std::sqrt(n));
    }
}

TEST_CASE("restore_undoes_forward_for_chunks_of_any_shape") {
    for (const auto & [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
             {64, 64}, {29, 64}, {64, 29}, {1, 48}, {58, 40}, {3, 5}, {16, 1}, {1, 1}, {8, 100}}) {
        const ChunkGrid grid{.rows = rows, .cols = cols, .side_rows = rows, .side_cols = cols};
        for (const bool is_dct : {true, false}) {
            INFO(rows << "x" << cols << (is_dct ? " dct" : " identity"));
            const auto       t = is_dct ? make_dct_transform(grid) : make_identity_transform(grid);
            const int64_t    n = rows * cols;
            const LaneBuffer out(n * t->batch()), scratch(t->scratch_size());
            std::vector<float> x(n), back(n);
            for (int64_t i = 0; i < n; ++i) {
                x[i] = random_uniform(random_bits(1, rows, cols, i)) - 0.5f;
            }
            t->forward(x.data(), cols, 1, out.data(), scratch.data());
            Sparse all;
            for (int64_t i = 0; i < n; ++i) {
                all.index.push_back(static_cast<uint16_t>(i));
                all.value.push_back(out.data()[i] * t->factor());
            }
            t->restore(&all, 1, back.data(), cols, scratch.data());
            for (int64_t i = 0; i < n; ++i) {
                REQUIRE(back[i] == Approx(x[i]).margin(1e-5));
            }
        }
    }
}

TEST_CASE("top_k_agrees_with_a_stable_sort") {
    TopKScratch scratch;
    for (const int64_t n : {1, 2, 17, 64, 100, 128, 500, 1856, 4096, 10000}) {
        for (const int64_t k : {1, 2, 8, 31, 32, 33, 100, 400, 4096}) {
            for (int kind = 0; kind < 4 && k <= n; ++kind) {
                std::vector<float> x(n);
                for (int64_t i = 0; i < n; ++i) {
                    const uint64_t bits = random_bits(n, k, kind, i);
                    const float    u    = random_uniform(bits) - 0.5f;
                    x[i]                = kind == 0   ? u  // all different
                                          : kind == 1 ? static_cast<float>(bits % 5) - 2  // many ties
                                          : kind == 2 ? (i % 97 == 0 ? u : 0.0f)  // nearly all zero
                                                      : 1.0f / static_cast<float>(i + 1);  // falling
                }
                std::vector<int64_t> order(n);
                std::iota(order.begin(), order.end(), 0);
                std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
                    return std::fabs(x[a]) > std::fabs(x[b]);
                });
                order.resize(k);
                std::sort(order.begin(), order.end());
                std::vector<uint16_t> index(k);
                top_k(x.data(), n, k, index.data(), scratch);
                INFO(n << " " << k << " " << kind);
                REQUIRE(std::equal(index.begin(), index.end(), order.begin()));
            }
        }
    }
}
