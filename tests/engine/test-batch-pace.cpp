#include "ggml-train/run/batch-pace.h"
#include "tests/catch.h"

#include <deque>

using namespace gt;

namespace {

// Hosts with a batch of 8 micro-batches, in rounds as comm/sequencer/membership.cpp closes them: when all
// messages are there, or at the deadline as soon as half of them are.
struct Hosts {
    std::vector<Pace>    paces;
    std::vector<int64_t> n;        // micro-batches of the last round
    std::deque<double>   medians;  // durations of the last rounds

    explicit Hosts(size_t n_hosts) : paces(n_hosts, Pace(8)), n(n_hosts) {}

    static double lower_median(std::vector<double> values) {
        std::sort(values.begin(), values.end());
        return values[(values.size() - 1) / 2];
    }

    // each: seconds of a micro-batch on each host
    void round(const std::vector<double> & each) {
        std::vector<std::pair<double, size_t>> arrivals;
        for (size_t i = 0; i < paces.size(); ++i) {
            n[i] = paces[i].n_micro();
            arrivals.push_back({static_cast<double>(n[i]) * each[i], i});
            paces[i].measured(n[i], arrivals.back().first);
        }
        std::sort(arrivals.begin(), arrivals.end());
        const double pace = medians.empty() ? 0.0 : lower_median({medians.begin(), medians.end()});
        const double deadline = medians.empty() ? 60.0 : std::max(0.5, 1.5 * pace);
        std::vector<double> durations;  // of whole batches
        for (const auto & [seconds, i] : arrivals) {
            if (seconds <= deadline || 2 * durations.size() < arrivals.size()) {
                durations.push_back(seconds * 8.0 / static_cast<double>(n[i]));
            }
        }
        for (Pace & each_pace : paces) {
            each_pace.others(pace);
        }
        medians.push_back(lower_median(durations));
        if (medians.size() > 8) {
            medians.pop_front();
        }
    }
    void rounds(int count, const std::vector<double> & each) {
        for (int i = 0; i < count; ++i) {
            round(each);
        }
    }
};

}  // namespace

TEST_CASE("a_slow_host_computes_what_fits_and_others_their_whole_batch") {
    Pace pace(8);
    CHECK(pace.n_micro() == 8);  // nothing is measured yet
    pace.measured(8, 4.0);
    CHECK(pace.n_micro() == 8);  // alone
    pace.others(1.0);
    CHECK(pace.n_micro() == 1);  // one of 0.5 s fits in 0.9 s
    pace.others(2.0);
    CHECK(pace.n_micro() == 3);
    pace.others(2.7);  // 4.0 s is within the deadline of 1.5 * 2.7 s
    CHECK(pace.n_micro() == 8);
    pace.others(0.01);
    CHECK(pace.n_micro() == 1);  // at least one
}

TEST_CASE("a_host_that_becomes_faster_computes_its_whole_batch_again") {
    Pace pace(4);
    pace.measured(4, 8.0);
    pace.others(2.0);
    CHECK(pace.n_micro() == 1);
    for (int i = 0; i < 4; ++i) {
        pace.measured(pace.n_micro(), 0.5 * static_cast<double>(pace.n_micro()));
    }
    CHECK(pace.n_micro() == 4);
}

TEST_CASE("short_steps_are_never_reduced") {
    Pace pace(4);
    pace.measured(4, 0.4);
    pace.others(0.001);
    CHECK(pace.n_micro() == 4);
}

TEST_CASE("hosts_compute_whole_batches_again_within_ten_rounds_after_a_load_on_all_of_them") {
    for (const size_t n_hosts : {2, 3, 5}) {
        INFO(n_hosts << " hosts");
        std::vector<double> normal, loaded;
        for (size_t i = 0; i < n_hosts; ++i) {
            normal.push_back(0.15 + 0.001 * static_cast<double>(i));
            loaded.push_back(normal[i] * (4.0 + static_cast<double>(i % 2)));
        }
        for (const int n_loaded : {1, 3, 6, 20}) {
            Hosts hosts(n_hosts);
            hosts.rounds(20, normal);
            CHECK(hosts.n == std::vector<int64_t>(n_hosts, 8));
            hosts.rounds(n_loaded, loaded);
            hosts.rounds(10, normal);
            for (int i = 0; i < 20; ++i) {
                hosts.round(normal);
                CHECK(hosts.n == std::vector<int64_t>(n_hosts, 8));
            }
        }
    }
}

TEST_CASE("hosts_that_were_reduced_alone_or_with_a_majority_recover") {
    for (const size_t n_loaded : {1, 2}) {
        Hosts               hosts(3);
        std::vector<double> normal(3, 0.15), loaded = normal;
        std::fill_n(loaded.begin(), n_loaded, 0.6);
        hosts.rounds(20, normal);
        hosts.rounds(20, loaded);
        hosts.rounds(10, normal);
        CHECK(hosts.n == std::vector<int64_t>(3, 8));
    }
}

TEST_CASE("a_slow_host_among_fast_ones_stays_reduced") {
    Hosts                     hosts(3);
    const std::vector<double> each{0.15, 0.15, 0.6};
    hosts.rounds(20, each);
    for (int i = 0; i < 20; ++i) {
        hosts.round(each);
        CHECK(hosts.n == std::vector<int64_t>{8, 8, 1});
    }
}
