// wire-size — message size by setting, for the tensors of GPT-2 124M, and the rounding error of each wire
// type. Prints a table and one line of JSON; fails if the default message exceeds 2.4 MB.
//
//   wire-size
#include "optim/optim.h"
#include "optim/wire/indices.h"
#include "optim/wire/values.h"
#include "tests/bench/gpt2-shapes.h"

#include <cmath>
#include <cstdio>
#include <cstring>

using namespace gt;

// Shapes without memory.
static std::vector<ParamView> shapes_only() {
    std::vector<ParamView> params;
    for (const BenchShape & shape : gpt2_shapes()) {
        ParamView param{.name = shape.name, .kind = shape.kind};
        param.ne[0] = shape.cols == 0 ? shape.rows : shape.cols;
        param.ne[1] = shape.cols == 0 ? 1 : shape.rows;
        params.push_back(param);
    }
    return params;
}

static int64_t coefficients(const std::vector<ParamView> & params, const OptimOptions & options) {
    int64_t total = 0;
    for (const ParamView & param : params) {
        const ChunkGrid grid = chunk_grid(shape_of(param), parse_chunk(options.chunk));
        total += grid.n_chunks() * values_per_chunk(options, grid.chunk_size());
    }
    return total;
}

// RMS rounding error of the n largest of 4096 normally distributed numbers, relative to their RMS.
static double rounding_error(Wire wire, Group kind, int64_t n) {
    double error = 0.0, size = 0.0;
    for (uint64_t trial = 0; trial < 200; ++trial) {
        std::vector<float> x(n), restored(n);
        for (int64_t i = 0; i < n; ++i) {
            const double u =
                random_uniform(random_bits(trial, i)) * 0.0077 + 1e-7;  // the tail of a normal
            const double r =
                std::sqrt(-2.0 * std::log(u)) * (kind == Group::sparse ? 1.0 : u * 60.0);
            x[i] = static_cast<float>(random_bits(trial, i, 1) % 2 == 0 ? r : -r);
        }
        Bytes bytes(group_bytes(wire, kind, n));
        encode_group(wire, kind, x.data(), n, bytes.data(), restored.data());
        for (int64_t i = 0; i < n; ++i) {
            error += (x[i] - restored[i]) * (x[i] - restored[i]);
            size += x[i] * x[i];
        }
    }
    return std::sqrt(error / size);
}

int main() {
    const auto  params  = shapes_only();
    const Wire  wires[] = {Wire::fp32, Wire::fp16, Wire::q8, Wire::q4, Wire::q2, Wire::q1};
    std::string json;
    std::printf(
        "demo, GPT-2 124M\n%-8s %5s %-5s %12s %12s %14s %10s\n", "chunk", "k", "wire", "bytes",
        "coefficients", "bits/coeff.", "rounding"
    );
    for (const char * chunk : {"64x64", "4096"}) {
        for (const int64_t k : {8, 32, 128}) {
            for (size_t w = 0; w < std::size(wires); ++w) {
                const OptimOptions options{
                    .replicator = "demo", .wire = wire_names()[w].name, .chunk = chunk, .top_k = k};
                const int64_t bytes = message_bytes(options, params, 0);
                const int64_t n     = coefficients(params, options);
                std::printf(
                    "%-8s %5lld %-5s %12lld %12lld %14.2f %9.2f%%\n", chunk,
                    static_cast<long long>(k), wire_names()[w].name.c_str(),
                    static_cast<long long>(bytes), static_cast<long long>(n), 8.0 * bytes / n,
                    100.0 * rounding_error(wires[w], Group::sparse, k)
                );
                json += format(
                    "\"demo_%s_k%lld_%s\": %.4f, ", chunk, static_cast<long long>(k),
                    wire_names()[w].name.c_str(), static_cast<double>(bytes) / n
                );
            }
        }
    }
    std::printf("\nreplicators at their defaults\n");
    for (const auto & replicator : replicator_names()) {
        const OptimOptions options{.replicator = replicator.name};
        const uint64_t     step  = steps_per_round(options) - 1;
        const int64_t      bytes = message_bytes(options, params, step);
        std::printf("%-12s %12lld\n", replicator.name.c_str(), static_cast<long long>(bytes));
        json +=
            format("\"%s_bytes\": %lld, ", replicator.name.c_str(), static_cast<long long>(bytes));
    }
    const int64_t bytes = message_bytes({}, params, 0);
    std::printf(
        "{%s\"default_bytes\": %lld, \"reference_bytes\": 16750080, \"default_within_2.4MB\": "
        "%s}\n",
        json.c_str(), static_cast<long long>(bytes), bytes <= 2400000 ? "true" : "false"
    );
    return bytes <= 2400000 ? 0 : 1;
}
