// Update rules, options and the gradient norm.
#include "optim/math/fixed-gemm.h"
#include "optim/rules/rule.h"
#include "tests/catch.h"
#include "tests/optim/optim-sim.h"

#include <cmath>
#include <set>

using namespace gt;

TEST_CASE("adamw_agrees_with_the_paper_in_double_precision") {
    std::vector<float>  p = {1.0f, -2.0f, 0.5f};
    std::vector<double> q(p.begin(), p.end()), m(3, 0.0), v(3, 0.0);
    auto                rule = make_adamw(
                       {{.name = "p", .weight = p, .lr = 0.5f, .decay = 0.1f}}, {.beta1 = 0.9f, .beta2 = 0.99f}
                   );
    for (int t = 1; t <= 50; ++t) {
        std::vector<float> g(3);
        for (int i = 0; i < 3; ++i) {
            g[i] = random_uniform(random_bits(t, i)) - 0.3f;
        }
        rule->begin(0.01f);
        rule->update(0, 0, 3, g.data(), 2.0f);
        for (int i = 0; i < 3; ++i) {
            const double u = 2.0 * g[i], b1 = 0.9f, b2 = 0.99f, lr = 0.005;
            m[i] = b1 * m[i] + (1 - b1) * u;
            v[i] = b2 * v[i] + (1 - b2) * u * u;
            q[i] *= 1 - lr * 0.1;
            q[i] -= lr * m[i] / (1 - std::pow(b1, t)) /
                    (std::sqrt(v[i] / (1 - std::pow(b2, t))) + 1e-8);
            CHECK(p[i] == Approx(q[i]).epsilon(1e-5));
        }
    }
}

TEST_CASE("weight_decay_depends_on_the_kind_of_tensor") {
    Workers workers(1);
    for (const bool all : {false, true}) {
        OptimOptions options{
            .replicator = "none", .rule = "sgd", .weight_decay = 0.5f, .decay_all = all};
        options.embedding.weight_decay = 2.0f;
        SimHost    host(0, options, workers);
        const auto before = host.model.weight;
        (void) host.optimizer->prepare(0, 0.1f);  // gradients are zero
        CHECK(host.model.weight[0][5] == before[0][5] * (1.0f - 0.1f * 1.0f));
        CHECK(host.model.weight[1][5] == before[1][5] * (1.0f - 0.1f * 0.5f));
        CHECK(host.model.weight[4][5] == before[4][5] * (all ? 1.0f - 0.1f * 0.5f : 1.0f));
    }
}

TEST_CASE("muon_updates_matrices_by_a_nearly_orthogonal_matrix") {
    for (const auto & [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{{24, 40}, {40, 24}}) {
        std::vector<float> p(rows * cols, 0.0f), u(rows * cols);
        for (size_t i = 0; i < u.size(); ++i) {
            u[i] = random_uniform(random_bits(rows, i)) - 0.5f;
        }
        auto rule = make_muon({{.name = "p", .weight = p, .rows = rows, .cols = cols}}, {});
        rule->begin(1.0f);
        rule->update(0, 0, rows * cols, u.data(), 1.0f);
        // singular values near 1, times 0.2 of the root of the longer side
        const double grow  = 0.04 * static_cast<double>(std::max(rows, cols));
        double       norm2 = 0.0;
        for (const float x : p) {
            norm2 += static_cast<double>(x) * x;
        }
        CHECK(norm2 / grow / std::min(rows, cols) == Approx(1.0).margin(0.35));
    }
}

TEST_CASE("muon_corrects_its_momentum_in_units_of_its_magnitude") {
    std::vector<float> m = {3.0f, -4.0f, 0.0f, 0.0f}, d = {0.0f, 0.4f, -0.8f, 0.0f};
    correct_momentum(m, 0.5f, d.data());  // rms 2.5
    CHECK(m == std::vector<float>{3.0f, -3.5f, -1.0f, 0.0f});
    std::vector<float> zero(4, 0.0f);
    correct_momentum(zero, 0.5f, d.data());
    CHECK(zero == std::vector<float>(4, 0.0f));
}

TEST_CASE("fixed_gemm_sums_in_ascending_order") {
    const int64_t n = 70, k = 300, m = 131;  // no multiple of any tile
    PaddedMatrix  a(n, k), b(k, m), c(n, m), square(n, n);
    for (PaddedMatrix * x : {&a, &b}) {
        for (int64_t i = 0; i < x->rows * x->cols; ++i) {
            x->row(i / x->cols)[i % x->cols] = random_uniform(random_bits(x->cols, i)) - 0.5f;
        }
    }
    multiply(a, b, false, c);
    multiply(a, transposed(a), true, square);
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < m; ++j) {
            float sum = 0.0f;
            for (int64_t l = 0; l < k; ++l) {
                sum = std::fma(a.row(i)[l], b.row(l)[j], sum);
            }
            CHECK(c.row(i)[j] == sum);
        }
        for (int64_t j = 0; j < n; ++j) {
            float sum = 0.0f;
            for (int64_t l = 0; l < k; ++l) {
                sum = std::fma(a.row(i)[l], a.row(j)[l], sum);
            }
            CHECK(square.row(i)[j] == sum);
        }
    }
}

TEST_CASE("full_with_one_host_is_none") {
    Workers      workers(2);
    OptimOptions none{.replicator = "none", .rule = "adamw"}, full = none;
    full.replicator = "full";
    SimHost a(0, none, workers), b(0, full, workers);
    for (uint64_t step = 0; step < 5; ++step) {
        CHECK(a.prepare(step).empty());
        const Bytes message = b.prepare(step);
        a.optimizer->apply({.step = step});
        b.optimizer->apply({.step = step, .messages = {{"b", 3, message}}, .has_mine = true});
    }
    CHECK(same_bits(a.model.weight, b.model.weight));
}

TEST_CASE("the_gradient_norm_does_not_depend_on_threads_or_ranks") {
    Workers            one(1), eight(8);
    const OptimOptions options;
    SimModel           model;
    model.set_gradients(3, 4);
    double plain = 0.0;
    for (const auto & g : model.grad) {
        for (const float x : g) {
            plain += static_cast<double>(x) * x;
        }
    }
    const double norm = grad_norm(options, model.params(options), one);
    CHECK(norm == Approx(std::sqrt(plain)));
    CHECK(norm == grad_norm(options, model.params(options), eight));
    std::vector<double> sum(grad_norm_parts(options, model.params(options)), 0.0);
    for (int r = 0; r < 3; ++r) {
        std::vector<double> parts(sum.size());
        grad_norm(options, model.params(options, r, 3), eight, parts);
        for (size_t i = 0; i < sum.size(); ++i) {
            sum[i] += parts[i];
        }
    }
    CHECK(norm == grad_norm(sum));
}

TEST_CASE("invalid_options_are_an_error") {
    Workers workers(1);
    for (const OptimOptions & bad : std::vector<OptimOptions>{
             {.replicator = "demoo"},
             {.rule = "sdg"},
             {.sign = "yes"},
             {.wire = "fp8"},
             {.chunk = "x"},
             {.density = 0.0f},
             {.top_k = -1},
             {.rate = 0.0f},
             {.decay = 1.0f},
             {.subtract = 1.5f},
             {.rule = "adamw", .moments = "q4"},
             {.rule = "muon", .moments = "q8"}}) {
        CHECK_THROWS_AS(check_options(bad), Error);
    }
    CHECK_THROWS_AS(check_options({.replicator = "loco", .correction = 1.5f}), Error);
    CHECK_THROWS_AS(check_options({.replicator = "diloco", .every = 1, .overlap = 1}), Error);
    CHECK_THROWS_AS(check_options({.replicator = "loco", .overlap = 2}), Error);
    check_options({.replicator = "diloco", .every = 5, .overlap = 4});
    CHECK(overlap_of({.replicator = "diloco"}) == 6);
    CHECK(overlap_of({.replicator = "loco"}) == 0);
    CHECK(overlap_of({.replicator = "none", .overlap = 1}) == 0);
    CHECK(choices(rule_names(), true) == std::vector<std::string>{"auto", "sgd", "adamw", "muon"});
}

TEST_CASE("a_gradient_with_nan_changes_nothing") {
    Workers workers(1);
    for (const auto & name : replicator_names()) {
        OptimOptions options{.replicator = name.name, .every = 1};
        SimHost      host(0, options, workers);
        for (auto & g : host.model.grad) {
            std::fill(g.begin(), g.end(), NAN);
        }
        const auto     before = host.model.weight;
        const SimState state  = save(*host.optimizer);
        const Prepared ours   = host.optimizer->prepare(0, 0.1f);
        CHECK(std::isnan(ours.grad_norm));
        CHECK(ours.message.empty());
        CHECK(save(*host.optimizer) == state);
        CHECK(same_bits(before, host.model.weight));
    }
}

TEST_CASE("every_option_of_the_optimizer_has_a_flag") {
    OptimOptions           o;
    std::set<const void *> visited;
    std::set<std::string>  names;
    const auto visit = [&](const std::string & name, auto & field, const std::string & help,
                           const std::vector<std::string> & = {}, double = 0, double = 0) {
        CHECK(names.insert(name).second);
        CHECK_FALSE(help.empty());
        visited.insert(&field);
    };
    o.visit(visit);
    // a new field does not compile here until it is added
    const auto & [replicator, rule, sign, wire, chunk, density, top_k, rate, decay, subtract, every, seed, fragments, residual_decay, outer_lr, outer_momentum, correction, restore_norm, weight_decay, decay_all, beta1, beta2, eps, moments, muon_momentum, matrix, embedding, vector, clip_messages, shares, overlap, ema] =
        o;
    for (const void * field : std::initializer_list<const void *>{
             &replicator,
             &rule,
             &sign,
             &wire,
             &chunk,
             &density,
             &top_k,
             &rate,
             &decay,
             &subtract,
             &every,
             &seed,
             &fragments,
             &restore_norm,
             &correction,
             &residual_decay,
             &outer_lr,
             &outer_momentum,
             &weight_decay,
             &decay_all,
             &beta1,
             &beta2,
             &eps,
             &moments,
             &muon_momentum,
             &clip_messages,
             &shares,
             &overlap,
             &ema,
             &matrix.lr,
             &matrix.weight_decay,
             &embedding.lr,
             &embedding.weight_decay,
             &vector.lr,
             &vector.weight_decay}) {
        CHECK(visited.count(field) == 1);
    }
    CHECK(visited.size() == 35);
}
