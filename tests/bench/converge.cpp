// bench-converge — one run of simulated hosts: text (a byte-level GPT) or pictures (a small ViT).
//
//   bench-converge --task text --data TOKENS --replicator loco --lr 8e-3 --seed 1 [flags]
//
// Prints a line of JSON. The driver, converge.py, prepares the data, runs this for every row of its table,
// and makes a table and a plot.
#include "models/classifier/classifier.h"
#include "models/model-file.h"
#include "models/presets.h"
#include "models/text/token-data.h"
#include "models/text/tokenizer.h"
#include "tests/bench/converge-sim.h"
#include "tools/train/train-flags.h"

#include <map>

using namespace gt;

namespace {

struct BenchFlags {
    std::string task = "text", data, preset = "gpt-tiny", save, published = "none";
    int64_t     batch = 0, context = 128;
    SimRun      run{.schedule = {.lr = 8e-3f, .warmup = 40, .steps = 400}};

    void visit(Flags & visit) {
        visit("task", task, "what the hosts learn", {"text", "pictures"});
        visit("data", data, "tokens (prepare-data) or a folder of pictures");
        visit("preset", preset, "text: the model");
        visit("batch", batch, "samples per host and step; 0: 4 of text, 16 pictures");
        visit("context", context, "text: tokens of a sample");
        visit("save", save, "text: write the model to this file");
        visit("hosts", run.n_hosts, "simulated hosts");
        visit("threads", run.n_threads, "threads");
        visit("seed", run.seed, "of weights and samples");
        visit("clip", run.clip, "largest norm of a gradient");
        visit("steps", run.schedule.steps, "steps of each host");
        run.schedule.visit(visit);
        visit_published(visit, published);
        run.optim.visit(visit);
    }
};

// A byte-level GPT on a token file.
class Text {
public:
    explicit Text(const BenchFlags & f) : data_(f.data) {
        task.config         = find_preset(f.preset).config;
        task.config.n_vocab = static_cast<int64_t>(data_.info().n_vocab);
        task.B              = f.batch > 0 ? f.batch : 4;
        task.T              = f.context;
        task.train          = [this, seed = f.run.seed](uint64_t step, const std::string & host) {
            return data_.train(seed, step, host, 0, task.B, task.T);
        };
        task.validate = [this, save = f.save](Backend & backend, Transformer & model) {
            if (!save.empty()) {
                ModelFile file = empty_model(task.config);
                file.keys      = find_vocabulary("bytes");
                for (ModelTensor & tensor : file.tensors) {
                    model.weights().get(model.weights().at(tensor.spec.name), tensor.data);
                }
                save_model(save, file);
            }
            StepGraph graph(
                backend, model, {.B = task.B, .T = task.T, .goal = GraphOptions::Goal::loss}
            );
            double        loss = 0.0, counted = 0.0;
            const int64_t n = data_.n_val_windows(task.T, 512);
            for (int64_t i = 0; i + task.B <= n; i += task.B) {
                const Batch batch = data_.val(i, i + task.B, task.T, n);
                loss += graph.run(batch);
                counted += static_cast<double>(batch.n_labels());
            }
            return format("\"val_loss\": %.5f", loss / counted);
        };
    }

    SimTask task;

private:
    TokenData data_;
};

// A ViT of 0.2M weights on 28x28 pictures.
class Pictures {
public:
    explicit Pictures(const BenchFlags & f) {
        task.config            = find_preset("vit-micro").config;
        task.config.n_embd     = 64;
        task.config.n_ff       = 256;
        task.config.image_size = 28;
        task.config.channels   = 1;
        task.B                 = f.batch > 0 ? f.batch : 16;
        data_ = std::make_unique<ImageData>(f.data, image_spec(task.config), ImageOptions{});
        learn_from_data(task.config, *data_, f.data);
        task.train = [this, seed = f.run.seed](uint64_t step, const std::string & host) {
            auto & loader = loaders_[host];
            if (!loader) {
                loader = std::make_unique<ImageLoader>(
                    *data_,
                    LoaderOptions{
                        .seed      = seed,
                        .host      = host,
                        .batch     = static_cast<int>(task.B),
                        .n_threads = 1}
                );
            }
            return to_batch(loader->at(step));
        };
        task.validate = [this](Backend & backend, Transformer & model) {
            StepGraph graph(
                backend, model,
                {.B          = task.B,
                 .image_size = task.config.image_size,
                 .channels   = task.config.channels,
                 .goal       = GraphOptions::Goal::logits}
            );
            ImageLoader loader(
                *data_, {.batch = static_cast<int>(task.B), .val = true, .n_threads = 1}
            );
            const Evaluation result = evaluate_pictures(graph, loader);
            return format("\"val_loss\": %.5f, \"accuracy\": %.5f", result.loss, result.accuracy);
        };
    }

    SimTask task;

private:
    std::unique_ptr<ImageData>                          data_;
    std::map<std::string, std::unique_ptr<ImageLoader>> loaders_;
};

}  // namespace

int main(int argc, char ** argv) {
    return run_tool("bench-converge", [&] {
        BenchFlags f;
        Flags      flags("bench-converge", "trains simulated hosts", "--data PATH [flags]");
        f.visit(flags);
        flags.parse(argc, argv);
        flags.require("data");
        const std::string result =
            f.task == "text" ? simulate(Text(f).task, f.run) : simulate(Pictures(f).task, f.run);
        std::printf("{%s}\n", result.c_str());
        return 0;
    });
}
