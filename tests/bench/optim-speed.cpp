// bench-optim — time of optimizer steps on the tensors of GPT-2 124M: fused AdamW, and DeMo (extract,
// merge of two messages, update). Prints one line of JSON. The driver is tests/bench/optim-speed.
//
//   bench-optim [threads] [repeats]
#include "optim/optim.h"
#include "tests/bench/gpt2-shapes.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

using namespace gt;

using Clock = std::chrono::steady_clock;

static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// CPU time of all threads: does not depend on other load.
static double cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The fastest run: other load only adds time.
struct Best {
    double value = 1e9;
    void   note(double x) { value = std::min(value, x); }
};

int main(int argc, char ** argv) {
    const int threads =
        argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
    const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;

    Workers    workers(threads);
    BenchModel model(gpt2_shapes());
    Best       adamw, demo, extract, merge, adamw_cpu, demo_cpu;
    {
        auto optimizer =
            make_optimizer({.replicator = "none", .rule = "adamw"}, model.params(), workers);
        for (int i = 0; i <= repeats; ++i) {
            const auto   begin = Clock::now();
            const double cpu   = cpu_seconds();
            (void) optimizer->prepare(i, 1e-4f);
            optimizer->apply({.step = static_cast<uint64_t>(i)});
            if (i > 0) {
                adamw.note(seconds_since(begin));
                adamw_cpu.note(cpu_seconds() - cpu);
            }
        }
    }
    const OptimOptions options{.replicator = "demo", .rule = "sgd"};
    auto               optimizer = make_optimizer(options, model.params(), workers);
    model.new_gradients(1);
    Bytes  other   = optimizer->prepare(0, 1e-4f).message;  // the message of the second host
    size_t n_bytes = 0;
    model.new_gradients(2);
    for (int i = 0; i <= repeats; ++i) {
        const auto   begin = Clock::now();
        const double cpu   = cpu_seconds();
        Round        round{.step = static_cast<uint64_t>(i), .has_mine = true};
        round.messages.push_back({"a", 1, optimizer->prepare(i, 1e-4f).message});
        const double mid = seconds_since(begin);
        std::copy(
            round.messages[0].bytes.begin(), round.messages[0].bytes.begin() + 40, other.begin()
        );
        round.messages.push_back({"b", 1, other});
        n_bytes          = other.size();
        const auto again = Clock::now();
        optimizer->apply(round);
        if (i > 0) {
            extract.note(mid);
            merge.note(seconds_since(again));
            demo.note(mid + seconds_since(again));
            demo_cpu.note(cpu_seconds() - cpu);
        }
    }
    std::printf(
        "{\"threads\": %d, \"adamw_s\": %.4f, \"demo_s\": %.4f, \"demo_extract_s\": %.4f, "
        "\"demo_apply_s\": %.4f, \"demo_bytes\": %zu, \"demo_over_adamw\": %.3f, \"adamw_cpu_s\": "
        "%.4f, "
        "\"demo_cpu_s\": %.4f, \"demo_over_adamw_cpu\": %.3f}\n",
        threads, adamw.value, demo.value, extract.value, merge.value, n_bytes,
        demo.value / adamw.value, adamw_cpu.value, demo_cpu.value, demo_cpu.value / adamw_cpu.value
    );
}
