#include "tools/together.h"

#include "comm/run-model.h"
#include "ggml-train/file.h"
#include "ggml-train/weights.h"
#include "optim/dense.h"
#include "tools/estimate.h"

#include <filesystem>
#include <thread>
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
    check_line();
}

// Machines are started in any order: the hub gets a minute to come.
void Together::check_line() {
    using Clock        = std::chrono::steady_clock;
    const auto give_up = Clock::now() + std::chrono::minutes(1);
    for (bool said = false;;) {
        try {
            std::printf("line     %s", meeting_->check(host_).c_str());
            std::fflush(stdout);
            return;
        } catch (const KeyError &) {
            throw;
        } catch (const StoreError & error) {
            if (Clock::now() > give_up) {
                throw;
            }
            if (!said) {
                std::printf("line     not yet: %s\n", error.what());
                std::fflush(stdout);
            }
            said = true;
        }
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
}

Together::~Together() = default;

constexpr const char * kTied = "gt.tied";  // which tensors show in other files

// Sizes and tokenizer as a GGUF without tensors.
static Bytes description(const ModelFile & model) {
    const gguf_context_ptr keys(gguf_init_empty());
    gguf_set_kv(keys.get(), model.keys.get());
    write_config(model.config, keys.get());
    gguf_set_val_bool(keys.get(), kTied, model.config.tied);
    Bytes bytes(gguf_get_meta_size(keys.get()));
    gguf_get_meta_data(keys.get(), bytes.data());
    return bytes;
}

ModelFile described_model(const Bytes & bytes) {
    gguf_context_ptr keys(
        gguf_init_from_buffer(bytes.data(), bytes.size(), {.no_alloc = true, .ctx = nullptr})
    );
    if (!keys) {
        throw Error("the model's description in the store can't be read; was it put there by "
                    "another version?");
    }
    ModelConfig   config = read_config(keys.get(), "the run's model");
    const int64_t tied   = gguf_find_key(keys.get(), kTied);
    config.tied          = tied < 0 || gguf_get_val_bool(keys.get(), tied);
    gguf_remove_key(keys.get(), kTied);
    ModelFile model = empty_model(config);
    model.keys      = std::move(keys);
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
    return take_pictures(model.config, described_model(*bytes).config);
}

ModelFile Together::model(const std::string & path, bool & fresh) {
    fresh = alone() || std::filesystem::exists(path);
    if (fresh) {
        ModelFile  model = load_model(path);
        const auto bytes =
            alone() ? std::nullopt : fetch_model(meeting_->store(), meeting_->keys(), {});
        if (bytes) {
            take_pictures(model.config, described_model(*bytes).config);
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
    return described_model(*bytes);
}

// What is no flag and must be the same everywhere, as settings of the run.
static Settings identity(const ModelFile & model) {
    uint64_t weights = 0;
    for (const ModelTensor & tensor : model.tensors) {
        const auto data = reinterpret_cast<const uint8_t *>(tensor.data.data());
        weights         = digest64({data, tensor.data.size() * sizeof(float)}, weights);
    }
    const auto text = [](uint64_t digest) {
        return format("%016llx", static_cast<unsigned long long>(digest));
    };
    return {
        {"weights-digest", text(weights)},
        {"tokenizer-digest", text(tokenizer_digest(model.keys.get()))},
        {"version", kVersion}};
}

// fresh: we have the model's file, which must then be the one that the run began with.
static void check_identity(const Settings & ours, const Settings & run, bool fresh) {
    const auto differs = [&](const char * name) {
        const auto its = run.find(name);
        return its == run.end() || its->second != ours.at(name);
    };
    if (differs("version")) {
        const auto its = run.find("version");
        throw Error(
            "the run was started with version " + (its == run.end() ? "?" : its->second) +
            ", this is " + kVersion + "; use the same on all machines"
        );
    }
    if (differs("tokenizer-digest")) {
        throw Error("the model's tokenizer is not the run's; copy the file from the machine that "
                    "started the run, or leave it away: then the model comes from the run");
    }
    if (fresh && differs("weights-digest")) {
        throw Error("the model's weights are not those that the run began with; copy the file from "
                    "the machine that started the run, or leave it away: then the model comes from "
                    "the run");
    }
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
    // for whoever orders rounds, if it is not we; its own flags hold where nobody said
    for (const char * name : {"min-hosts", "checkpoint-every"}) {
        if (flags.given(name)) {
            ours[name] = name == std::string("min-hosts") ? std::to_string(flags_.min_hosts)
                                                          : std::to_string(flags_.checkpoint_every);
        }
    }
    const Settings what = identity(model);
    ours.insert(what.begin(), what.end());
    const Settings agreed = agree_settings(meeting_->store(), meeting_->keys(), host_, ours, given);
    check_identity(what, agreed, fresh);
    std::printf("agreed   %s, tokenizer, settings and version\n", fresh ? "weights" : "model");
    for (const auto & [name, value] : run) {
        const auto found = agreed.find(name);
        if (found != agreed.end()) {
            flags.set(name, found->second);
        }
    }
}

std::optional<DenseCodec>
dense_codec(const OptimOptions & optim, const std::vector<ParamView> & params) {
    if (optim.replicator != "full" && optim.replicator != "diloco") {
        return std::nullopt;
    }
    return DenseCodec{
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
    options.host  = host_;
    options.say   = say;
    options.dense = dense_codec(optim, params);
    peers_        = make_peers(*meeting_, options);
    return *peers_;
}

std::string
Together::cost(const OptimOptions & optim, const ModelConfig & config, double compute_s) const {
    std::vector<HostLine> lines = hosts_.hosts;
    for (HostLine & line : lines) {
        line.up   = line.up > 0 ? line.up : 20;  // what many homes have
        line.down = line.down > 0 ? line.down : 100;
    }
    const Cost cost = estimate(optim, param_shapes(config), lines, compute_s);
    return format(
        "%s %s, with %zu hosts %.1f GB up and %.1f GB down a day (plan tells more)",
        bytes_text(static_cast<uint64_t>(cost.round_bytes)).c_str(),
        cost.every == 1
            ? "a step"
            : format("every %llu steps", static_cast<unsigned long long>(cost.every)).c_str(),
        lines.size(), cost.up_gb_day, cost.down_gb_day
    );
}

void Together::finish() {
    peers_.reset();
    if (meeting_) {
        meeting_->finish();
    }
}

}  // namespace gt
