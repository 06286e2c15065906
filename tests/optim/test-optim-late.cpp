// Hosts that miss rounds, at every point of a run: all agree, no update is lost or applied twice, and the
// loss of a simple problem does not jump.
#include "tests/catch.h"
#include "tests/optim/optim-sim.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace gt;

namespace {

// A host's message is committed, misses the commit, or is not yet made when the round closes.
enum class Fate { in_time, left_out, behind };
using Fates = std::function<Fate(uint64_t host, uint64_t round)>;

std::vector<SimShape> small_shapes() {
    return {
        {"matrix", {32, 24, 1, 1}, ParamKind::matrix},
        {"vector", {40, 1, 1, 1}, ParamKind::vector}};
}

// A quadratic whose minimum differs slightly between hosts.
class Bowl {
public:
    static float at(uint64_t host, size_t t, size_t i) {
        const float common = random_uniform(random_bits(17, t, i)) - 0.5f;
        const float own    = random_uniform(random_bits(19, host, t, i)) - 0.5f;
        return common + 0.1f * own;
    }
    static float steepness(size_t i) { return i % 3 == 0 ? 1.0f : 0.3f; }

    static void set_gradients(uint64_t host, SimModel & model) {
        for (size_t t = 0; t < model.grad.size(); ++t) {
            for (size_t i = 0; i < model.grad[t].size(); ++i) {
                model.grad[t][i] = steepness(i) * (model.weight[t][i] - at(host, t, i));
            }
        }
    }
    static double loss(size_t n_hosts, const std::vector<std::vector<float>> & weights) {
        double sum = 0.0, n = 0.0;
        for (size_t t = 0; t < weights.size(); ++t) {
            for (size_t i = 0; i < weights[t].size(); ++i, ++n) {
                for (size_t h = 0; h < n_hosts; ++h) {
                    const double off = weights[t][i] - at(h, t, i);
                    sum += 0.5 * steepness(i) * off * off / double(n_hosts);
                }
            }
        }
        return sum / n;
    }
};

using Values = std::vector<std::vector<float>>;

bool has_anchor(const OptimOptions & options) {
    return has_local_steps(options);
}

// Element-wise sum.
class Sum {
public:
    void add(const Values & values, double factor = 1.0) {
        at_.resize(std::max(at_.size(), values.size()));
        for (size_t t = 0; t < values.size(); ++t) {
            at_[t].resize(values[t].size());
            for (size_t i = 0; i < values[t].size(); ++i) {
                at_[t][i] += factor * values[t][i];
            }
        }
    }
    double norm() const {
        double sum = 0.0;
        for (const auto & tensor : at_) {
            for (const double x : tensor) {
                sum += std::fabs(x);
            }
        }
        return sum;
    }

private:
    std::vector<std::vector<double>> at_;
};

// Hosts in one process, with the steps of Trainer: gradient, prepare, apply.
class LateRun {
public:
    LateRun(int n, const OptimOptions & options, float lr, Fates fates, Workers & workers)
        : options_(options), every_(steps_per_round(options)),
          n_fragments_(rounds_per_cycle(options)), overlap_(overlap_of(options)), lr_(lr),
          fates_(std::move(fates)), workers_(workers),
          made_(static_cast<size_t>(n), std::vector<uint64_t>(n_fragments_, 0)),
          travelling_(static_cast<size_t>(n)) {
        for (int h = 0; h < n; ++h) {
            hosts_.push_back(std::make_unique<SimHost>(h, options, workers, small_shapes()));
        }
    }

    void run(uint64_t n_rounds) {
        for (uint64_t step = 0; step < n_rounds * every_; ++step) {
            this->step(step);
        }
        for (auto & host : hosts_) {
            collect(*host, UINT64_MAX);
        }
    }

    std::vector<double> losses;  // of the shared weights, by round

    // What all hosts computed minus what was applied and what is pending, relative to the former.
    double imbalance() {
        for (auto & host : hosts_) {
            balance_.add(kept_by_replicator(*host), -1.0);
            if (has_anchor(options_)) {
                balance_.add(anchor_of(*host), -1.0);
                balance_.add(host->model.weight);
            }
        }
        return balance_.norm() / computed_.norm();
    }

private:
    struct Flight {
        Round round;
        bool  has_mine = true;
    };

    void step(uint64_t step) {
        const bool        due = (step + 1) % every_ == 0;
        Round             round{.step = step};
        std::vector<Fate> fates;
        for (auto & host : hosts_) {
            fates.push_back(due ? fates_(host->id, step / every_) : Fate::in_time);
            if (fates.back() == Fate::behind) {
                continue;
            }
            Bowl::set_gradients(host->id, host->model);
            for (uint64_t & n_steps : made_[host->id]) {
                ++n_steps;
            }
            const double folded = options_.replicator == "full" ? 1.0 : lr_;
            computed_.add(host->model.grad, folded);
            balance_.add(host->model.grad, folded);
            Bytes message = host->optimizer->prepare(step, lr_).message;
            if (fates.back() == Fate::in_time && !message.empty()) {
                round.messages.push_back({std::to_string(host->id), 1, std::move(message)});
            }
        }
        if (!round.messages.empty()) {
            count_applied(round, fates);
        }
        for (auto & host : hosts_) {
            if (due) {
                made_[host->id][step / every_ % n_fragments_] = 0;
                travelling_[host->id].push_back({round, fates[host->id] != Fate::left_out});
            }
            const bool is_late = fates[host->id] == Fate::behind;
            collect(*host, step + (is_late ? overlap_ : 0));
        }
    }

    // The mean was applied for all hosts that sent a message, in time or not, and for the steps that a
    // host had made when the round closed. demo averages over senders, so each message counts by itself.
    void count_applied(const Round & round, const std::vector<Fate> & fates) {
        if (options_.replicator == "demo") {
            for (const Message & message : round.messages) {
                balance_.add(content(options_, {.step = round.step, .messages = {message}}), -1);
            }
            return;
        }
        const size_t f    = round.step / every_ % n_fragments_;
        const auto   span = std::min<uint64_t>(every_ * n_fragments_, round.step + 1);
        double       n    = 0.0;
        for (size_t h = 0; h < fates.size(); ++h) {
            const double made = has_anchor(options_) ? double(made_[h][f]) / double(span) : 0.0;
            n += fates[h] == Fate::behind ? made : 1.0;
        }
        balance_.add(content(options_, round), -n);
    }

    // Finishes the rounds that are to be applied after `step`.
    void collect(SimHost & host, uint64_t step) {
        auto & flights = travelling_[host.id];
        while (!flights.empty() && flights.front().round.step + overlap_ <= step) {
            finish(host, flights.front());
            flights.erase(flights.begin());
        }
    }

    void finish(SimHost & host, const Flight & flight) {
        Round round    = flight.round;
        round.has_mine = flight.has_mine;
        if (!round.has_mine) {
            host.optimizer->take_back(round.step);
        }
        host.optimizer->apply(round);
        const Values   weights = has_anchor(options_) ? anchor_of(host) : host.model.weight;
        const uint64_t number  = round.step / every_;
        uint64_t       digest  = digest_of(weights);
        for (const StateTensor & tensor : host.optimizer->state().tensors) {
            digest = tensor.shared
                         ? digest_of({{tensor.values.begin(), tensor.values.end()}}, digest)
                         : digest;
        }
        if (number == digests_.size()) {
            digests_.push_back(digest);
            losses.push_back(Bowl::loss(hosts_.size(), weights));
        }
        REQUIRE(digests_[number] == digest);
    }

    static Values anchor_of(SimHost & host) {
        Values anchor;
        for (const StateTensor & tensor : host.optimizer->state().tensors) {
            if (tensor.name.starts_with("anchor.")) {
                anchor.emplace_back(tensor.values.begin(), tensor.values.end());
            }
        }
        return anchor;
    }

    // The mean content of a round: the weights of an optimizer that starts from zero and applies it.
    Values content(const OptimOptions & options, Round round) {
        SimHost probe  = empty_host(options);
        round.has_mine = true;
        probe.optimizer->apply(round);
        const bool anchored = has_anchor(options);
        for (auto & weight : probe.model.weight) {
            for (float & w : weight) {
                w = anchored ? -w : -w / lr_;
            }
        }
        return probe.model.weight;
    }

    // The momentum or residual in elements: sent by an optimizer that sends everything.
    Values kept_by_replicator(SimHost & host) {
        OptimOptions all = options_;
        all.wire         = "fp32";
        all.top_k        = 1 << 20;
        all.rate         = 1.0f;
        all.fragments    = 1;
        SimHost    probe = empty_host(all);
        const auto from = host.optimizer->state(), to = probe.optimizer->state();
        for (size_t i = 0; i < from.tensors.size(); ++i) {
            const std::string & name = from.tensors[i].name;
            if (name.starts_with("momentum.") || name.starts_with("residual.")) {
                std::copy(
                    from.tensors[i].values.begin(), from.tensors[i].values.end(),
                    to.tensors[i].values.begin()
                );
            }
        }
        // an infinite loss scale makes the gradient zero
        const Bytes message =
            probe.optimizer->prepare(every_ - 1, lr_, {.loss_scale = INFINITY}).message;
        return content(all, {.step = every_ - 1, .messages = {{"", 1, message}}});
    }

    SimHost empty_host(const OptimOptions & options) {
        SimHost host(0, options, workers_, small_shapes());
        for (auto & weight : host.model.weight) {
            std::fill(weight.begin(), weight.end(), 0.0f);
        }
        host.optimizer = make_optimizer(options, host.model.params(options), workers_);
        return host;
    }

    OptimOptions                          options_;
    uint64_t                              every_, n_fragments_, overlap_;
    float                                 lr_;
    Fates                                 fates_;
    Workers &                             workers_;
    std::vector<std::unique_ptr<SimHost>> hosts_;
    std::vector<std::vector<uint64_t>>    made_;        // by host and fragment: steps since a round
    std::vector<std::vector<Flight>>      travelling_;  // by host
    std::vector<uint64_t>                 digests_;     // of the shared state, by round
    Sum                                   computed_, balance_;
};

constexpr uint64_t kRounds = 12;

// The rounds in which each of two hosts is late.
const std::vector<std::pair<const char *, bool (*)(uint64_t host, uint64_t round)>> kLate = {
    {"first", [](uint64_t host, uint64_t round) { return host == 1 && round == 0; }},
    {"middle", [](uint64_t host, uint64_t round) { return host == 1 && round == 5; }},
    {"last", [](uint64_t host, uint64_t round) { return host == 1 && round == kRounds - 1; }},
    {"in a row", [](uint64_t host, uint64_t round) { return host == 1 && round > 2 && round < 9; }},
    {"all but the last", [](uint64_t host, uint64_t round) { return host == 1 && round < 11; }},
    {"in turns", [](uint64_t host, uint64_t round) { return round % 2 == host; }},
    {"both", [](uint64_t, uint64_t round) { return round == 5 || round == 6; }},
};

// Every replicator, without and with overlap.
std::vector<OptimOptions> all_replicators() {
    std::vector<OptimOptions> list;
    for (const auto & name : replicator_names()) {
        for (const int64_t overlap : {0, 1, 3, 5}) {
            if (name.name != "none" &&
                (overlap <= 1 || has_local_steps({.replicator = name.name}))) {
                OptimOptions options{.replicator = name.name, .chunk = "8x8", .top_k = 16};
                options.rate         = 0.25f;
                options.every        = has_anchor(options) ? 6 : 1;
                options.weight_decay = 0.0f;
                options.overlap      = overlap;
                list.push_back(options);
            }
        }
    }
    return list;
}

// Calls fn with each replicator and each pattern of late rounds.
void for_all(const std::function<void(const OptimOptions & options, const Fates & fates)> & fn) {
    for (const OptimOptions & options : all_replicators()) {
        for (const auto & [place, is_late] : kLate) {
            for (const Fate late : {Fate::left_out, Fate::behind}) {
                INFO(
                    options.replicator << ", overlap " << options.overlap << ", late " << place
                                       << (late == Fate::behind ? ", behind" : ", left out")
                );
                fn(options, [&, is_late = is_late](uint64_t host, uint64_t round) {
                    return is_late(host, round) ? late : Fate::in_time;
                });
            }
        }
    }
}

Fate never_late(uint64_t, uint64_t) {
    return Fate::in_time;
}

}  // namespace

TEST_CASE("no_update_of_a_late_host_is_lost_or_applied_twice") {
    Workers workers(1);
    for_all([&](OptimOptions options, const Fates & fates) {
        options.rule           = "sgd";  // updates are linear
        options.sign           = "off";
        options.clip_messages  = 0.0f;  // what is clipped is lost
        options.decay          = std::nextafter(1.0f, 0.0f);
        options.residual_decay = 1.0f;
        options.restore_norm   = "off";
        options.outer_lr       = 1.0f;
        options.outer_momentum = 0.0f;
        LateRun run(2, options, 0.05f, fates, workers);
        run.run(kRounds);
        CHECK(run.imbalance() < 1e-5);
    });
}

TEST_CASE("late_hosts_do_not_make_the_loss_jump") {
    constexpr float     lr = 0.02f;
    Workers             workers(1);
    std::string         name;
    std::vector<double> usual;  // losses of this replicator without late hosts
    for_all([&](const OptimOptions & options, const Fates & fates) {
        if (const std::string now = options.replicator + std::to_string(options.overlap);
            now != name) {
            LateRun in_time(2, options, lr, never_late, workers);
            in_time.run(2 * kRounds);
            usual = in_time.losses;
            name  = now;
        }
        LateRun run(2, options, lr, fates, workers);
        run.run(2 * kRounds);
        for (size_t r = 0; r < run.losses.size(); ++r) {
            // momentum oscillates, and a missed round delays its fragment by a cycle
            const size_t back  = std::max<size_t>(4, rounds_per_cycle(options));
            const auto   begin = usual.begin() + static_cast<int64_t>(r > back ? r - back : 0);
            const auto   end   = usual.begin() + static_cast<int64_t>(r) + 1;
            const double most  = std::max(*std::max_element(begin, end), 0.1 * usual[0]);
            CHECK(run.losses[r] < 1.5 * most);
        }
    });
}

TEST_CASE("drop_residual_clears_unsent_changes_and_keeps_the_moments_of_the_rule") {
    Workers workers(1);
    for (const char * replicator : {"demo", "diloco", "sparseloco", "none"}) {
        for (const char * rule : {"adamw", "muon"}) {
            INFO(replicator << " " << rule);
            const OptimOptions options{.replicator = replicator, .rule = rule, .every = 2};
            SimHost            host(0, options, workers);
            for (uint64_t step = 0; step < 4; ++step) {
                const Bytes message = host.prepare(step);
                Round       round{.step = step, .has_mine = true};
                if (!message.empty()) {
                    round.messages = {{"a", 1, message}};
                }
                host.optimizer->apply(round);
            }
            host.optimizer->drop_residual();
            for (const StateTensor & tensor : host.optimizer->state().tensors) {
                const bool zero =
                    std::all_of(tensor.values.begin(), tensor.values.end(), [](float x) {
                        return x == 0.0f;
                    });
                const bool unsent =
                    tensor.name.starts_with("momentum.") || tensor.name.starts_with("residual.");
                INFO(tensor.name);
                CHECK(zero == unsent);
            }
        }
    }
}
