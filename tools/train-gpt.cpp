// train-gpt — trains a GPT on text: a GGUF in, a GGUF that llama.cpp runs out.
//
//   train-gpt -m small.gguf --data books/
//   train-gpt -m small.gguf --nodes hosts.txt
//
// Read next: tools/train-loop.cpp (a run), ggml-train/trainer.cpp (one step), optim/decoupled.cpp
// (what hosts tell one another).
#include "models/generate.h"
#include "models/prepare.h"
#include "tools/train-loop.h"

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
    NodesFlags     together;

    void visit(Flags & visit) {
        visit.group("What to train, on what");
        visit("model,m", model, "model to train (GGUF; new-model makes one)");
        visit("data", data, "text files, folders, .jsonl, .gz, or a prepared token file");
        prepare.visit(visit);
        visit.group("The run");
        visit_run(visit);
        visit.group("Together with other machines");
        together.visit(visit);
        visit.group("The session");
        visit_session(visit);
        visit("prompt", prompt, "what samples continue");
        visit("sample-every", sample_every, "steps between samples; 0: ten in all");
        visit("sample-tokens", sample_tokens, "tokens per sample");
        visit("temperature", temperature, "of samples");
    }
};

// --data, else what our line in hosts.txt says, else the token file beside the model.
std::string find_data(const GptFlags & f, const HostLine * line) {
    if (!f.data.empty()) {
        return f.data;
    }
    if (line && !line->data.empty()) {
        return line->data;
    }
    const std::string beside = fs::path(f.model).replace_extension(".tokens").string();
    if (fs::exists(beside)) {
        return beside;
    }
    throw Error("no data: name text with --data, or put a token file at " + beside);
}

int train_gpt(GptFlags & f, Flags & flags) {
    // what we train, and with whom
    Together  together(f.together);
    TrainTask task;
    task.model = together.model(f.model, task.fresh);
    together.offer(task.model);
    if (task.model.config.arch == "vit") {
        throw Error(f.model + " is a model of pictures; train it with train-vit");
    }
    const Tokenizer   tokenizer(task.model.keys.get(), f.model);
    const std::string checkpoint = find_run(f, flags, task.model.config);

    // on what
    f.prepare.inputs   = {find_data(f, together.line())};
    f.prepare.threads  = f.threads;
    bool shown         = false;
    f.prepare.progress = [&](const PrepareProgress & p) {
        if (::isatty(STDERR_FILENO)) {
            shown = std::fprintf(stderr, "\r\033[Kpreparing data %s", progress_text(p).c_str()) > 0;
        }
    };
    const TokenData data(cached_tokens(tokenizer, f.prepare));
    std::fputs(shown ? "\n" : "", stderr);
    task.T = f.context = f.context ? f.context : task.model.config.n_ctx;
    if (task.T > task.model.config.n_ctx) {
        throw Error(format(
            "--context %lld: %s was made for at most %lld tokens", static_cast<long long>(task.T),
            f.model.c_str(), static_cast<long long>(task.model.config.n_ctx)
        ));
    }
    data.check(task.T, tokenizer.digest(), f.prepare.inputs[0]);
    choose_defaults(
        f, task.model.config, task.T, static_cast<int64_t>(data.info().n_train) / task.T
    );
    task.n_per_sample = task.T;
    task.data_digest  = data.info().digest;
    task.train        = [&](uint64_t step, const std::string & host, int64_t begin, int64_t end) {
        return data.train(f.seed, step, host, begin, end, task.T);
    };
    task.validation = [&](int64_t B) {
        std::vector<Batch> batches;
        const int64_t      n = data.n_val_windows(task.T, f.eval_batches * f.batch);
        for (int64_t i = 0; i < n; i += B) {
            batches.push_back(data.val(i, std::min(i + B, n), task.T, n));
        }
        if (n % B != 0) {  // the last one is filled up with what does not count
            Batch & last   = batches.back();
            last.n_samples = B;
            last.tokens.resize(B * task.T, 0);
            last.labels.resize(B * task.T, -1);
        }
        return batches;
    };

    // what it has learnt, as text
    task.prompt       = f.prompt;
    task.sample_every = f.sample_every;
    task.sample       = [&](std::span<const WeightView> weights) {
        const GenerateOptions options{.n_tokens = f.sample_tokens, .temperature = f.temperature};
        // threads would wait for one another longer than a small model computes
        const int threads = n_params(task.model.config) < 20'000'000 ? 1 : f.threads;
        return generate_from(
                  task.model.config, task.model.keys.get(), weights, f.out, f.prompt, options, threads
              );
    };

    settle(f, flags, task, together);
    return train_loop(f, flags, task, together, checkpoint);
}

}  // namespace

int main(int argc, char ** argv) {
    int       code   = 0;
    const int failed = run_tool("train-gpt", [&] {
        GptFlags f;
        Flags    flags("train-gpt", "trains a GPT on text", "-m MODEL --data TEXT [flags]");
        f.visit(flags);
        flags.parse(argc, argv);
        flags.require("model");
        code = train_gpt(f, flags);
    });
    return failed ? failed : code;
}
