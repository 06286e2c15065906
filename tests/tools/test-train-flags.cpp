// The flags of a run: complete, and compatible with checkpoints and hubs of older versions.
#include "ggml-train/shard/weights.h"
#include "models/init.h"
#include "models/presets.h"
#include "tests/catch.h"
#include "tools/train/cost.h"
#include "tools/train/settle.h"

#include <algorithm>

using namespace gt;

TEST_CASE("a_run_stores_its_flags_under_the_names_of_older_versions") {
    const Flags::Values values = run_values(TrainFlags{});
    const auto          text   = [&](const std::string & name) -> std::string {
        const auto it = std::find_if(values.begin(), values.end(), [&](const auto & value) {
            return value.first == name;
        });
        return it == values.end() ? "missing" : it->second;
    };
    for (const char * name : {"batch", "context",    "steps",  "tokens",       "hours",
                              "lr",    "schedule",   "warmup", "clip",         "smoothing",
                              "seed",  "replicator", "rule",   "weight-decay", "beta1",
                              "beta2", "wire",       "chunk",  "top-k",        "momentum-decay"}) {
        INFO(name);
        CHECK(text(name) != "missing");
    }
    CHECK(text("min-lr") == "0.1");
    CHECK(text("decay") == "0.2");
    CHECK(text("rate") == "0.1");
    CHECK(text("every") == "0");
    CHECK(text("sign") == "auto");
    CHECK(text("overlap") == "-1");
    CHECK(text("outer-lr") == "-1");  // OptimOptions::visit is the only list of its flags
}

TEST_CASE("flags_of_older_checkpoints_are_restored") {
    const TrainFlags f = with_values(
        TrainFlags{}, {{"min-lr", "0.3"},
                       {"decay", "0.4"},
                       {"rate", "0.5"},
                       {"every", "6"},
                       {"sign", "on"},
                       {"overlap", "1"}}
    );
    CHECK(f.schedule.min_ratio == 0.3f);  // --min-lr is refused on a command line only
    CHECK(f.schedule.decay == 0.4f);
    CHECK(f.optim.rate == 0.5f);
    CHECK(f.optim.every == 6);
    CHECK(f.optim.sign == "on");
    CHECK(f.optim.overlap == 1);
}

TEST_CASE("the_settings_of_every_publication_make_an_optimizer") {
    for (const Publication & row : publications()) {
        INFO(row.name);
        TrainFlags   f;
        Flags        flags;
        const char * argv[] = {
            "train-gpt", "--published", row.name.c_str(), "--muon-momentum", "0.8"};
        f.visit_run(flags);
        flags.parse(5, argv);
        CHECK(f.optim.replicator != "auto");
        CHECK(f.optim.overlap <= 0);
        CHECK(f.optim.muon_momentum == 0.8f);  // the words behind it count, too
        CHECK_NOTHROW(check_options(f.optim));
    }
}

TEST_CASE("a_flag_that_contradicts_the_publication_is_refused") {
    TrainFlags   f;
    Flags        flags;
    const char * argv[] = {"train-gpt", "--published", "muloco", "--wire", "q8"};
    f.visit_run(flags);
    CHECK_THROWS_WITH(
        flags.parse(5, argv), "--wire is given twice: q4 (by --published muloco) and q8"
    );
}

TEST_CASE("validations_take_at_most_a_tenth_of_a_run") {
    for (const int64_t steps : {10, 20, 50, 100, 150, 400, 1000, 2000, 100000}) {
        INFO(steps << " steps");
        RunPlan draft;
        draft.schedule.lr   = 1e-3f;
        const RunPlan plan  = with_steps(draft, steps);
        const int64_t n     = 1 + (steps + plan.eval_every - 1) / plan.eval_every;  // with step 0
        const double  share = static_cast<double>(n * plan.eval_batches) / 3.0;     // in steps
        CHECK(n >= 2);
        CHECK(n <= 21);
        CHECK(share <= 0.1 * static_cast<double>(steps) + 1e-9);
    }
    RunPlan given;
    given.schedule.lr = 1e-3f;
    given.eval_every  = 1;
    CHECK(with_steps(given, 20).eval_every == 1);
    CHECK(with_steps(given, 20).eval_batches == 16);
}

static ModelConfig small_gpt() {
    ModelConfig config = find_preset("gpt-tiny").config;
    config.n_vocab     = 257;
    return config;
}

TEST_CASE("a_limit_on_uploads_takes_the_fewest_fragments_that_keep_to_it") {
    const auto params = param_shapes(tensor_specs(small_gpt()));
    const auto rate   = [&](uint64_t fragments) {  // bytes per second at two seconds per step
        const OptimOptions optim{.replicator = "loco", .fragments = fragments};
        const Hosts        run{.hosts = {{.up = 1e9, .down = 1e9}}};
        const Cost         cost = estimate(optim, params, run, 2.0);
        return static_cast<double>(cost.round_bytes) / 2.0;
    };
    const OptimOptions loco{.replicator = "loco"};
    CHECK(fragments_within(loco, params, 2.0, 1.01 * rate(0)) == 6);
    for (const double part : {0.9, 0.5, 0.1}) {
        INFO(part);
        const uint64_t n = fragments_within(loco, params, 2.0, part * rate(0));
        CHECK(n > 6);
        CHECK(rate(n) <= part * rate(0));
        CHECK(rate(n - (n + 4) / 5) > part * rate(0));  // a fifth fewer would send too much
    }
}

TEST_CASE("train_chooses_fragments_by_its_limits_unless_they_are_given") {
    RunModel model{.file = empty_model(small_gpt())};
    init_model(model.file, 1);
    TrainFlags f;
    f.batch = f.threads = f.steps = 1;
    RunInput in{.model = &model, .T = 16, .n_samples = 100, .alone = false};
    CHECK(choose_defaults(f, in).optim.fragments == 6);

    NodesFlags nodes;
    nodes.day_cap  = 86.4;  // a million bytes per second
    nodes.up_limit = 1000;
    CHECK(nodes.up_rate() == 1000.0);
    nodes.up_limit = 2'000'000;
    CHECK(nodes.up_rate() == 1e6);
    in.up_rate = 1.0;  // less than any model can do
    CHECK(choose_defaults(f, in).optim.fragments >= 512);
    f.optim.fragments = 5;
    CHECK(choose_defaults(f, in).optim.fragments == 5);
}

TEST_CASE("runs_of_many_hosts_average_their_messages_in_shares") {
    RunModel model{.file = empty_model(small_gpt())};
    init_model(model.file, 1);
    TrainFlags f;
    f.batch = f.threads = f.steps = 1;
    RunInput   in{.model = &model, .T = 16, .n_samples = 100, .alone = false};
    const auto shares = [&](const char * replicator, size_t n_hosts, int64_t given = -1) {
        f.optim.replicator        = replicator;
        f.optim.shares            = given;
        in.n_hosts                = n_hosts;
        const OptimOptions chosen = choose_defaults(f, in).optim;
        CHECK(shares_of(chosen) == std::max<int64_t>(0, chosen.shares));
        return shares_of(chosen);
    };
    CHECK(shares("loco", 15) == 0);
    CHECK(shares("loco", 16) == 16);
    CHECK(shares("random", 20) == 20);
    CHECK(shares("demo", 30) == 0);  // the means of 30 hosts are as large as their messages
    CHECK(shares("loco", 1000) == 32);
    CHECK(shares("diloco", 4) == 8);
    CHECK(shares("diloco", 100) == 8);
    CHECK(shares("loco", 4, 3) == 3);
    CHECK(shares("loco", 100, 0) == 0);
    CHECK(shares("none", 100) == 0);
}
