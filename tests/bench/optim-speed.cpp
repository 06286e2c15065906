// bench-optim — time of optimizer steps on the tensors of GPT-2 124M: fused AdamW, and demo and loco
// (extract, merge of two messages, update). Prints one line of JSON. The driver is tests/bench/optim-speed.
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

// Seconds per step of extract and apply with the messages of two hosts; the mean over the rounds after
// which every weight has been exchanged once.
struct Exchange {
    Best   all, extract, apply, cpu;
    size_t n_bytes = 0;  // of a message
};

static Exchange
exchange(const OptimOptions & options, BenchModel & model, Workers & workers, int repeats) {
    const auto n         = static_cast<int>(rounds_per_cycle(options));
    auto       optimizer = make_optimizer(options, model.params(), workers);
    Exchange   times;
    for (int i = 0; i <= repeats; ++i) {
        model.new_gradients(i + 1);
        const double cpu     = cpu_seconds();
        double       extract = 0.0, apply = 0.0;
        times.n_bytes = 0;
        for (int r = 0; r < n; ++r) {
            const auto   begin = Clock::now();
            const auto   step  = static_cast<uint64_t>(i * n + r);
            const Bytes  ours  = optimizer->prepare(step, 1e-4f).message;
            const double mid   = seconds_since(begin);
            optimizer->apply(
                {.step = step, .messages = {{"a", 1, ours}, {"b", 1, ours}}, .has_mine = true}
            );
            extract += mid / n;
            apply += (seconds_since(begin) - mid) / n;
            times.n_bytes += ours.size() / n;
        }
        if (i > 0) {
            times.extract.note(extract);
            times.apply.note(apply);
            times.all.note(extract + apply);
            times.cpu.note((cpu_seconds() - cpu) / n);
        }
    }
    return times;
}

int main(int argc, char ** argv) {
    const int threads =
        argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
    const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;

    Workers    workers(threads);
    BenchModel model(gpt2_shapes());
    Best       adamw, adamw_cpu;
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
    // the rule is sgd, so that the times are those of the exchange
    const Exchange demo = exchange({.replicator = "demo", .rule = "sgd"}, model, workers, repeats);
    const Exchange loco = exchange({.replicator = "loco", .rule = "sgd"}, model, workers, repeats);
    std::printf(
        "{\"threads\": %d, \"adamw_s\": %.4f, \"demo_s\": %.4f, \"demo_extract_s\": %.4f, "
        "\"demo_apply_s\": %.4f, \"demo_bytes\": %zu, \"demo_over_adamw\": %.3f, \"adamw_cpu_s\": "
        "%.4f, "
        "\"demo_cpu_s\": %.4f, \"demo_over_adamw_cpu\": %.3f, \"loco_s\": %.4f, \"loco_cpu_s\": "
        "%.4f, "
        "\"loco_bytes\": %zu, \"loco_over_demo_cpu\": %.3f}\n",
        threads, adamw.value, demo.all.value, demo.extract.value, demo.apply.value, demo.n_bytes,
        demo.all.value / adamw.value, adamw_cpu.value, demo.cpu.value,
        demo.cpu.value / adamw_cpu.value, loco.all.value, loco.cpu.value, loco.n_bytes,
        loco.cpu.value / demo.cpu.value
    );
}
