// Every op in every form: gradients against central differences at odd shapes, forms against each
// other, and the portable form and our kernels on a device with memory of its own.
#include "tests/catch.h"
#include "tests/engine/op-check.h"
#include "tests/vulkan.h"

using namespace gt;

namespace {

struct Case {
    const char *                        name;
    std::vector<std::array<int64_t, 4>> shapes;
    std::vector<std::vector<int32_t>>   ids;
    OpCheck::Build                      build;
};

std::vector<int32_t> some_ids(size_t n, int32_t V) {
    std::vector<int32_t> ids(n);
    for (size_t i = 0; i < n; ++i) {
        ids[i] = static_cast<int32_t>(random_bits(5, i) % V);
    }
    return ids;
}

// Places of n tokens in segments of up to 7; a segment ends with its sample of T tokens.
std::vector<int32_t> some_segments(int32_t n, int32_t T) {
    std::vector<int32_t> places;
    for (int32_t i = 0; i < n; ++i) {
        places.push_back(i % T % 7);
    }
    return places;
}

ggml_tensor *
causal(Ops & ops, ggml_tensor * qkv, int64_t T, int64_t H, int64_t Hkv, int64_t D, bool causal) {
    return ops.attention(qkv, {.T = T, .H = H, .Hkv = Hkv, .D = D, .causal = causal});
}

ggml_tensor * rope(Ops & ops, ggml_tensor * x, bool neox) {
    ggml_tensor * divisors =
        ggml_scale_bias(ops.ctx(), ggml_arange(ops.ctx(), 0.0f, 4.0f, 1.0f), 3.0f, 1.0f);
    return ops.rope(x, 17, 5, 4, 8, {.divisors = divisors, .scale = 1.2f, .neox = neox});
}

const std::vector<Case> & cases() {
    using Args                          = std::vector<ggml_tensor *>;
    static const std::vector<Case> list = {
        {"linear",
         {{40, 17}, {40, 67}, {67}},
         {},
         [](Ops & o, const Args & a) { return o.linear(a[0], {a[1]}, {a[2]}); }},
        {"linear without bias, with residual",
         {{16, 5}, {16, 24}, {24, 5}},
         {},
         [](Ops & o, const Args & a) { return o.linear(a[0], {a[1]}, {}, a[2]); }},
        {"linear of three weights",
         {{13, 7}, {13, 12}, {13, 4}, {13, 6}, {12}, {4}, {6}},
         {},
         [](Ops & o, const Args & a) {
             return o.linear(a[0], {a[1], a[2], a[3]}, {a[4], a[5], a[6]});
         }},
        {"blocks of linear",
         {{3 * 5, 7}, {5, 12}, {5, 4}, {5, 6}, {22, 7}},
         {},
         [](Ops & o, const Args & a) {
             return o.linear_blocks(a[0], {a[1], a[2], a[3]}, a[4]);
         }},
        {"layer norm",
         {{40, 17}, {40}, {40}},
         {},
         [](Ops & o, const Args & a) { return o.layer_norm(a[0], a[1], a[2], 1e-5f); }},
        {"rms norm",
         {{67, 3}, {67}},
         {},
         [](Ops & o, const Args & a) { return o.rms_norm(a[0], a[1], 1e-5f); }},
        {"norm with a residual around it",
         {{24, 5}, {24}, {24}},
         {},
         [](Ops & o, const Args & a) {
             ggml_tensor * x = ggml_scale(o.ctx(), a[0], 2.0f);
             return ggml_add(o.ctx(), x, o.layer_norm(x, a[1], a[2], 1e-5f));
         }},
        {"gelu tanh",
         {{67, 3}},
         {},
         [](Ops & o, const Args & a) { return o.gelu(a[0], GeluKind::tanh); }},
        {"gelu erf",
         {{67, 3}},
         {},
         [](Ops & o, const Args & a) { return o.gelu(a[0], GeluKind::erf); }},
        {"swiglu",
         {{40, 5}, {40, 5}},
         {},
         [](Ops & o, const Args & a) { return o.swiglu(a[0], a[1]); }},
        {"rope, neighbours",
         {{5 * 8, 34}},
         {},
         [](Ops & o, const Args & a) { return rope(o, a[0], false); }},
        {"rope, halves",
         {{5 * 8, 34}},
         {},
         [](Ops & o, const Args & a) { return rope(o, a[0], true); }},
        {"causal attention, head size 40",
         {{3 * 2 * 40, 17}},
         {},
         [](Ops & o, const Args & a) { return causal(o, a[0], 17, 2, 2, 40, true); }},
        {"full attention, two samples",
         {{3 * 3 * 16, 22}},
         {},
         [](Ops & o, const Args & a) { return causal(o, a[0], 11, 3, 3, 16, false); }},
        {"attention in segments",
         {{(4 + 2) * 8, 34}},
         {some_segments(34, 17)},
         [](Ops & o, const Args & a) {
             return o.attention(
                 a[0], {.T = 17, .H = 4, .Hkv = 1, .D = 8, .causal = true, .positions = a[1]}
             );
         }},
        {"grouped heads",
         {{(6 + 4) * 8, 34}},
         {},
         [](Ops & o, const Args & a) { return causal(o, a[0], 17, 6, 2, 8, true); }},
        {"heads too large for a device's kernel",
         {{3 * 136, 7}},
         {},
         [](Ops & o, const Args & a) { return causal(o, a[0], 7, 1, 1, 136, true); }},
        {"embedding with positions",
         {{24, 67}, {24, 19}},
         {some_ids(34, 67)},
         [](Ops & o, const Args & a) { return o.embedding(a[0], a[2], a[1], 17); }},
        {"embedding",
         {{13, 67}},
         {some_ids(5, 67)},
         [](Ops & o, const Args & a) { return o.embedding(a[0], a[1], nullptr, 5); }},
        {"a small mlp",
         {{24, 5}, {24}, {24}, {24, 40}, {40}, {40, 24}, {24}},
         {},
         [](Ops & o, const Args & a) {
             ggml_tensor * h = o.layer_norm(a[0], a[1], a[2], 1e-5f);
             h               = o.gelu(o.linear(h, {a[3]}, {a[4]}), GeluKind::tanh);
             return o.linear(h, {a[5]}, {a[6]}, a[0]);
         }},
    };
    return list;
}

double largest(const std::vector<float> & v) {
    double m = 1e-6;
    for (float x : v) {
        m = std::max(m, static_cast<double>(std::fabs(x)));
    }
    return m;
}

double difference(const std::vector<float> & a, const std::vector<float> & b) {
    double m = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
        m = std::max(m, static_cast<double>(std::fabs(a[i] - b[i])));
    }
    return m / largest(a);
}

}  // namespace

TEST_CASE("every_op_has_the_gradient_of_its_central_differences") {
    for (const Case & c : cases()) {
        for (Form form : {Form::portable, Form::fused, Form::device}) {
            OpCheck check("cpu", 1, form, c.shapes, c.ids, c.build);
            INFO(c.name << ", form " << static_cast<int>(form));
            CHECK(check.worst_error() < 3e-3);
        }
    }
}

TEST_CASE("fused_and_portable_forms_agree") {
    for (const Case & c : cases()) {
        OpCheck a("cpu", 2, Form::portable, c.shapes, c.ids, c.build);
        OpCheck b("cpu", 2, Form::fused, c.shapes, c.ids, c.build);
        a.run();
        b.run();
        INFO(c.name);
        CHECK(difference(a.output(), b.output()) < 1e-5);
        for (size_t i = 0; i < c.shapes.size(); ++i) {
            CHECK(difference(a.grad(i), b.grad(i)) < 2e-5);
        }
    }
}

TEST_CASE("portable_form_runs_in_device_memory") {
    for (const Case & c : cases()) {
        OpCheck host("cpu", 2, Form::portable, c.shapes, c.ids, c.build);
        OpCheck device("fake", 2, Form::portable, c.shapes, c.ids, c.build);
        host.run();
        device.run();
        INFO(c.name);
        CHECK(host.output() == device.output());
        for (size_t i = 0; i < c.shapes.size(); ++i) {
            CHECK(host.grad(i) == device.grad(i));
        }
    }
}

TEST_CASE("ops_that_a_backend_lacks_are_composed_of_others") {
    for (const Case & c : cases()) {
        OpCheck host("cpu", 2, Form::portable, c.shapes, c.ids, c.build);
        OpCheck device("fake:0:metal", 2, Form::portable, c.shapes, c.ids, c.build);
        host.run();
        device.run();
        INFO(c.name);
        CHECK(host.output() == device.output());
        for (size_t i = 0; i < c.shapes.size(); ++i) {
            CHECK(difference(host.grad(i), device.grad(i)) < 2e-5);
        }
    }
}

TEST_CASE("portable_form_on_vulkan_agrees_with_the_cpu") {
    if (!has_vulkan()) {
        return;
    }
    bool differs = false;
    for (const Case & c : cases()) {
        OpCheck host("cpu", 2, Form::portable, c.shapes, c.ids, c.build);
        OpCheck device("vulkan", 1, Form::portable, c.shapes, c.ids, c.build);
        host.run();
        device.run();
        INFO(c.name);
        CHECK(difference(host.output(), device.output()) < 1e-5);
        for (size_t i = 0; i < c.shapes.size(); ++i) {
            CHECK(difference(host.grad(i), device.grad(i)) < 2e-5);
            differs |= host.grad(i) != device.grad(i);
        }
    }
    CHECK(differs);  // it was not the CPU
}

// Runs it twice; the second time adds.
static void check_that_gradients_add_up(OpCheck & check, const Case & c) {
    INFO(c.name);
    check.run();
    std::vector<std::vector<float>> once;
    for (size_t i = 0; i < c.shapes.size(); ++i) {
        once.push_back(check.grad(i));
        for (float & g : once.back()) {
            g *= 2.0f;
        }
    }
    check.run(false);
    for (size_t i = 0; i < c.shapes.size(); ++i) {
        CHECK(difference(once[i], check.grad(i)) < 1e-6);
    }
}

TEST_CASE("gradients_add_up_over_micro_batches") {
    for (const Case & c : cases()) {
        for (Form form : {Form::portable, Form::fused}) {
            OpCheck check("cpu", 2, form, c.shapes, c.ids, c.build);
            check_that_gradients_add_up(check, c);
        }
    }
}

TEST_CASE("kernels_on_a_device_agree_with_the_portable_form_and_are_reproducible", "[device]") {
    for (const Case & c : cases()) {
        OpCheck host("cpu", 2, Form::portable, c.shapes, c.ids, c.build);
        OpCheck device("fake", 1, Form::device, c.shapes, c.ids, c.build);
        OpCheck again("fake", 1, Form::device, c.shapes, c.ids, c.build);
        host.run();
        device.run();
        again.run();
        INFO(c.name);
        CHECK(difference(host.output(), device.output()) < 1e-5);
        CHECK(device.output() == again.output());
        for (size_t i = 0; i < c.shapes.size(); ++i) {
            CHECK(difference(host.grad(i), device.grad(i)) < 2e-5);
            CHECK(device.grad(i) == again.grad(i));
        }
        check_that_gradients_add_up(device, c);
    }
}

TEST_CASE("the_same_threads_give_the_same_bits_and_others_agree") {
    for (const Case & c : cases()) {
        OpCheck a("cpu", 2, Form::fused, c.shapes, c.ids, c.build);
        OpCheck b("cpu", 2, Form::fused, c.shapes, c.ids, c.build);
        OpCheck d("cpu", 5, Form::fused, c.shapes, c.ids, c.build);
        a.run();
        b.run();
        d.run();
        INFO(c.name);
        CHECK(a.output() == b.output());
        CHECK(difference(a.output(), d.output()) < 1e-5);
        for (size_t i = 0; i < c.shapes.size(); ++i) {
            CHECK(a.grad(i) == b.grad(i));
            CHECK(difference(a.grad(i), d.grad(i)) < 1e-5);
        }
    }
}

TEST_CASE("recomputing_everything_changes_no_bit") {
    const Case & mlp = cases().back();
    OpCheck      a("cpu", 2, Form::fused, mlp.shapes, mlp.ids, mlp.build, Recompute::cheap);
    OpCheck      b("cpu", 2, Form::fused, mlp.shapes, mlp.ids, mlp.build, Recompute::all);
    a.run();
    b.run();
    CHECK(ggml_graph_n_nodes(b.graph()) > ggml_graph_n_nodes(a.graph()));
    for (size_t i = 0; i < mlp.shapes.size(); ++i) {
        CHECK(a.grad(i) == b.grad(i));
    }
}

TEST_CASE("an_op_without_a_rule_is_an_error_that_names_it") {
    const auto build = [](Ops & o, const std::vector<ggml_tensor *> & a) {
        ggml_tensor * y = ggml_clamp(o.ctx(), a[0], 0.0f, 1.0f);
        ggml_set_name(y, "the clamped one");
        return y;
    };
    CHECK_THROWS_WITH(
        OpCheck("cpu", 1, Form::fused, {{4, 4}}, {}, build),
        ContainsSubstring("CLAMP") && ContainsSubstring("the clamped one")
    );
}

TEST_CASE("a_fused_node_is_refused_by_a_device_that_cannot_run_it") {
    const Case & mlp = cases().back();
    CHECK_THROWS_WITH(
        OpCheck("fake", 1, Form::fused, mlp.shapes, mlp.ids, mlp.build),
        ContainsSubstring("--portable")
    );
}
