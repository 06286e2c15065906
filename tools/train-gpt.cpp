// train-gpt — trains a GPT on text or chats: reads a GGUF, writes a GGUF that llama.cpp runs.
//
//   train-gpt -m small.gguf books/
//   train-gpt -m small.gguf --nodes hosts.txt
//
// Read next: tools/train/run.cpp (a run), ggml-train/trainer.cpp (one step), ggml-train/README.md.
#include "models/text/generate.h"
#include "tools/cli/invite.h"
#include "tools/hf/hf.h"
#include "tools/train/rank.h"
#include "tools/train/run-devices.h"
#include "tools/train/run.h"
#include "tools/train/text-input.h"
#include "tools/verbs.h"

#include <algorithm>
#include <filesystem>
#include <unistd.h>

using namespace gt;

namespace fs = std::filesystem;

namespace {

struct GptFlags : TrainFlags {
    std::string    hf, prompt;
    int64_t        sample_every = 0, sample_tokens = 200;
    float          temperature = 0.8f;
    PrepareOptions prepare;
    NodesFlags     nodes;
    LoraFlags      lora;
    float          dropout = 0.0f;

    void visit_run(Flags & visit) {
        TrainFlags::visit_run(visit);
        visit.group("Adapter (LoRA)");
        lora.visit(visit);
        visit(
            "lora-dropout", dropout, "probability of dropping a value that the adapter sees", {}, 0,
            0.99
        );
    }

    void visit(Flags & visit) {
        visit.group("Model and data");
        visit("model,m", model, "model to train (GGUF); with other hosts, omit it to take theirs");
        visit("hf-repo,hf", hf, "model from Hugging Face instead of --model: USER/REPO[:FILE]");
        visit(
            "data,f", data,
            "text file, folder, .jsonl (text or chats), .gz, or a token file of prepare-data; may "
            "be repeated"
        );
        visit.positional("TEXT...", data, "the same as --data");
        prepare.visit(visit);
        visit_run(visit);
        visit.group("Other hosts");
        nodes.visit(visit);
        visit_session(visit);
        visit("prompt", prompt, "text that samples continue; of chats: the question they answer");
        visit("sample-every", sample_every, "steps between samples; 0: ten per run", {}, 0);
        visit("sample-tokens", sample_tokens, "tokens per sample", {}, 1);
        visit("temp,temperature", temperature, "temperature of samples", {}, 0);
        visit.shown_first(
            {"model", "hf", "data", "steps", "epochs", "batch", "context", "lr", "lora", "nodes",
             "join", "name", "status", "out", "fresh", "threads", "device"}
        );
    }
};

// --data, else the data of our entry in hosts.txt, else the token file beside the model.
std::vector<std::string> find_data(const GptFlags & f, const HostEntry * entry) {
    if (!f.data.empty()) {
        return f.data;
    }
    if (entry && !entry->data.empty()) {
        return {entry->data};
    }
    const std::string beside = fs::path(f.model).replace_extension(".tokens").string();
    if (!f.model.empty() && fs::exists(beside)) {
        return {beside};
    }
    throw Error(
        "no data: name text files or folders" +
        (f.model.empty() ? "" : ", or put a token file at " + beside)
    );
}

GptFlags with_context(GptFlags f, const ModelConfig & config) {
    if (f.context > config.n_ctx) {
        throw Error(format(
            "--context %lld: %s was made for at most %lld tokens",
            static_cast<long long>(f.context), model_name(f).c_str(),
            static_cast<long long>(config.n_ctx)
        ));
    }
    constexpr int64_t kMost = 2048;  // many models are made for far more than fits into memory
    f.context               = f.context ? f.context : std::min(config.n_ctx, kMost);
    return f;
}

int train_gpt(const GptFlags & given, const Flags & flags) {
    // the model, and the other hosts
    check_flags(given, flags, given.nodes.alone());
    if (given.dropout > 0.0f && given.lora.rank == 0) {
        throw UsageError("--lora-dropout is of an adapter; add --lora RANK, or omit it");
    }
    Session             session(given.nodes);
    RunModel            model  = session.model(given.model, given.lora.config());
    const ModelConfig & config = model.file.config;
    if (takes_images(config)) {
        throw Error(model_name(given) + " is a model of pictures; train it with train-vit");
    }
    const Tokenizer tokenizer(model.file.keys.get(), model_name(given));
    const RunFolder folder = open_run(given, flags, run_values(GptFlags{}), model.file);

    // the data
    const GptFlags f      = with_context(with_values(given, folder.flags), config);
    PrepareOptions source = f.prepare;
    source.inputs         = find_data(f, session.entry());
    source.threads        = f.threads;
    const auto text       = open_text(source, tokenizer, model.file.keys.get(), model_name(given));
    // with an adapter the activations are most of the memory, and more tokens at once hardly faster
    constexpr int64_t kAdapterTokens = 512;
    RunInput          in{
                 .model = &model,
                 .T     = f.context,
                 .micro = config.lora.enabled() ? std::max<int64_t>(1, kAdapterTokens / f.context) : 0,
                 .n_per_sample = f.context,
                 .alone        = session.alone(),
                 .n_hosts      = session.n_hosts(),
                 .up_rate      = given.nodes.up_rate()};
    text->describe(in);
    session.offer(model.file);

    // the plan
    const GptFlags settled = settle(f, flags, in, session);
    settled.lora.check(config.lora);
    if (settled.dropout > 0.0f && form_of(settled) != Form::fused) {
        throw Error("--lora-dropout works with the fused ops of the CPU; omit --device and "
                    "--portable, or start a run without dropout");
    }
    in.dropout         = settled.dropout;
    const RunPlan plan = make_plan(settled, flags, in, folder);
    const auto    data = text->data(plan, session.host());
    if (plan.checkpoint.empty()) {
        std::fputs(text->first_sample(::isatty(STDOUT_FILENO)).c_str(), stdout);
    }
    const TextInput::Prompt prompt   = text->prompt(f.prompt);
    const auto              generate = [&](std::span<const WeightView> weights) {
        constexpr int64_t     kSmall = 20'000'000;  // weights: more threads would only wait
        const GenerateOptions options{
                         .n_tokens = f.sample_tokens, .temperature = f.temperature, .special = prompt.special};
        const int threads = n_params(config) < kSmall ? 1 : plan.threads;
        return generate_from(
                         config, model.file.keys.get(), weights, plan.out, prompt.full, options, threads
                     );
    };
    return run_training(plan, model, *data, session, {generate, prompt.shown, f.sample_every});
}

}  // namespace

int gt::train_gpt_main(Flags & flags, int argc, char ** argv) {
    GptFlags f;
    f.visit(flags);
    flags.parse(argc, argv);
    hide_invites(argc, argv);
    if (f.list_devices) {
        std::fputs(device_list().c_str(), stdout);
        return 0;
    }
    f.model = model_or_hf(f.model, f.hf);
    if (f.model.empty() && !f.data.empty() && f.data[0].ends_with(".gguf")) {
        throw UsageError(f.data[0] + " is a model, not text; did you mean -m " + f.data[0] + "?");
    }
    if (!f.hf.empty() && f.out.empty()) {
        f.out = fs::path(f.model).stem().string() + "-run";  // here, not in the cache
    }
    static_cast<TrainFlags &>(f) = begin_session(f, flags, f.nodes);
    return train_gpt(f, flags);
}
