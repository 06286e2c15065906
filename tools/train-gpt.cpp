// train-gpt — trains a GPT on text: reads a GGUF, writes a GGUF that llama.cpp runs.
//
//   train-gpt -m small.gguf books/
//   train-gpt -m small.gguf --nodes hosts.txt
//
// Read next: tools/train/run.cpp (a run), ggml-train/trainer.cpp (one step), ggml-train/README.md.
#include "ggml-train/base/text.h"
#include "models/text/generate.h"
#include "models/text/prepare.h"
#include "models/text/text-data.h"
#include "tools/cli/invite.h"
#include "tools/cli/plural.h"
#include "tools/train/run-devices.h"
#include "tools/train/run.h"
#include "tools/train/settle.h"
#include "tools/verbs.h"

#include <filesystem>
#include <unistd.h>

using namespace gt;

namespace fs = std::filesystem;

namespace {

struct GptFlags : TrainFlags {
    std::string    prompt       = "\n";
    int64_t        sample_every = 0, sample_tokens = 200;
    float          temperature  = 0.8f;
    bool           list_devices = false;
    PrepareOptions prepare;
    NodesFlags     nodes;
    LoraFlags      lora;

    void visit_run(Flags & visit) {
        TrainFlags::visit_run(visit);
        visit.group("Adapter (LoRA)");
        lora.visit(visit);
    }

    void visit(Flags & visit) {
        visit.group("Model and data");
        visit("model,m", model, "model to train (GGUF; new-model makes one)");
        visit(
            "data,f", data,
            "text file, folder, .jsonl, .gz, or a token file of prepare-data; may be repeated"
        );
        visit.positional("TEXT...", data, "the same as --data");
        prepare.visit(visit);
        visit_run(visit);
        visit.group("Other hosts");
        nodes.visit(visit);
        visit_session(visit);
        visit("prompt", prompt, "text that samples continue");
        visit("sample-every", sample_every, "steps between samples; 0: ten per run", {}, 0);
        visit("sample-tokens", sample_tokens, "tokens per sample", {}, 1);
        visit("temp,temperature", temperature, "temperature of samples", {}, 0);
        visit("list-devices", list_devices, "show the devices that this program can use");
        visit.refuse(
            "b", "llama.cpp's -b is about prompts; name the samples per step with --batch"
        );
        visit.refuse("batch-size", "name the samples per step with --batch");
        visit.refuse("ub", "name the samples computed at once with --micro");
        visit.refuse("ubatch-size", "name the samples computed at once with --micro");
        visit.shown_first({"model",   "data",   "steps",     "tokens", "hours",        "batch",
                           "context", "lr",     "rule",      "lora",   "seed",         "nodes",
                           "join",    "name",   "min-hosts", "status", "out",          "export",
                           "fresh",   "extend", "threads",   "device", "list-devices", "prompt"});
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
    if (fs::exists(beside)) {
        return {beside};
    }
    throw Error("no data: name text files or folders, or put a token file at " + beside);
}

CachedTokens prepare_text(
    const GptFlags & f, const Tokenizer & tokenizer, const std::vector<std::string> & paths
) {
    PrepareOptions options = f.prepare;
    bool           shown   = false;
    options.inputs         = paths;
    options.threads        = f.threads;
    options.progress       = [&](const PrepareProgress & p) {
        if (::isatty(STDERR_FILENO)) {
            shown = std::fprintf(stderr, "\r\033[Kpreparing data %s", progress_text(p).c_str()) > 0;
        }
    };
    CachedTokens tokens = cached_tokens(tokenizer, options);
    std::fputs(shown ? "\n" : "", stderr);
    return tokens;
}

// "1.02M tokens in 3 files, 52.1k to validate"
std::string text_summary(const CachedTokens & cached, const TokenInfo & info) {
    std::string text = count_text(static_cast<double>(info.n_train)) + " tokens in ";
    text += cached.n_files > 0 ? plural(cached.n_files, "file")
                               : plural(static_cast<int64_t>(info.n_train_doc), "document");
    text += ", " + count_text(static_cast<double>(info.n_val)) + " to validate";
    return text + (cached.n_skipped > 0
                       ? format("; %d hidden or binary files skipped", cached.n_skipped)
                       : "");
}

GptFlags with_context(GptFlags f, const ModelConfig & config) {
    if (f.context > config.n_ctx) {
        throw Error(format(
            "--context %lld: %s was made for at most %lld tokens",
            static_cast<long long>(f.context), f.model.c_str(), static_cast<long long>(config.n_ctx)
        ));
    }
    f.context = f.context ? f.context : config.n_ctx;
    return f;
}

// A resumed run, or one with other hosts, may have other settings than the model was loaded with.
void check_adapter(const LoraFlags & run, const LoraConfig & ours) {
    const LoraConfig its = run.config();
    if (its.rank != ours.rank || its.alpha != ours.alpha || its.on != ours.on) {
        throw Error(format(
            "the run was started with --lora %lld --lora-alpha %g%s; add the same flags",
            static_cast<long long>(its.rank), its.alpha,
            its.on.empty() ? "" : (" --lora-on " + its.on).c_str()
        ));
    }
}

int train_gpt(const GptFlags & given, const Flags & flags) {
    // the model, and the other hosts
    check_flags(given, flags, given.nodes.alone());
    Session             session(given.nodes);
    RunModel            model  = session.model(given.model, given.lora.config());
    const ModelConfig & config = model.file.config;
    if (takes_images(config)) {
        throw Error(given.model + " is a model of pictures; train it with train-vit");
    }
    const Tokenizer tokenizer(model.file.keys.get(), given.model);
    const RunFolder folder = open_run(given, flags, run_values(GptFlags{}), model.file);

    // the data
    const GptFlags     f      = with_context(with_values(given, folder.flags), config);
    const auto         paths  = find_data(f, session.entry());
    const CachedTokens cached = prepare_text(f, tokenizer, paths);
    const TokenData    tokens(cached.path);
    tokens.check(f.context, tokenizer.digest(), paths[0]);
    session.offer(model.file);

    // the plan
    const RunInput in{
        .model        = &model,
        .T            = f.context,
        .n_samples    = static_cast<int64_t>(tokens.info().n_train) / f.context,
        .n_per_sample = f.context,
        .alone        = session.alone(),
        .data_text    = text_summary(cached, tokens.info())};
    const GptFlags settled = settle(f, flags, in, session);
    check_adapter(settled.lora, config.lora);
    const RunPlan plan = make_plan(settled, flags, in, folder);
    TextData      data(
             tokens, {.seed  = plan.seed,
                      .host  = session.host(),
                      .T     = plan.T,
                      .n_val = plan.eval_batches * plan.batch}
         );
    const auto generate = [&](std::span<const WeightView> weights) {
        constexpr int64_t     kSmall = 20'000'000;  // weights: more threads would only wait
        const GenerateOptions options{.n_tokens = f.sample_tokens, .temperature = f.temperature};
        const int             threads = n_params(config) < kSmall ? 1 : plan.threads;
        return generate_from(
            config, model.file.keys.get(), weights, plan.out, f.prompt, options, threads
        );
    };
    return run_training(plan, model, data, session, {generate, f.prompt, f.sample_every});
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
    flags.require("model");
    return train_gpt(f, flags);
}
