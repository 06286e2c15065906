#include "ggml-train/run/checkpoint.h"
#include "models/init.h"
#include "models/model-file.h"
#include "models/presets.h"
#include "tests/catch.h"
#include "tests/scratch.h"

using namespace gt;

namespace {

// A run's memory: a model, two state tensors (one with a name too long for GGUF), one counter, two
// blobs (one empty).
struct Run {
    ModelFile          model;
    ModelHead          head;
    std::vector<float> first, second;
    uint64_t           count = 0;
    Bytes              message, nothing;
    Checkpoint         checkpoint;

    explicit Run(uint64_t seed, const char * preset = "gpt-tiny") : first(100), second(37) {
        ModelConfig config = find_preset(preset).config;
        config.n_layer     = 1;
        config.n_vocab     = 30;
        model              = empty_model(config);
        init_model(model, seed);
        for (size_t i = 0; i < first.size(); ++i) {
            first[i] = static_cast<float>(seed * 1000 + i);
        }
        second[3]                = static_cast<float>(seed);
        count                    = seed << 40;
        head                     = model_head(model.config, model.keys.get());
        checkpoint.model         = &head;
        checkpoint.step          = seed;
        checkpoint.flags         = {{"lr", "0.1"}, {"prompt", "a = b\nc"}, {"empty", ""}};
        checkpoint.state.tensors = {
            whole_tensor("moment", first), whole_tensor(std::string(100, 'x'), second),
            whole_tensor("none", {})};
        checkpoint.state.counters = {{"steps", {&count}}};
        message.assign(7 + seed, static_cast<uint8_t>(200 + seed));
        checkpoint.state.blobs = {{"message", {&message}}, {"nothing", {&nothing}}};
        for (ModelTensor & tensor : model.tensors) {
            checkpoint.state.weights.push_back(whole_tensor(tensor.spec.name, tensor.data));
        }
    }
    bool same_as(const Run & other) const {
        for (size_t i = 0; i < model.tensors.size(); ++i) {
            if (model.tensors[i].data != other.model.tensors[i].data) {
                return false;
            }
        }
        return first == other.first && second == other.second && count == other.count &&
               message == other.message && nothing == other.nothing &&
               checkpoint.step == other.checkpoint.step &&
               checkpoint.flags == other.checkpoint.flags;
    }
};

}  // namespace

TEST_CASE("a_checkpoint_restores_every_bit") {
    const Scratch dir;
    const Run     a(5);
    Run           b(6);
    b.nothing       = {1, 2};
    const auto path = save_checkpoint(dir.path(), a.checkpoint);
    CHECK_FALSE(b.same_as(a));
    b.checkpoint.flags.clear();
    load_checkpoint(path, b.checkpoint);
    CHECK(b.same_as(a));
    CHECK(read_checkpoint_head(path).step == 5);
    CHECK(read_checkpoint_head(path).flags == a.checkpoint.flags);
    const CheckpointHead head = read_checkpoint_head(path);
    CHECK(head.weights.size() == a.checkpoint.state.weights.size());
    CHECK(head.state.size() == a.checkpoint.state.tensors.size());
    CHECK(head.counters.size() == a.checkpoint.state.counters.size());
    CHECK(head.model == a.checkpoint.model->text);
}

TEST_CASE("the_last_few_checkpoints_are_kept_and_the_newest_is_found") {
    const Scratch dir;
    for (const uint64_t step : {9, 10, 100, 1000}) {
        Run run(1);
        run.checkpoint.step = step;
        save_checkpoint(dir.path(), run.checkpoint, 3);
    }
    const Run  run(1);
    const auto found = find_checkpoint(dir.path(), run.head);
    CHECK(found.step == 1000);
    CHECK(found.refused.empty());
    CHECK_FALSE(std::filesystem::exists(dir / "checkpoint-0000000009.gguf"));
    CHECK(std::filesystem::exists(dir / "checkpoint-0000000010.gguf"));
    CHECK(find_checkpoint(dir / "none", run.head).path.empty());
}

TEST_CASE("a_checkpoint_of_an_earlier_step_than_the_kept_ones_is_not_removed_at_once") {
    const Scratch dir;
    std::string   path;
    for (const uint64_t step : {100, 200, 50}) {
        Run run(1);
        run.checkpoint.step = step;
        path                = save_checkpoint(dir.path(), run.checkpoint, 2);
    }
    CHECK(std::filesystem::exists(path));
}

TEST_CASE("a_bad_checkpoint_is_refused_and_the_one_before_is_used") {
    const Scratch dir;
    const Run     run(3), next(4);
    const auto    good  = save_checkpoint(dir.path(), run.checkpoint);
    const auto    bad   = save_checkpoint(dir.path(), next.checkpoint);
    const auto    whole = read_text(bad);
    const auto    check = [&](const std::string & text, const std::string & reason) {
        write_text(bad, text);
        const auto found = find_checkpoint(dir.path(), run.head);
        CHECK(found.path == good);
        REQUIRE(found.refused.size() == 1);
        CHECK_THAT(found.refused[0], ContainsSubstring(bad) && ContainsSubstring(reason));
        Run target(9);
        CHECK_FALSE(error_of([&] { load_checkpoint(bad, target.checkpoint); }).empty());
        CHECK(target.same_as(Run(9)));
    };
    check(whole.substr(0, whole.size() / 2), "cut off, or half-written");
    CHECK_THAT(error_of([&] { load_model(bad); }), ContainsSubstring("cut"));
    check(whole.substr(0, whole.size() - 1), "cut off, or half-written");
    CHECK_THAT(error_of([&] { load_model(bad); }), ContainsSubstring("damaged checkpoint"));
    check("", "not a checkpoint");
    check("something else", "not a checkpoint");
    for (const size_t i :
         {size_t(4), size_t(200), whole.size() / 2, whole.size() - 30, whole.size() - 2}) {
        std::string text = whole;
        text[i] ^= 16;
        check(text, "");
    }
    save_model(bad, run.model);  // a model file is not a checkpoint
    check(read_text(bad), "");
    write_text(bad, whole);
    CHECK(find_checkpoint(dir.path(), run.head).path == bad);
}

TEST_CASE("a_folder_with_only_bad_checkpoints_is_an_error") {
    const Scratch dir;
    const Run     run(3), other(3, "llama-tiny");
    write_text(dir / "checkpoint-0000000001.gguf", "GGUF but no more");
    CHECK_THAT(
        error_of([&] { find_checkpoint(dir.path(), run.head); }), ContainsSubstring("--fresh")
    );
    save_checkpoint(dir.path(), other.checkpoint);
    CHECK_THAT(
        error_of([&] { find_checkpoint(dir.path(), run.head); }),
        ContainsSubstring("of another model (llama")
    );
}

TEST_CASE("a_checkpoint_of_another_optimizer_changes_nothing") {
    const Scratch dir;
    const Run     saved(1);
    const auto    path = save_checkpoint(dir.path(), saved.checkpoint);
    Run           run(2);
    const Run     before(2);
    run.checkpoint.state.tensors[1].pieces[0].copies[0].values = std::span(run.second).first(5);
    CHECK_THAT(
        error_of([&] { load_checkpoint(path, run.checkpoint); }), ContainsSubstring("needs 5")
    );
    run.checkpoint.state.tensors.erase(run.checkpoint.state.tensors.begin() + 1);
    CHECK_THAT(
        error_of([&] { load_checkpoint(path, run.checkpoint); }),
        ContainsSubstring("another optimizer")
    );
    Run other(2);
    other.checkpoint.state.blobs.erase(other.checkpoint.state.blobs.begin());
    CHECK_THAT(
        error_of([&] { load_checkpoint(path, other.checkpoint); }),
        ContainsSubstring("a message in flight (message)") && ContainsSubstring("--overlap")
    );
    CHECK(run.same_as(before));
    CHECK(other.same_as(before));
}

TEST_CASE("a_checkpoint_opens_as_a_model") {
    const Scratch   dir;
    const Run       run(8);
    const ModelFile model = load_model(save_checkpoint(dir.path(), run.checkpoint));
    CHECK(model.at("blk.0.ffn_up.weight").data == run.model.at("blk.0.ffn_up.weight").data);
    CHECK(gguf_find_key(model.keys.get(), "gt.checkpoint.step") < 0);
    save_model(dir / "m.gguf", model);
    CHECK(load_model(dir / "m.gguf").tensors.size() == run.model.tensors.size());
}

TEST_CASE("an_old_run_is_renamed_not_removed") {
    const Scratch dir;
    CHECK(set_aside(dir / "run").empty());
    write_text(dir / "run/x", "1");
    CHECK(set_aside(dir / "run") == dir / "run.old-1");
    write_text(dir / "run/x", "2");
    CHECK(set_aside(dir / "run") == dir / "run.old-2");
    CHECK(read_text(dir / "run.old-1/x") == "1");
}
