#include "ggml-train/base/base.h"
#include "ggml-train/base/digests.h"
#include "tests/catch.h"

#include <atomic>

using namespace gt;

TEST_CASE("random_bits_depend_on_every_argument") {
    const uint64_t x = random_bits(1, 2, 3, 4);
    CHECK(x == random_bits(1, 2, 3, 4));
    CHECK(x != random_bits(0, 2, 3, 4));
    CHECK(x != random_bits(1, 3, 2, 4));
    CHECK(x != random_bits(1, 2, 4, 3));
}

TEST_CASE("random_uniform_covers_the_unit_interval") {
    double sum = 0;
    for (uint64_t i = 0; i < 10000; ++i) {
        const float u = random_uniform(random_bits(7, i));
        REQUIRE(u >= 0.0f);
        REQUIRE(u < 1.0f);
        sum += u;
    }
    CHECK(sum / 10000 == Approx(0.5).margin(0.01));
}

TEST_CASE("digests_of_blocks_side_by_side_are_those_of_each_block") {
    for (const size_t size : {0, 1, 63, 64, 640, 1000, 3001}) {
        Bytes data(size);
        for (size_t i = 0; i < size; ++i) {
            data[i] = static_cast<uint8_t>(random_bits(3, i));
        }
        for (const size_t block : {8, 13, 64, 100}) {
            const auto digests = digests64(data, block, 5);
            REQUIRE(digests.size() == (size + block - 1) / block);
            for (size_t i = 0; i < digests.size(); ++i) {
                const auto one =
                    std::span(data).subspan(i * block, std::min(block, size - i * block));
                CHECK(digests[i] == digest64(one, 5 + i));
            }
        }
    }
}

TEST_CASE("digest64_sees_every_byte") {
    Bytes          data(37, 5);
    const uint64_t before = digest64(data);
    for (size_t i = 0; i < data.size(); ++i) {
        data[i] ^= 1;
        CHECK(digest64(data) != before);
        data[i] ^= 1;
    }
    CHECK(digest64(data) == before);
    data.push_back(0);
    CHECK(digest64(data) != before);
}

TEST_CASE("workers_cover_every_index_once") {
    Workers          workers(3);
    std::vector<int> seen(1001, 0);
    for (int repeat = 0; repeat < 50; ++repeat) {
        workers.split(1001, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                ++seen[i];
            }
        });
    }
    for (int n : seen) {
        REQUIRE(n == 50);
    }
}

TEST_CASE("workers_pass_on_an_exception") {
    Workers workers(2);
    CHECK_THROWS_AS(
        workers.run([](int i, int) {
            if (i == 1) {
                throw Error("worker");
            }
        }),
        Error
    );
    std::atomic<int> n = 0;
    workers.run([&](int, int) { ++n; });
    CHECK(n == 2);
}
