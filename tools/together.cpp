#include "tools/together.h"

#include "comm/run-model.h"
#include "ggml-train/file.h"
#include "optim/dense.h"

#include <filesystem>
#include <tuple>
#include <unistd.h>

namespace gt {

static std::string own_name(const std::string & given) {
    char name[65] = {};
    ::gethostname(name, sizeof(name) - 1);
    const std::string host = given.empty() ? name : given;
    return host.substr(0, host.find('.'));
}

static void say(const std::string & line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

// Alone the name is the same on every machine, for the samples depend on it: a run may move.
Together::Together(const NodesFlags & flags)
    : flags_(flags), host_(flags.alone() && flags.name.empty() ? "self" : own_name(flags.name)) {
    if (flags.alone()) {
        return;
    }
    hosts_ = flags.join.empty() ? read_hosts(flags.nodes) : parse_invite(flags.join);
    MeetOptions options;
    options.hub_path                    = flags.hub_path.empty() ? "hub-store" : flags.hub_path;
    options.status_port                 = flags.status;
    options.take_over                   = flags.take_over;
    options.say                         = say;
    options.congestion                  = flags.tcp;
    options.up_limit                    = static_cast<uint64_t>(flags.up_limit);
    options.membership.min_hosts        = static_cast<size_t>(flags.min_hosts);
    options.membership.checkpoint_every = flags.checkpoint_every;
    meeting_                            = meet(hosts_, host_, options);
    std::printf(
        "host     %s, meeting at %s\n", host_.c_str(),
        hosts_.store.empty() ? hosts_.hub()->address.c_str() : hosts_.store.c_str()
    );
}

Together::~Together() = default;

// Sizes and tokenizer as a GGUF without tensors.
static Bytes description(const ModelFile & model) {
    write_config(model.config, model.keys.get());
    gguf_set_val_bool(model.keys.get(), "gt.tied", model.config.tied);
    Bytes bytes(gguf_get_meta_size(model.keys.get()));
    gguf_get_meta_data(model.keys.get(), bytes.data());
    return bytes;
}

static ModelFile described(const Bytes & bytes) {
    gguf_context_ptr keys(
        gguf_init_from_buffer(bytes.data(), bytes.size(), {.no_alloc = true, .ctx = nullptr})
    );
    if (!keys) {
        throw Error("the model's description in the store can't be read; was it put there by "
                    "another version?");
    }
    ModelConfig   config = read_config(keys.get(), "the run's model");
    const int64_t tied   = gguf_find_key(keys.get(), "gt.tied");
    config.tied          = tied < 0 || gguf_get_val_bool(keys.get(), tied);
    ModelFile model      = empty_model(config);
    model.keys           = std::move(keys);
    return model;
}

// How pictures are to be seen: every host as the first one does.
static bool take_pictures(ModelConfig & config, const ModelConfig & run) {
    const auto words = [](ModelConfig & c) {
        return std::tie(c.class_names, c.image_mean, c.image_std, c.image_crop, c.image_stored);
    };
    ModelConfig theirs = run;
    const bool  same   = words(config) == words(theirs);
    words(config)      = words(theirs);
    return same;
}

bool Together::offer(ModelFile & model) {
    if (alone()) {
        return true;
    }
    offer_model(meeting_->store(), meeting_->keys(), host_, description(model));
    const auto bytes = fetch_model(meeting_->store(), meeting_->keys(), std::chrono::minutes(1));
    if (!bytes) {
        throw Error("the model's description can't be read from the store; start this again");
    }
    return take_pictures(model.config, described(*bytes).config);
}

ModelFile Together::model(const std::string & path, bool & fresh) {
    fresh = alone() || std::filesystem::exists(path);
    if (fresh) {
        ModelFile  model = load_model(path);
        const auto bytes =
            alone() ? std::nullopt : fetch_model(meeting_->store(), meeting_->keys(), {});
        if (bytes) {
            take_pictures(model.config, described(*bytes).config);
        }
        return model;
    }
    std::printf("%s is not here: taking the model from the run\n", path.c_str());
    const auto bytes = fetch_model(meeting_->store(), meeting_->keys(), std::chrono::minutes(10));
    if (!bytes) {
        throw Error(
            "the run has no model yet: start it on a machine that has the file, with -m " + path
        );
    }
    return described(*bytes);
}

void Together::agree(
    Flags & flags, const Flags::Values & run, const ModelFile & model, bool fresh
) {
    if (alone()) {
        return;
    }
    Settings              ours;
    std::set<std::string> given;
    for (const auto & [name, value] : run) {
        ours[name] = value;
        if (flags.given(name)) {
            given.insert(name);
        }
    }
    // the model as a setting: who has a file must have the same one
    uint64_t digest = tokenizer_digest(model.keys.get());
    for (const ModelTensor & tensor : model.tensors) {
        const auto data = reinterpret_cast<const uint8_t *>(tensor.data.data());
        digest          = digest64({data, tensor.data.size() * sizeof(float)}, digest);
    }
    ours["model-digest"] = format("%016llx", static_cast<unsigned long long>(digest));
    if (fresh) {
        given.insert("model-digest");
    }
    ours["version"] = kVersion;
    given.insert("version");
    const Settings agreed = agree_settings(meeting_->store(), meeting_->keys(), host_, ours, given);
    for (const auto & [name, value] : run) {
        const auto found = agreed.find(name);
        if (found != agreed.end()) {
            flags.set(name, found->second);
        }
    }
}

// full and diloco send everything: hosts average a share each (comm/butterfly.h).
static DenseCodec dense_codec(const OptimOptions & optim, const std::vector<ParamView> & params) {
    return {
        .n_shards = 8,
        .split    = [=](uint64_t step, std::span<const uint8_t> message,
                     int n) { return split_shares(optim, params, step, message, n); },
        .average =
            [=](std::span<const Message> shards) {
                std::vector<Bytes>    bytes;
                std::vector<uint64_t> weights;
                for (const Message & shard : shards) {
                    bytes.push_back(shard.bytes);
                    weights.push_back(shard.weight);
                }
                std::string why;
                return mean_share(optim, params, bytes, weights, why);
            },
        .join =
            [](std::span<const Bytes> shards) {
                std::string why;
                return join_means(shards, why);
            }};
}

RunPeers & Together::peers(const OptimOptions & optim, const std::vector<ParamView> & params) {
    if (alone()) {
        peers_ = make_self_peers(host_);
        return *peers_;
    }
    StorePeersOptions options;
    options.host = host_;
    options.say  = say;
    if (optim.replicator == "full" || optim.replicator == "diloco") {
        options.dense = dense_codec(optim, params);
    }
    peers_ = make_peers(*meeting_, options);
    return *peers_;
}

void Together::finish() {
    peers_.reset();
    if (meeting_) {
        meeting_->finish();
    }
}

}  // namespace gt
