// Adding a replicator takes one file (this one) and one row; and the ids in the table are fixed.
#include "optim/tables.h"
#include "tests/catch.h"
#include "tests/optim/optim-sim.h"

#include <set>

using namespace gt;

namespace {

// Sends the first element of each unit, as a float.
class Toy : public Replicator {
public:
    explicit Toy(const Shapes & shapes) : shapes_(shapes) {}

    Plan    plan(uint64_t round) const override { return {.round = round}; }
    int64_t bytes(const Plan &, const Unit &) const override { return sizeof(float); }

    void extract(
        const Plan &, const Unit & unit, const Fold & fold, float * momentum, uint8_t * out
    ) const override {
        fold_elements(fold, size(unit), momentum);
        if (out != nullptr) {
            std::memcpy(out, momentum, sizeof(float));
            momentum[0] = 0.0f;
        }
    }
    void
    give_back(const Plan &, const Unit &, const uint8_t * bytes, float * momentum) const override {
        momentum[0] = momentum[0] + value(bytes);
    }
    const char *
    check(const Plan &, const Unit &, const uint8_t * bytes, double & norm2) const override {
        norm2 += static_cast<double>(value(bytes)) * value(bytes);
        return std::isfinite(value(bytes)) ? nullptr : "NaN or Inf";
    }
    void merge(const Plan &, const Unit & unit, std::span<const Piece> pieces, float * update)
        const override {
        std::fill_n(update, size(unit), 0.0f);
        for (const Piece & piece : pieces) {
            update[0] += value(piece.bytes) / static_cast<float>(pieces.size());
        }
    }
    void write_mean(
        const Plan & plan, const Unit & unit, std::span<const Piece> pieces, Bytes & out
    ) const override {
        std::vector<float> update(static_cast<size_t>(size(unit)));
        merge(plan, unit, pieces, update.data());
        const auto * bytes = reinterpret_cast<const uint8_t *>(update.data());
        out.insert(out.end(), bytes, bytes + sizeof(float));
    }
    const char *
    check_mean(const Plan &, const Unit &, std::span<const uint8_t> & in) const override {
        in = in.subspan(sizeof(float));
        return nullptr;
    }
    void read_mean(const Plan & plan, const Unit & unit, const uint8_t * bytes, float * update)
        const override {
        const Piece one{bytes};
        merge(plan, unit, {&one, 1}, update);
    }

private:
    static float value(const uint8_t * bytes) {
        float x = 0.0f;
        std::memcpy(&x, bytes, sizeof x);
        return x;
    }
    int64_t size(const Unit & unit) const {
        return (unit.end - unit.begin) * shapes_[unit.tensor].cols;
    }

    Shapes shapes_;
};

std::unique_ptr<Replicator> make_toy(const OptimOptions &, const Shapes & shapes, Wire) {
    return std::make_unique<Toy>(shapes);
}

const ReplicatorRow kToyRow = {
    .id     = 200,
    .name   = "toy",
    .help   = "the first element of each unit",
    .scheme = Scheme::momentum,
    .rule   = "sgd",
    .wire   = "fp32",
    .make   = make_toy};

}  // namespace

TEST_CASE("a_replicator_is_one_file_and_one_row") {
    replicators().push_back(kToyRow);
    const OptimOptions options{.replicator = "toy"};
    CHECK(choices(replicator_names(), false).back() == "toy");
    CHECK_NOTHROW(check_options(options));
    CHECK(shares_of(options) == 0);
    CHECK_FALSE(has_kernels(options));

    // hosts train together
    Workers workers(2);
    auto    hosts = sim_hosts(3, options, workers);
    CHECK(hosts[0]->prepare(0)[5] == 200);  // the id on the wire
    const auto before = hosts[0]->model.weight;
    for (uint64_t step = 1; step < 4; ++step) {
        sim_step(hosts, step);
        CHECK(same_bits(hosts[0]->model.weight, hosts[2]->model.weight));
    }
    CHECK_FALSE(same_bits(hosts[0]->model.weight, before));

    // a late message returns to the momentum
    (void) hosts[1]->prepare(4);
    const SimState sent = save(*hosts[1]->optimizer);
    hosts[1]->optimizer->take_back(4);
    CHECK(save(*hosts[1]->optimizer).tensors != sent.tensors);
    replicators().pop_back();
}

TEST_CASE("ids_on_the_wire_do_not_depend_on_the_order_of_the_table") {
    const std::vector<std::pair<std::string, int>> ids = {
        {"demo", 0},   {"random", 1},     {"striding", 2}, {"slicing", 3}, {"full", 4},
        {"diloco", 5}, {"sparseloco", 6}, {"none", 7},     {"loco", 8}};
    Workers    workers(1);
    const auto message_of = [&](const std::string & name) {
        return SimHost(0, {.replicator = name, .every = 1}, workers).prepare(0);
    };
    std::vector<Bytes> before;
    for (const auto & [name, id] : ids) {
        before.push_back(message_of(name));
        CHECK((before.back().empty() || before.back()[5] == id));
    }
    std::reverse(replicators().begin(), replicators().end());
    for (size_t i = 0; i < ids.size(); ++i) {
        INFO(ids[i].first);
        CHECK(message_of(ids[i].first) == before[i]);
    }
    std::reverse(replicators().begin(), replicators().end());
    std::set<int> seen;
    for (const ReplicatorRow & row : replicators()) {
        CHECK(seen.insert(row.id).second);
    }
    CHECK(seen.size() == ids.size());
}
