// train-gpt — trains a GPT on text: reads a GGUF, writes a GGUF that llama.cpp runs.
//
//   train-gpt -m small.gguf --data books/
//   train-gpt -m small.gguf --nodes hosts.txt
//
// Read next: tools/train/run.cpp (a run), ggml-train/trainer.cpp (one step), ggml-train/README.md.
#include "models/text/generate.h"
#include "models/text/prepare.h"
#include "models/text/text-data.h"
#include "tools/cli/invite.h"
#include "tools/train/run.h"
#include "tools/train/settle.h"

#include <filesystem>
#include <unistd.h>

using namespace gt;

namespace fs = std::filesystem;

namespace {

struct GptFlags : TrainFlags {
    std::string    prompt       = "\n";
    int64_t        sample_every = 0, sample_tokens = 200;
    float          temperature = 0.8f;
    PrepareOptions prepare;
    NodesFlags     nodes;

    void visit(Flags & visit) {
        visit.group("Model and data");
        visit("model,m", model, "model to train (GGUF; new-model makes one)");
        visit("data", data, "text files, folders, .jsonl, .gz, or a token file of prepare-data");
        prepare.visit(visit);
        visit_run(visit);
        visit.group("Other hosts");
        nodes.visit(visit);
        visit_session(visit);
        visit("prompt", prompt, "text that samples continue");
        visit("sample-every", sample_every, "steps between samples; 0: ten per run");
        visit("sample-tokens", sample_tokens, "tokens per sample");
        visit("temperature", temperature, "temperature of samples");
    }
};

// --data, else the data of our entry in hosts.txt, else the token file beside the model.
std::string find_data(const GptFlags & f, const HostEntry * entry) {
    if (!f.data.empty()) {
        return f.data;
    }
    if (entry && !entry->data.empty()) {
        return entry->data;
    }
    const std::string beside = fs::path(f.model).replace_extension(".tokens").string();
    if (fs::exists(beside)) {
        return beside;
    }
    throw Error("no data: name text with --data, or put a token file at " + beside);
}

TokenData open_tokens(const GptFlags & f, const Tokenizer & tokenizer, const std::string & path) {
    PrepareOptions options = f.prepare;
    bool           shown   = false;
    options.inputs         = {path};
    options.threads        = f.threads;
    options.progress       = [&](const PrepareProgress & p) {
        if (::isatty(STDERR_FILENO)) {
            shown = std::fprintf(stderr, "\r\033[Kpreparing data %s", progress_text(p).c_str()) > 0;
        }
    };
    const std::string tokens = cached_tokens(tokenizer, options);
    std::fputs(shown ? "\n" : "", stderr);
    return TokenData(tokens);
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

int train_gpt(const GptFlags & given, const Flags & flags) {
    // the model, and the other hosts
    Session  session(given.nodes);
    RunModel model = session.model(given.model);
    session.offer(model.file);
    const ModelConfig & config = model.file.config;
    if (takes_images(config)) {
        throw Error(given.model + " is a model of pictures; train it with train-vit");
    }
    const Tokenizer tokenizer(model.file.keys.get(), given.model);
    const RunFolder folder = open_run(given, flags, run_values(GptFlags{}), config);

    // the data
    const GptFlags    f      = with_context(with_values(given, folder.flags), config);
    const std::string path   = find_data(f, session.entry());
    const TokenData   tokens = open_tokens(f, tokenizer, path);
    tokens.check(f.context, tokenizer.digest(), path);

    // the plan
    const RunInput in{
        .model        = &model,
        .T            = f.context,
        .n_samples    = static_cast<int64_t>(tokens.info().n_train) / f.context,
        .n_per_sample = f.context,
        .alone        = session.alone()};
    const RunPlan plan = make_plan(settle(f, flags, in, session), flags, in, folder);
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

int main(int argc, char ** argv) {
    int       code   = 0;
    const int failed = run_tool("train-gpt", [&] {
        GptFlags f;
        Flags    flags("train-gpt", "trains a GPT on text", "-m MODEL --data TEXT [flags]");
        f.visit(flags);
        flags.parse(argc, argv);
        hide_invites(argc, argv);
        flags.require("model");
        code = train_gpt(f, flags);
    });
    return failed ? failed : code;
}
