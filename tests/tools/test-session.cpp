// Who may train together: hosts of one protocol whose arithmetic gives the same bits, whatever their version.
#include "tests/catch.h"
#include "tests/scratch.h"
#include "tests/tools/ranks-fixture.h"
#include "tools/train/session.h"

#include <fstream>

using namespace gt;

// A session of `host` in a run of its own, in a folder.
static std::unique_ptr<Session> session_in(const Scratch & scratch, const std::string & place) {
    NodesFlags flags;
    flags.nodes = scratch / (place + ".txt");
    flags.name  = "anna";
    std::ofstream(flags.nodes) << "key " << to_base64(Key32{9}) << "\nanna -\nstore file://"
                               << scratch / place << "\n";
    return std::make_unique<Session>(flags);
}

TEST_CASE("an_adapter_without_the_file_of_its_model_is_refused_with_what_to_do", "[session]") {
    const LoraConfig lora{.rank = 4, .alpha = 8.0f, .on = "", .base = nullptr};
    const auto       why = error_of([&] { (void) Session(NodesFlags{}).model("", lora); });
    CHECK(why.find("--lora needs the file of the model") == 0);
}

TEST_CASE("who_joins_a_run_of_an_adapter_without_its_model_is_told_what_to_add", "[session]") {
    const Scratch scratch;
    ::setenv("XDG_CONFIG_HOME", (scratch / "config").c_str(), 1);
    ModelConfig config = small("llama");
    config.lora        = {.rank = 4, .alpha = 8.0f, .on = "", .base = nullptr};
    ModelFile adapter  = empty_model(config);
    CHECK(session_in(scratch, "run")->offer(adapter));
    const auto why = error_of([&] { (void) session_in(scratch, "run")->model(""); });
    CHECK(why.find("the run trains an adapter: add -m") == 0);
    CHECK(why.find("--lora 4") != std::string::npos);
}

TEST_CASE("hosts_of_another_protocol_or_arithmetic_are_refused", "[session]") {
    const Scratch scratch;
    ::setenv("XDG_CONFIG_HOME", (scratch / "config").c_str(), 1);
    RunModel model{.file = empty_model(small("gpt2"))};
    init_model(model.file, 1);
    NodesFlags nodes;
    Flags      given;
    nodes.visit(given);
    const auto agree = [&](const std::string & place) {
        (void) session_in(scratch, place)->agree(given, {}, model);
    };
    agree("ours");
    const RunKeys  keys = keys_from_secret(Key32{9});
    const Settings ours = *read_settings(*make_file_store(scratch / "ours"), keys);
    const auto     join = [&](const std::string & name, const std::string & value) {
        Settings theirs  = ours;
        theirs.at(name)  = value;
        const auto store = make_file_store(scratch / (name + value));
        agree_settings(*store, keys, "ben", theirs, {});
        return error_of([&] { agree(name + value); });
    };
    CHECK(join("protocol", ours.at("protocol")).empty());
    CHECK(
        join("protocol", std::to_string(kProtocol + 1))
            .find("another protocol than the run; install the version") != std::string::npos
    );
    CHECK(join("arithmetic", ours.at("arithmetic")).empty());
    CHECK(
        join("arithmetic", "0123456789abcdef")
            .find("other bits than the run's hosts do; install the version") != std::string::npos
    );
}
