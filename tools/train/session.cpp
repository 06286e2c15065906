#include "tools/train/session.h"

#include "comm/run/run-model.h"
#include "comm/wire/frame.h"
#include "ggml-train/base/file.h"
#include "ggml-train/base/plural.h"
#include "ggml-train/base/text.h"
#include "ggml-train/gguf/gguf-read.h"
#include "ggml-train/shard/weights.h"
#include "models/base-weights.h"
#include "optim/fixed-run.h"
#include "optim/wire/shares.h"
#include "tools/cli/host-name.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/invite.h"
#include "tools/train/cost.h"

#include <filesystem>
#include <limits>
#include <thread>
#include <tuple>

namespace gt {

void SessionLog::to(std::function<void(const std::string &)> sink) {
    const std::lock_guard lock(mutex_);
    sink_ = std::move(sink);
}

void SessionLog::line(const std::string & text) {
    const std::lock_guard lock(mutex_);
    if (sink_) {
        sink_(text);
        return;
    }
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
}

// The samples depend on the host's name. Alone it is always "self", so that a run can move to another
// machine.
Session::Session(const NodesFlags & flags)
    : flags_(flags),
      host_(flags.alone() && flags.name.empty() ? "self" : own_host_name(flags.name)) {
    if (flags.alone()) {
        return;
    }
    hosts_ = flags.join.empty() ? read_hosts(flags.nodes) : parse_invite(read_invite(flags.join));
    MeetOptions options;
    options.hub_path                    = flags.hub_path.empty() ? "hub-store" : flags.hub_path;
    options.log                         = [this](const std::string & text) { log_.line(text); };
    options.stop                        = Interrupt::asked;
    options.congestion                  = flags.tcp;
    options.up_limit                    = make_upload_limit(static_cast<uint64_t>(flags.up_limit));
    options.membership.min_hosts        = static_cast<size_t>(flags.min_hosts);
    options.membership.checkpoint_every = flags.checkpoint_every;
    meeting_                            = meet(hosts_, host_, options);
    std::printf(
        "host     %s, meeting at %s\n", host_.c_str(),
        hosts_.store.empty() ? hosts_.hub()->address.c_str() : hosts_.store.c_str()
    );
    check_link();
}

// Hosts may start before the hub: retries for a minute.
void Session::check_link() {
    using Clock        = std::chrono::steady_clock;
    const auto give_up = Clock::now() + std::chrono::minutes(1);
    for (bool has_logged = false;;) {
        try {
            std::printf("link     %s", meeting_->check(host_).c_str());
            std::fflush(stdout);
            return;
        } catch (const KeyError &) {
            throw;
        } catch (const StoreError & error) {
            if (Clock::now() > give_up) {
                throw;
            }
            if (!has_logged) {
                std::printf("link     not yet: %s\n", error.what());
                std::fflush(stdout);
            }
            has_logged = true;
        }
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
}

Session::~Session() = default;

// In model files the list of tensors shows it; factors of RoPE are tensors themselves.
constexpr const char * kTied   = "gt.tied";
constexpr const char * kFused  = "gt.fused_qkv";
constexpr const char * kBiases = "gt.biases";
static std::string     factors_key(const RopeFactors & factors) {
        return std::string("gt.") + factors.name;
}

// Sizes and tokenizer as a GGUF without tensors.
static Bytes description(const ModelFile & model) {
    const gguf_context_ptr keys(gguf_init_empty());
    gguf_set_kv(keys.get(), model.keys.get());
    write_config(model.config, keys.get());
    gguf_set_val_bool(keys.get(), kTied, model.config.tied);
    gguf_set_val_bool(keys.get(), kFused, model.config.fused_qkv);
    std::vector<const char *> biases;
    for (const std::string & matrix : model.config.biases) {
        biases.push_back(matrix.c_str());
    }
    gguf_set_arr_str(keys.get(), kBiases, biases.data(), biases.size());
    for (const RopeFactors & factors : kRopeFactors) {
        const std::vector<float> & values = model.config.rope.*factors.values;
        if (!values.empty()) {
            gguf_set_arr_data(
                keys.get(), factors_key(factors).c_str(), GGUF_TYPE_FLOAT32, values.data(),
                values.size()
            );
        }
    }
    Bytes bytes(gguf_get_meta_size(keys.get()));
    gguf_get_meta_data(keys.get(), bytes.data());
    return bytes;
}

ModelFile described_model(const Bytes & bytes) {
    gguf_context_ptr keys(
        gguf_init_from_buffer(bytes.data(), bytes.size(), {.no_alloc = true, .ctx = nullptr})
    );
    if (!keys) {
        throw Error("the model's description in the store can't be read; was it written by another "
                    "version?");
    }
    ModelConfig   config = read_config(keys.get(), "the run's model");
    const int64_t tied   = gguf_find_key(keys.get(), kTied);
    config.tied          = tied < 0 || gguf_get_val_bool(keys.get(), tied);
    config.fused_qkv     = find_int(keys.get(), kFused, "the run's model").value_or(0) != 0;
    // versions that do not write this have those of the architecture
    config.biases = gguf_find_key(keys.get(), kBiases) < 0
                        ? find_arch(config.arch).defaults.biases
                        : find_strings(keys.get(), kBiases, "the run's model");
    for (const char * key : {kTied, kFused, kBiases}) {
        gguf_remove_key(keys.get(), key);
    }
    for (const RopeFactors & factors : kRopeFactors) {
        config.rope.*factors.values =
            find_floats(keys.get(), factors_key(factors), "the run's model");
        gguf_remove_key(keys.get(), factors_key(factors).c_str());
    }
    check_config(config, "the run's model");
    ModelFile model = empty_model(config);
    model.keys      = std::move(keys);
    return model;
}

// All hosts prepare pictures as the first one does. Returns false if ours were described differently.
static bool take_pictures(ModelConfig & config, const ModelConfig & run) {
    const auto fields = [](ModelConfig & c) {
        return std::tie(c.class_names, c.image_mean, c.image_std, c.image_crop, c.image_stored);
    };
    ModelConfig theirs = run;
    const bool  same   = fields(config) == fields(theirs);
    fields(config)     = fields(theirs);
    return same;
}

bool Session::offer(ModelFile & model) {
    if (alone()) {
        return true;
    }
    offer_model(meeting_->store(), meeting_->keys(), host_, description(model));
    const auto bytes = fetch_model(meeting_->store(), meeting_->keys(), std::chrono::minutes(1));
    if (!bytes) {
        throw Error("the model's description can't be read from the store; run the command again");
    }
    return take_pictures(model.config, described_model(*bytes).config);
}

RunModel Session::model(const std::string & path, const LoraConfig & lora) {
    if (lora.enabled()) {
        if (path.empty()) {
            throw Error(
                "--lora needs the file of the model that the adapter is for (-m): hosts pass "
                "on the adapter alone"
            );
        }
        return {.file = load_for_adapter(path, lora), .fresh = true};
    }
    if (alone() || std::filesystem::exists(path)) {
        RunModel model{.file = load_model(path), .fresh = true};
        if (model.file.config.lora.enabled()) {
            throw Error(path + " is an adapter; name the model that it is for, and --lora RANK");
        }
        const auto bytes =
            alone() ? std::nullopt : fetch_model(meeting_->store(), meeting_->keys(), {});
        if (bytes) {
            take_pictures(model.file.config, described_model(*bytes).config);
        }
        return model;
    }
    std::printf(
        "%sfetching the model from the run\n", path.empty() ? "" : (path + " not found: ").c_str()
    );
    const auto bytes = fetch_model(meeting_->store(), meeting_->keys(), std::chrono::minutes(10));
    if (!bytes) {
        throw Error("the run has no model yet: start it on a machine that has the file, with -m");
    }
    RunModel model{.file = described_model(*bytes), .fresh = false};
    if (model.file.config.lora.enabled()) {
        throw Error(format(
            "the run trains an adapter: add -m with the file of its model, and --lora %lld",
            static_cast<long long>(model.file.config.lora.rank)
        ));
    }
    return model;
}

// Settings that are not flags and must be equal on all hosts.
static Settings identity(const ModelFile & model) {
    uint64_t weights = 0;
    for (const ModelTensor & tensor : model.tensors) {
        const auto data = reinterpret_cast<const uint8_t *>(tensor.data.data());
        weights         = digest64({data, tensor.data.size() * sizeof(float)}, weights);
    }
    const auto text = [](uint64_t digest) {
        return format("%016llx", static_cast<unsigned long long>(digest));
    };
    const BaseWeights * base = model.config.lora.base.get();
    return {
        {"weights-digest", text(weights)},
        {"base-digest", text(base ? base->digest() : 0)},
        {"tokenizer-digest", text(tokenizer_digest(model.keys.get()))},
        {"protocol", std::to_string(kProtocol)},
        {"arithmetic", text(fixed_run_digest())}};
}

// fresh: we have the model's file; its weights must be the run's initial ones.
static void check_identity(const Settings & ours, const Settings & run, bool fresh) {
    const auto differs = [&](const char * name) {
        const auto its = run.find(name);
        return its == run.end() || its->second != ours.at(name);
    };
    if (differs("protocol") || differs("arithmetic")) {
        throw Error(
            std::string("this machine's ggml-train ") + kVersion +
            (differs("protocol") ? " uses another protocol than the run"
                                 : " computes other bits than the run's hosts do") +
            "; install the version that the run was started with"
        );
    }
    if (differs("tokenizer-digest")) {
        throw Error("the model's tokenizer differs from the run's; copy the file from the machine "
                    "that started the run, or remove it: then the model is fetched from the run");
    }
    if (differs("base-digest")) {
        throw Error(
            "the model that the adapter is for differs from the run's (other weights or another "
            "quantization, or --lora is missing); copy the file from the machine that started "
            "the run"
        );
    }
    if (fresh && differs("weights-digest")) {
        throw Error(
            "the model's weights differ from the run's initial ones; copy the file from the "
            "machine that started the run, or remove it: then the model is fetched from the "
            "run"
        );
    }
}

Flags::Values
Session::agree(const Flags & given, const Flags::Values & run, const RunModel & model) {
    if (alone()) {
        return {};
    }
    Settings              ours;
    std::set<std::string> fixed;  // on the command line
    for (const auto & [name, value] : run) {
        ours[name] = value;
        if (given.given(name)) {
            fixed.insert(name);
        }
    }
    // settings for a remote sequencer; unset ones fall back to the sequencer's own flags
    if (given.given("min-hosts")) {
        ours["min-hosts"] = std::to_string(flags_.min_hosts);
    }
    if (given.given("checkpoint-every")) {
        ours["checkpoint-every"] = std::to_string(flags_.checkpoint_every);
    }
    if (!model
             .fresh) {  // settings name the initial weights: a host that has them must be the first
        const RunPaths paths(meeting_->keys().run);
        if (!meeting_->store().get(paths.settings(), std::chrono::minutes(10))) {
            throw Error("the run has no settings yet: start it on a machine that has the model");
        }
    }
    const Settings own = identity(model.file);
    ours.insert(own.begin(), own.end());
    const Settings all = agree_settings(meeting_->store(), meeting_->keys(), host_, ours, fixed);
    check_identity(own, all, model.fresh);
    std::printf(
        "agreed   %s, tokenizer, settings and arithmetic\n", model.fresh ? "weights" : "model"
    );
    Flags::Values agreed;
    for (const auto & [name, value] : run) {
        if (const auto found = all.find(name); found != all.end()) {
            agreed.push_back({name, found->second});
        }
    }
    return agreed;
}

std::optional<ShardCodec>
shard_codec(const OptimOptions & optim, const std::vector<ParamView> & params) {
    if (shares_of(optim) == 0) {
        return std::nullopt;
    }
    const auto shares = std::make_shared<const Shares>(optim, params);
    return ShardCodec{
        .n_shards = shares_of(optim),
        .split = [=](std::span<const uint8_t> message, int n) { return shares->split(message, n); },
        .average = [=](std::span<const Message> shards) { return shares->mean(shards); }};
}

Peers & Session::peers(const OptimOptions & optim, const std::vector<ParamView> & params) {
    if (alone()) {
        peers_ = make_self_peers(host_);
        return *peers_;
    }
    StorePeersOptions options;
    options.host    = host_;
    options.log     = [this](const std::string & text) { log_.line(text); };
    options.stop    = Interrupt::asked;
    options.joining = [this] { look_for_hosts(); };
    options.shards  = shard_codec(optim, params);
    options.ahead =
        overlap_of(optim) > 0 && (options.shards || overlap_of(optim) < steps_per_round(optim));
    peers_ = make_peers(*meeting_, options);
    return *peers_;
}

// Hosts that have announced themselves and have not left.
std::set<std::string> Session::present_hosts() {
    std::map<std::string, std::pair<uint64_t, uint64_t>> seen;  // incarnations: hello, leave
    const RunPaths                                       paths(meeting_->keys().run);
    for (const std::string & key : meeting_->store().list(paths.presences())) {
        const auto presence = paths.parse_presence(key);
        if (presence && (presence->is_start() || presence->kind == PresenceKey::Kind::removed)) {
            auto & [hello, leave] = seen[presence->host];
            uint64_t & newest     = presence->kind == PresenceKey::Kind::hello ? hello : leave;
            newest                = std::max(newest, presence->incarnation);
            if (presence->kind == PresenceKey::Kind::removed) {
                leave = std::numeric_limits<uint64_t>::max();
            }
        }
    }
    std::set<std::string> present;
    for (const auto & [host, incarnations] : seen) {
        if (incarnations.first > incarnations.second) {
            present.insert(host);
        }
    }
    return present;
}

// "1 of 2 hosts; missing: ben"; empty: enough are there.
std::string Session::missing_hosts() {
    const std::set<std::string> seen     = present_hosts();
    const auto                  settings = read_settings(meeting_->store(), meeting_->keys());
    size_t                      n_needed = static_cast<size_t>(flags_.min_hosts);
    if (settings && settings->contains("min-hosts")) {
        n_needed = static_cast<size_t>(std::atoll(settings->at("min-hosts").c_str()));
    }
    if (seen.size() >= n_needed) {
        return "";
    }
    std::string names;
    for (const HostEntry & host : hosts_.hosts) {
        if (!seen.contains(host.name)) {
            names += (names.empty() ? "; missing: " : ", ") + host.name;
        }
    }
    return format("%zu of %zu hosts", seen.size(), n_needed) + names;
}

void Session::look_for_hosts() {
    constexpr auto kEach = std::chrono::seconds(2);
    const auto     now   = std::chrono::steady_clock::now();
    if (!missing_ || now - looked_ < kEach) {
        return;
    }
    looked_ = now;
    try {
        const std::string text = missing_hosts();
        if (text != missing_text_) {
            missing_text_ = text;
            missing_(text.empty() ? "all hosts are there" : text);
        }
    } catch (const StoreError &) {
        // join retries, and tells
    }
}

std::string
Session::cost(const OptimOptions & optim, const ModelConfig & config, double compute_s) {
    std::set<std::string> present;
    try {
        present = present_hosts();
    } catch (const StoreError &) {
        for (const HostEntry & host : hosts_.hosts) {
            present.insert(host.name);
        }
    }
    present.insert(host_);
    const Hosts  run      = hosts_there(hosts_, present);
    const Cost   cost     = estimate(optim, param_shapes(tensor_specs(config)), run, compute_s);
    const double n_others = static_cast<double>(run.hosts.size() - 1);
    const bool   is_hub   = meeting_->hub_traffic().has_value();
    return format(
        "%s %s; with %s %.1f GB up and %.1f GB down per day%s",
        bytes_text(static_cast<uint64_t>(cost.round_bytes)).c_str(),
        cost.every == 1
            ? "per step"
            : format("every %llu steps", static_cast<unsigned long long>(cost.every)).c_str(),
        plural(static_cast<int64_t>(run.hosts.size()), "host").c_str(),
        is_hub ? n_others * cost.down_gb_day : cost.up_gb_day,
        is_hub ? n_others * cost.up_gb_day : cost.down_gb_day,
        is_hub ? ", for the hub on this machine" : ""
    );
}

HubTraffic Session::traffic(const RoundInfo & info) const {
    const auto hub = alone() ? std::nullopt : meeting_->hub_traffic();
    return hub ? *hub : HubTraffic{info.up_bytes, info.down_bytes};
}

void Session::finish() {
    peers_.reset();
    if (meeting_) {
        meeting_->finish();
    }
}

}  // namespace gt
