// Rounds that hosts average in shares: the mean is that of whole messages, rounded once more.
#include "optim/wire/shares.h"
#include "tests/catch.h"
#include "tests/optim/optim-sim.h"

#include <cmath>

using namespace gt;

// All that send, with their default wire type and wider ones.
static std::vector<OptimOptions> all_options() {
    std::vector<OptimOptions> list;
    for (const auto & name : replicator_names()) {
        for (const char * wire : {"auto", "fp32", "fp16"}) {
            if (name.name != "none") {
                list.push_back(
                    {.replicator = name.name, .wire = wire, .every = 1, .outer_momentum = 0.0f}
                );
            }
        }
    }
    list.push_back({.replicator = "demo", .chunk = "512", .top_k = 9});
    list.push_back({.replicator = "loco", .rule = "sgd", .restore_norm = "off"});
    list.push_back({.replicator = "diloco", .wire = "q4", .every = 1});
    return list;
}

static std::string text_of(const OptimOptions & o) {
    return o.replicator + " " + o.wire + " " + o.chunk;
}

// The weights of a host, less those before, after a round.
static std::vector<float>
moved_by(const OptimOptions & options, Workers & workers, const Round & round) {
    SimHost    probe(9, options, workers);
    const auto before = probe.model.weight;
    probe.optimizer->apply(round);
    std::vector<float> moved;
    for (size_t t = 0; t < before.size(); ++t) {
        for (size_t i = 0; i < before[t].size(); ++i) {
            moved.push_back(probe.model.weight[t][i] - before[t][i]);
        }
    }
    return moved;
}

static double distance(const std::vector<float> & a, const std::vector<float> & b) {
    double error = 0.0, size = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
        error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
        size += double{a[i]} * a[i];
    }
    return std::sqrt(error / size);
}

TEST_CASE("the_means_of_shares_are_the_mean_of_whole_messages") {
    Workers workers(2);
    for (OptimOptions options : all_options()) {
        INFO(text_of(options));
        options.sign            = "off";
        options.rule            = "sgd";  // the mean itself moves the weights
        auto              hosts = sim_hosts(5, options, workers);
        Round             round = sim_round(hosts, 0);
        const auto        whole = moved_by(options, workers, round);
        const Shares      codec(options, hosts[0]->model.params(options));
        const auto        means = moved_by(options, workers, codec.mean_round(round, 3));
        const std::string wire  = options.wire;
        const double      most  = wire == "fp32"                                 ? 1e-6
                                  : wire == "fp16"                               ? 1e-3
                                  : options.replicator == "loco" || wire == "q4" ? 0.1
                                                                                 : 0.02;
        CHECK(distance(whole, means) < most);
        CHECK((wire != "fp32" || options.replicator == "loco" || means == whole));
        for (const int n : {1, 2, 8, 40}) {  // of 40 some are empty
            CHECK(moved_by(options, workers, codec.mean_round(round, n)) == means);
        }
    }
}

TEST_CASE("hosts_that_average_in_shares_have_equal_weights_and_lose_nothing") {
    Workers workers(2);
    for (const OptimOptions & options : all_options()) {
        INFO(text_of(options));
        auto hosts = sim_hosts(4, options, workers);
        for (uint64_t step = 0; step < 8; ++step) {
            Round      round = sim_round(hosts, step);
            const bool late  = step == 3;  // the last host's message is not listed
            if (late) {
                round.messages.pop_back();
            }
            const Round means =
                Shares(options, hosts[0]->model.params(options)).mean_round(round, 5);
            for (size_t h = 0; h < hosts.size(); ++h) {
                Round own = means;
                if (late && h == 3) {
                    own.has_mine = false;
                    hosts[h]->optimizer->take_back(step);
                }
                hosts[h]->optimizer->apply(own);
            }
            for (size_t h = 1; h < hosts.size(); ++h) {
                const auto a = hosts[0]->optimizer->state(), b = hosts[h]->optimizer->state();
                for (size_t i = 0; i < a.tensors.size(); ++i) {
                    const auto & values = a.tensors[i].values;
                    CHECK(
                        (!a.tensors[i].shared ||
                         std::equal(values.begin(), values.end(), b.tensors[i].values.begin()))
                    );
                }
                CHECK(
                    (has_local_steps(options) ||
                     same_bits(hosts[0]->model.weight, hosts[h]->model.weight))
                );
            }
        }
    }
}

TEST_CASE("the_norm_of_a_mean_in_shares_is_restored_to_that_of_whole_messages") {
    Workers            workers(1);
    const OptimOptions options{
        .replicator = "loco", .rule = "sgd", .fragments = 1, .weight_decay = 0.0f};
    auto         hosts = sim_hosts(6, options, workers);
    const Round  round = sim_round(hosts, 0);
    const Shares codec(options, hosts[0]->model.params(options));
    const auto   whole = moved_by(options, workers, round);
    const auto   means = moved_by(options, workers, codec.mean_round(round, 7));
    double       a = 0.0, b = 0.0;
    for (size_t i = 0; i < whole.size(); ++i) {
        a += double{whole[i]} * whole[i];
        b += double{means[i]} * means[i];
    }
    // moves are differences of floats
    CHECK(std::sqrt(b / a) == Approx(1.0).epsilon(1e-4));
}

namespace {

// The second share of three hosts' messages.
struct ThreeShares {
    explicit ThreeShares(const char * replicator)
        : options{.replicator = replicator, .every = 1, .fragments = 1},
          hosts(sim_hosts(3, options, workers)), codec(options, hosts[0]->model.params(options)) {
        for (const Message & message : sim_round(hosts, 0).messages) {
            shares.push_back({message.host, message.weight, codec.split(message.bytes, 4)[1]});
        }
    }
    std::optional<Bytes> without(size_t i) const {
        std::vector<Message> others = shares;
        others.erase(others.begin() + static_cast<ptrdiff_t>(i));
        return codec.mean(others);
    }

    Workers                               workers{1};
    OptimOptions                          options;
    std::vector<std::unique_ptr<SimHost>> hosts;
    Shares                                codec;
    std::vector<Message>                  shares;
};

}  // namespace

TEST_CASE("a_malformed_share_has_no_effect") {
    for (const char * replicator : {"demo", "loco", "diloco"}) {
        ThreeShares of(replicator);
        const Bytes good = of.shares[1].bytes, mean = *of.codec.mean(of.shares),
                    without = *of.without(1);
        const auto becomes  = [&](const Bytes & bytes) {
            of.shares[1].bytes = bytes;
            return of.codec.mean(of.shares);
        };
        const auto changed = [&](size_t at, uint8_t bits) {
            Bytes bytes = good;
            bytes[at] ^= bits;
            return becomes(bytes);
        };
        REQUIRE(mean != without);
        REQUIRE(good.size() > kHeadBytes + 100);
        CHECK(becomes(good) == mean);
        CHECK(becomes({}) == without);
        CHECK(becomes(Bytes(good.begin(), good.end() - 1)) == without);
        Bytes longer = good;
        longer.push_back(0);
        CHECK(becomes(longer) == without);
        for (const size_t at : {0, 5, 6, 7, 8, 16, 32, 40, 48}) {
            INFO(replicator << " byte " << at);
            CHECK(changed(at, 1) == without);  // head and slices
        }
        CHECK(becomes(of.hosts[1]->prepare(1)) == without);
        Bytes nan = good;
        std::fill(nan.begin() + kHeadBytes + 24, nan.begin() + kHeadBytes + 32, 0xff);
        CHECK(becomes(nan) == without);
        of.shares[0].bytes = of.shares[1].bytes = of.shares[2].bytes = {1, 2, 3};
        CHECK_FALSE(of.codec.mean(of.shares));
    }
}

TEST_CASE("a_share_of_a_larger_norm_than_its_sender_tells_is_refused") {
    ThreeShares of("demo");
    const Bytes without = *of.without(0);
    double      norm    = 0.0;
    uint8_t *   at      = of.shares[0].bytes.data() + kHeadBytes + 16;
    std::memcpy(&norm, at, sizeof norm);
    for (const double told : {norm / 10.0, 0.0, -norm, double{INFINITY}, double{NAN}}) {
        std::memcpy(at, &told, sizeof told);
        CHECK(of.codec.mean(of.shares) == without);
    }
}

TEST_CASE("a_malformed_mean_leaves_its_slices_as_they_are") {
    for (const char * replicator : {"demo", "loco", "diloco"}) {
        INFO(replicator);
        Workers            workers(1);
        const OptimOptions options{
            .replicator   = replicator,
            .rule         = "sgd",
            .every        = 1,
            .fragments    = 1,
            .weight_decay = 0.0f};
        auto         hosts = sim_hosts(2, options, workers);
        const Shares codec(options, hosts[0]->model.params(options));
        const Round  round = codec.mean_round(sim_round(hosts, 0), 2);
        const auto   all   = moved_by(options, workers, round);
        const auto   with  = [&](const Bytes & mean) {
            Round one             = round;
            one.messages[0].bytes = mean;
            return moved_by(options, workers, one);
        };
        const auto rest    = with({});
        size_t     n_equal = 0, n_zero = 0;
        for (size_t i = 0; i < all.size(); ++i) {
            n_equal += rest[i] == all[i] ? 1 : 0;
            n_zero += rest[i] == 0.0f && all[i] != 0.0f ? 1 : 0;
        }
        CHECK(n_zero > all.size() / 16);
        CHECK(
            n_equal + n_zero > all.size() * 9 / 10
        );  // but where the whole matrix has another norm
        const Bytes & good = round.messages[0].bytes;
        CHECK(with(Bytes(good.begin(), good.end() - 1)) == rest);
        CHECK(with(round.messages[1].bytes) == rest);
        for (size_t at = 40; at < good.size(); at += 1 + at / 8) {  // wherever: no crash
            Bytes bytes = good;
            bytes[at] ^= 0x80;
            (void) with(bytes);
        }
    }
}
