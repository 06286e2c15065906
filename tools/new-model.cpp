// new-model — makes a model: shape, initial weights and tokenizer in one GGUF that llama.cpp accepts.
//
//   new-model --preset gpt2-124m -o small.gguf
//   new-model --arch llama --layers 8 --width 512 --heads 8 --vocab gpt-2 -o mine.gguf
//   new-model --preset llama-tiny --train-vocab books/ --vocab-size 4096 -o mine.gguf
//   new-model --from existing.gguf -o copy.gguf            keeps the weights, as F32
//   new-model --preset vit-tiny --classes 37 -o vit.gguf
//   new-model --from vit.gguf --image 384 --classes 5 -o finer.gguf   for other pictures
//   new-model --from model.safetensors --classes 5 -o pets.gguf       a ViT of timm or Hugging Face
//
// Read next: models/arch.h (the table of architectures), models/arch/gpt.cpp (one of its rows).
#include "ggml-train/base/file.h"
#include "ggml-train/base/text.h"
#include "models/classifier/adapt-vit.h"
#include "models/convert/import-vit.h"
#include "models/init.h"
#include "models/presets.h"
#include "models/text/chat-template.h"
#include "models/text/train-vocab.h"
#include "tools/cli/output.h"
#include "tools/hf/hf.h"
#include "tools/verbs.h"

#include <map>

using namespace gt;

namespace {

struct NewModelFlags {
    std::string              preset, from, hf, vocab, chat_template, out;
    std::vector<std::string> train_vocab;
    int64_t                  vocab_size = 4096;
    ModelSizes               sizes;
    bool                     list = false, force = false;
    uint64_t                 seed = 1;

    void visit(Flags & visit) {
        visit.group("Model");
        visit("out,o", out, "the file to write");
        visit("preset", preset, "a named size; --list shows them");
        visit(
            "from", from,
            "an existing model whose weights are kept: a GGUF (F32, F16, BF16 or quantised), or a "
            "ViT of timm or Hugging Face (model.safetensors, with config.json beside it)"
        );
        visit("hf-repo,hf", hf, "like --from, with a file from Hugging Face: USER/REPO[:FILE]");
        visit(
            "vocab,tokenizer", vocab, "tokenizer: bytes, a name (--list), or any GGUF that has one"
        );
        visit(
            "train-vocab", train_vocab,
            "train a tokenizer (byte-level BPE) on this text file or folder; may be repeated"
        );
        visit("vocab-size", vocab_size, "tokens of --train-vocab", {}, 257, 1e6);
        visit(
            "chat-template", chat_template,
            "file with a Jinja template that makes text of chats, as llama.cpp's models have"
        );
        visit("seed,s", seed, "seed of the initial weights");
        visit("force", force, "replace an existing file");
        visit("list", list, "show presets and vocabularies");
        visit.group("Sizes that differ from the preset's");
        sizes.visit(visit);
    }
};

int64_t n_tokens(const std::string & vocab) {
    const gguf_context_ptr keys = find_vocabulary(vocab);
    const int64_t          at   = gguf_find_key(keys.get(), "tokenizer.ggml.tokens");
    return at < 0 ? 0 : static_cast<int64_t>(gguf_get_arr_n(keys.get(), at));
}

void print_list() {
    std::map<std::string, int64_t> sizes;  // of vocabularies
    for (const std::string & name : vocabulary_names()) {
        sizes[name] = n_tokens(name);
    }
    std::printf("presets (--preset): weights, architecture, layers x width\n");
    for (const Preset & preset : presets()) {
        ModelConfig config = preset.config;
        const bool  images = takes_images(config);
        config.n_vocab     = images ? 0 : sizes[preset.tokenizer];
        std::printf(
            "  %-10s %5s  %s, %lld x %lld, %s %lld; %s\n", preset.name.c_str(),
            count_text(static_cast<double>(n_params(config))).c_str(), config.arch.c_str(),
            static_cast<long long>(config.n_layer), static_cast<long long>(config.n_embd),
            images ? "pixels" : "context",
            static_cast<long long>(images ? config.image_size : config.n_ctx), preset.help.c_str()
        );
    }
    std::printf("vocabularies (--vocab): tokens\n");
    int column = 0;
    for (const auto & [name, size] : sizes) {
        std::printf("  %-16s%7lld", name.c_str(), static_cast<long long>(size));
        std::printf("%s", ++column % 3 == 0 ? "\n" : "");
    }
    std::printf("%s", column % 3 == 0 ? "" : "\n");
}

gguf_context_ptr vocabulary(const NewModelFlags & f) {
    if (f.train_vocab.empty()) {
        return find_vocabulary(
            !f.vocab.empty()    ? f.vocab
            : !f.preset.empty() ? find_preset(f.preset).tokenizer
                                : "bytes"
        );
    }
    TrainedVocabulary trained = train_vocabulary(f.train_vocab, f.vocab_size);
    std::printf(
        "vocabulary: %lld tokens, %.2f bytes of the text per token\n",
        static_cast<long long>(f.vocab_size),
        static_cast<double>(trained.n_bytes) / static_cast<double>(trained.n_tokens)
    );
    return std::move(trained.keys);
}

ModelFile new_model(const NewModelFlags & f) {
    if (!f.from.empty()) {
        if (!f.preset.empty() || !f.sizes.arch.empty() || !f.vocab.empty() ||
            !f.train_vocab.empty()) {
            throw UsageError(
                "--from keeps the shape and tokenizer of its file; drop --preset, --arch, --vocab "
                "and --train-vocab"
            );
        }
        const VitChanges changes{f.sizes.image, f.sizes.image_width, f.sizes.classes};
        ModelFile        model = is_safetensors(f.from)
                                     ? import_vit(f.from, f.sizes.heads, f.sizes.classes, f.seed)
                                     : load_model(f.from);
        if (changes.image == 0 && changes.width == 0 && changes.classes == 0) {
            return model;
        }
        if (!takes_images(model.config)) {
            throw UsageError("--image and --classes are for models of pictures");
        }
        return adapt_vit(std::move(model), changes, f.seed);
    }
    ModelConfig      config = sized_config(f.preset, f.sizes);
    gguf_context_ptr keys;
    if (!takes_images(config)) {
        keys           = vocabulary(f);
        config.n_vocab = Tokenizer(keys.get(), f.out).n_tokens();  // libllama can use it
    }
    check_config(config, f.preset.empty() ? "--arch " + f.sizes.arch : f.preset);
    ModelFile model = empty_model(config);
    if (keys) {
        model.keys = std::move(keys);
    }
    gguf_set_val_str(
        model.keys.get(), "general.name", (f.preset.empty() ? config.arch : f.preset).c_str()
    );
    init_model(model, f.seed);
    return model;
}

// From a file, as it is; llama.cpp must be able to read it.
void set_chat_template(ModelFile & model, const std::string & path) {
    if (takes_images(model.config)) {
        throw UsageError("--chat-template is for models of text");
    }
    const MappedFile  file(path);
    const std::string text(file.bytes().begin(), file.bytes().end());
    gguf_set_val_str(model.keys.get(), "tokenizer.chat_template", text.c_str());
    const Tokenizer tokenizer(model.keys.get(), path);
    ChatTemplate(model.keys.get(), tokenizer, path);
}

}  // namespace

int gt::new_model_main(Flags & flags, int argc, char ** argv) {
    NewModelFlags f;
    f.visit(flags);
    flags.parse(argc, argv);
    if (f.list) {
        print_list();
        return 0;
    }
    if (f.preset.empty() && f.sizes.arch.empty() && f.from.empty() && f.hf.empty()) {
        throw UsageError("choose a model: --preset NAME (--list shows them), --arch with sizes, "
                         "or --from FILE (-hf USER/REPO)");
    }
    if (flags.given("vocab-size") && f.train_vocab.empty()) {
        throw UsageError("--vocab-size is the size of a tokenizer that --train-vocab makes");
    }
    if (!f.vocab.empty() && !f.train_vocab.empty()) {
        throw UsageError("--vocab takes a tokenizer, --train-vocab makes one; give one of them");
    }
    flags.require("out");
    f.from = model_or_hf(f.from, f.hf);
    check_output(f.out, {f.from}, f.force);
    ModelFile model = new_model(f);
    if (!f.chat_template.empty()) {
        set_chat_template(model, f.chat_template);
    }
    for (const std::string & note : model.notes) {
        std::printf("%s\n", note.c_str());
    }
    save_model(f.out, model);
    std::printf("%s: %s\n", f.out.c_str(), describe(model.config).c_str());
    return 0;
}
