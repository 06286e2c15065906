// After extract, the momentum is, bit for bit, the folded one minus the content of the message.
#include "optim/tables.h"
#include "tests/catch.h"
#include "tests/optim/optim-sim.h"

#include <algorithm>

using namespace gt;

struct Case {
    std::string                 name;
    bool                        is_rows;
    std::unique_ptr<Replicator> replicator;
};

static std::vector<Case> all_replicators(const Shapes & shapes, Wire wire) {
    std::vector<Case>  list;
    const OptimOptions options{.top_k = 8, .rate = 0.3f, .seed = 5};
    OptimOptions       flat = options;
    flat.chunk              = "256";
    OptimOptions fifth      = options;
    fifth.subtract          = 0.2f;
    list.push_back({"demo", false, make_demo(options, shapes, wire)});
    list.push_back({"demo flat", false, make_demo(flat, shapes, wire)});
    list.push_back({"demo, a fifth subtracted", false, make_demo(fifth, shapes, wire)});
    list.push_back({"sparseloco", false, make_top_k(options, shapes, wire)});
    list.push_back({"random", true, make_random(options, shapes, wire)});
    list.push_back({"striding", true, make_striding(options, shapes, wire)});
    list.push_back({"slicing", true, make_slicing(options, shapes, wire)});
    list.push_back({"full, diloco", true, make_dense(options, shapes, wire)});
    return list;
}

TEST_CASE("the_remainder_is_the_momentum_minus_the_content_of_the_message") {
    SimModel model;
    Shapes   shapes;
    for (const ParamView & param : model.params({})) {
        shapes.push_back(shape_of(param));
    }
    for (const Wire wire : {Wire::fp32, Wire::fp16, Wire::q8, Wire::q4, Wire::q2, Wire::q1}) {
        for (const Case & c : all_replicators(shapes, wire)) {
            for (int t = 0; t < static_cast<int>(shapes.size()); ++t) {
                INFO(c.name << ", wire " << static_cast<int>(wire) << ", " << shapes[t].name);
                const Unit         unit{t, 0, shapes[t].rows};
                const int64_t      n = shapes[t].size();
                std::vector<float> m(n, 0.0f);
                for (uint64_t round = 0; round < 3; ++round) {
                    model.set_gradients(1, round);
                    const Plan plan = c.replicator->plan(round);
                    const Fold fold{model.grad[t].data(), 0.9f, 0.01f};
                    // fold only
                    std::vector<float> whole = m, sent(n, 0.0f), rest(n);
                    c.replicator->extract(plan, unit, fold, whole.data(), nullptr);
                    Bytes bytes(c.replicator->bytes(plan, unit));
                    c.replicator->extract(plan, unit, fold, m.data(), bytes.data());
                    double norm2 = 0.0;
                    REQUIRE(c.replicator->check(plan, unit, bytes.data(), norm2) == nullptr);
                    c.replicator->give_back(plan, unit, bytes.data(), sent.data());
                    for (int64_t i = 0; i < n; ++i) {
                        rest[i] = whole[i] - sent[i];
                    }
                    REQUIRE(std::memcmp(rest.data(), m.data(), n * sizeof(float)) == 0);
                    if (c.is_rows && wire == Wire::fp32) {  // exact, without rounding
                        for (int64_t i = 0; i < n; ++i) {
                            rest[i] = m[i] + sent[i];
                        }
                        REQUIRE(std::memcmp(rest.data(), whole.data(), n * sizeof(float)) == 0);
                    }
                    // the update has the norm of the content
                    std::vector<float> update(n);
                    const Piece        piece{bytes.data(), 7.0};
                    c.replicator->merge(plan, unit, std::span(&piece, 1), update.data());
                    double norm = 0.0;
                    for (const float u : update) {
                        norm += static_cast<double>(u) * u;
                    }
                    REQUIRE(norm == Approx(norm2).epsilon(1e-4));
                }
            }
        }
    }
}

TEST_CASE("row_replicators_send_every_row_in_turn") {
    SimModel model;
    Shapes   shapes;
    for (const ParamView & param : model.params({})) {
        shapes.push_back(shape_of(param));
    }
    for (const Case & c : all_replicators(shapes, Wire::fp32)) {
        if (!c.is_rows) {
            continue;
        }
        for (int t = 0; t < static_cast<int>(shapes.size()); ++t) {
            INFO(c.name << ", " << shapes[t].name);
            std::vector<bool> seen(shapes[t].rows, false);
            for (uint64_t round = 0; round < 100; ++round) {
                const Plan plan = c.replicator->plan(round);
                for (size_t i = 0; i < plan.rows[t].size(); ++i) {
                    seen[plan.rows[t][i]] = true;
                    REQUIRE((i == 0 || plan.rows[t][i] > plan.rows[t][i - 1]));
                }
            }
            CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
        }
    }
}

TEST_CASE("demo_averages_a_coefficient_over_its_senders_and_top_k_over_all_hosts") {
    const Shapes shapes = {
        {.name = "v", .rows = 8, .cols = 1, .kind = ParamKind::vector, .is_vector = true}};
    const OptimOptions options{.chunk = "8x8", .top_k = 1};
    const auto         demo = make_demo(options, shapes, Wire::fp32);
    const auto         top  = make_top_k(options, shapes, Wire::fp32);
    const Unit         unit{0, 0, 8};
    for (const Replicator * r : {demo.get(), top.get()}) {
        const Plan         plan = r->plan(0);
        Bytes              a(r->bytes(plan, unit)), b(a);
        std::vector<float> ma(8, 0.0f), mb(8, 0.0f), u(8), ua(8), ub(8);
        ma[2] = 3.0f;  // each host sends another coefficient
        mb[5] = -6.0f;
        r->extract(plan, unit, {}, ma.data(), a.data());
        r->extract(plan, unit, {}, mb.data(), b.data());
        const Piece pieces[] = {{a.data(), 1.0}, {b.data(), 3.0}};
        r->merge(plan, unit, pieces, u.data());
        r->merge(plan, unit, std::span(pieces, 1), ua.data());
        r->merge(plan, unit, std::span(pieces + 1, 1), ub.data());
        for (int i = 0; i < 8; ++i) {
            const float want = r == demo.get() ? ua[i] + ub[i] : 0.25f * ua[i] + 0.75f * ub[i];
            CHECK(u[i] == Approx(want).margin(1e-6));
        }
    }
}
