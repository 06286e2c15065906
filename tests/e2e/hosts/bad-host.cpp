// bad-host — train-gpt on a host that lies or explodes, in a real run; the flags are those of train-gpt.
//
//   BAD_HOST=lies      claims 2^40 samples for each message and 2^41 bytes for each slice of a checkpoint,
//                      and announces the host ben with the largest incarnation that there is
//   BAD_HOST=explodes  multiplies its gradients by 1e4, every fourth time by 1e30, and does not clip them
//
// CMakeLists.txt makes the linker call replaced_peers and replaced_optimizer instead of make_peers and
// make_optimizer, wherever train-gpt calls those. campaign.py runs it.
#include "comm/meet.h"
#include "comm/sequencer/commit-log.h"
#include "comm/wire/wire.h"
#include "optim/optim.h"
#include "tools/cli/flags.h"
#include "tools/verbs.h"

#include <cstdlib>
#include <utility>

namespace gt {

static bool is_bad(const std::string & how) {
    const char * given = std::getenv("BAD_HOST");
    return given && how == given;
}

namespace {

class LyingPeers : public Peers {
public:
    LyingPeers(std::unique_ptr<Peers> honest, Meeting & meeting, std::string host)
        : honest_(std::move(honest)), store_(meeting.store()), keys_(meeting.keys()),
          host_(std::move(host)) {}

    Joined join(std::span<const uint8_t> mark, bool fresh) override {
        return honest_->join(mark, fresh);
    }
    std::optional<Bytes> slice(int i) override { return honest_->slice(i); }
    Bytes                mark() override { return honest_->mark(); }
    void                 publish(uint64_t step, uint64_t, Bytes message) override {
        honest_->publish(step, kMaxWeight, std::move(message));
    }
    std::optional<Collected> missed(bool admission) override { return honest_->missed(admission); }
    Collected                collect(uint64_t step) override {
        claim_to_be_ben();
        return honest_->collect(step);
    }
    void pause() override { honest_->pause(); }
    void applied(Applied applied) override {
        if (!applied.slices.empty()) {
            claim_slices();
        }
        applied.slices.clear();
        honest_->applied(std::move(applied));
    }

private:
    void claim_to_be_ben() {
        const PresenceKey bens{PresenceKey::Kind::hello, "ben", ~0ull};
        if (!std::exchange(has_claimed_, true)) {
            put(RunPaths(keys_.run).presence(bens),
                make_record(keys_, head_of(bens), new_secret()));
        }
    }
    // Tells that our slices of the checkpoint that is being written are there, with an absurd size.
    void claim_slices() {
        const auto chain = CommitLog(store_, keys_).load();
        for (const ChainEntry & entry : chain) {
            const Commit & commit = entry.commit;
            for (size_t i = 0; i < commit.writers.size(); ++i) {
                if (commit.writers[i] == host_) {
                    claim(commit.index, i, commit.find(host_)->incarnation);
                }
            }
        }
    }
    void claim(uint64_t index, size_t slice, uint64_t incarnation) {
        WireWriter body;
        body.u32(slice);
        body.u64(0);
        body.u64(2 * kMaxSize);
        body.u32(1);
        body.raw(Key32{});
        const RecordHead head{Kind::ready, index, host_, incarnation};
        put(RunPaths(keys_.run).ready({index, host_, incarnation}, static_cast<int>(slice)),
            make_record(keys_, head, body.bytes()));
    }
    void put(const std::string & key, const Bytes & value) {
        try {
            store_.put(key, value);
        } catch (const StoreError &) {
            // refused
        }
    }

    std::unique_ptr<Peers> honest_;
    Store &                store_;
    const RunKeys &        keys_;
    std::string            host_;
    bool                   has_claimed_ = false;
};

class ExplodingOptimizer : public Optimizer {
public:
    ExplodingOptimizer(std::unique_ptr<Optimizer> honest, std::vector<ParamView> params)
        : honest_(std::move(honest)), params_(std::move(params)) {}

    Prepared prepare(uint64_t step, float lr, const Clip & clip) override {
        for (const ParamView & param : params_) {
            for (float & x : param.grad) {
                x *= step % 4 == 3 ? 1e30f : 1e4f;
            }
        }
        return honest_->prepare(step, lr, {0.0f, clip.loss_scale});
    }
    void           apply(const Round & round) override { honest_->apply(round); }
    void           take_back(uint64_t step) override { honest_->take_back(step); }
    void           drop_residual() override { honest_->drop_residual(); }
    OptimizerState state() override { return honest_->state(); }
    void           swap_average() override { honest_->swap_average(); }

private:
    std::unique_ptr<Optimizer> honest_;
    std::vector<ParamView>     params_;
};

}  // namespace

// The linker's names of the functions that train-gpt calls, and of ours in their place.
std::unique_ptr<Peers> honest_peers(Meeting & meeting, const StorePeersOptions & options) asm(
    "__real__ZN2gt10make_peersERNS_7MeetingERKNS_17StorePeersOptionsE"
);
std::unique_ptr<Peers> replaced_peers(Meeting & meeting, const StorePeersOptions & options) asm(
    "__wrap__ZN2gt10make_peersERNS_7MeetingERKNS_17StorePeersOptionsE"
);
std::unique_ptr<Optimizer> honest_optimizer(
    const OptimOptions &   options,
    std::vector<ParamView> params,
    Workers &              workers,
    LocalGroup *           ranks,
    DctMomentum *          momentum
) asm("__real__ZN2gt14make_optimizerERKNS_12OptimOptionsESt6vectorINS_9ParamViewESaIS4_EERNS_"
      "7WorkersEPNS_10LocalGroupEPNS_11DctMomentumE");
std::unique_ptr<Optimizer> replaced_optimizer(
    const OptimOptions &   options,
    std::vector<ParamView> params,
    Workers &              workers,
    LocalGroup *           ranks,
    DctMomentum *          momentum
) asm("__wrap__ZN2gt14make_optimizerERKNS_12OptimOptionsESt6vectorINS_9ParamViewESaIS4_EERNS_"
      "7WorkersEPNS_10LocalGroupEPNS_11DctMomentumE");

std::unique_ptr<Peers> replaced_peers(Meeting & meeting, const StorePeersOptions & options) {
    auto honest = honest_peers(meeting, options);
    return is_bad("lies") ? std::make_unique<LyingPeers>(std::move(honest), meeting, options.host)
                          : std::move(honest);
}

std::unique_ptr<Optimizer> replaced_optimizer(
    const OptimOptions &   options,
    std::vector<ParamView> params,
    Workers &              workers,
    LocalGroup *           ranks,
    DctMomentum *          momentum
) {
    auto       honest        = honest_optimizer(options, params, workers, ranks, momentum);
    const bool is_train_step = ranks != nullptr;  // else the run whose digest hosts compare
    return is_train_step && is_bad("explodes")
               ? std::make_unique<ExplodingOptimizer>(std::move(honest), params)
               : std::move(honest);
}

}  // namespace gt

int main(int argc, char ** argv) {
    return gt::run_tool("bad-host", [&] {
        gt::Flags flags("bad-host", "trains a GPT on a host that lies or explodes", "[flags]");
        return gt::train_gpt_main(flags, argc, argv);
    });
}
