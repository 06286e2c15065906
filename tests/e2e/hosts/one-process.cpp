// one-process — the rounds of a finished run once more, all hosts in this process and no network:
// the same data, hosts and order of messages, the real trainer and optimizer. Compares the weights.
//
//   one-process HOSTS.TXT STORE MODEL TEXT STEPS BATCH REPLICATOR EVERY OVERLAP SHARES TRAINED
//
// STORE: folder of the run's hub, or its shared folder; TRAINED: the model that the run has made. The
// commits say who took part: all hosts in every round, for the residual of one that was left out can't
// be told from here. tests/e2e/hosts/four-hosts.py runs it.
#include "comm/meet.h"
#include "comm/sequencer/commit-log.h"
#include "models/text/prepare.h"
#include "models/text/text-data.h"
#include "tools/train/rank.h"
#include "tools/train/session.h"
#include "tools/train/settle.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

using namespace gt;

namespace {

// Where the hosts of this process meet: a round is there when everybody has given its message.
class Table {
public:
    explicit Table(std::vector<std::string> order) : order_(std::move(order)) {}

    void put(uint64_t round, Message message) {
        const std::lock_guard lock(mutex_);
        const std::string     host = message.host;
        rounds_[round][host]       = std::move(message);
        changed_.notify_all();
    }
    std::vector<Message> get(uint64_t round) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return rounds_[round].size() == order_.size(); });
        std::vector<Message> messages;
        for (const std::string & host : order_) {
            messages.push_back(rounds_[round].at(host));
        }
        return messages;
    }

private:
    std::vector<std::string>                           order_;  // of the commits
    std::mutex                                         mutex_;
    std::condition_variable                            changed_;
    std::map<uint64_t, std::map<std::string, Message>> rounds_;
};

class TablePeers : public Peers {
public:
    TablePeers(Table & table, const std::string & host, std::optional<ShardCodec> codec)
        : table_(table), host_(host), codec_(std::move(codec)) {}

    Joined               join(std::span<const uint8_t>, bool) override { return {}; }
    std::optional<Bytes> slice(int) override { return std::nullopt; }
    Bytes                mark() override { return {}; }
    void                 publish(uint64_t step, uint64_t n_samples, Bytes message) override {
        table_.put(step, {host_, n_samples, std::move(message)});
    }
    std::optional<Collected> missed(bool) override { return std::nullopt; }
    Collected                collect(uint64_t step) override {
        Collected out;
        out.round.step = out.round.mine = step;
        out.round.has_mine              = true;
        out.round.messages              = table_.get(step);
        if (codec_) {
                           out.round = in_shares(std::move(out.round));
        }
        return out;
    }
    void pause() override {}
    void applied(Applied) override {}

private:
    // As one averager would compute all shares.
    Round in_shares(Round round) const {
        std::vector<Message> means;
        for (int i = 0; i < codec_->n_shards; ++i) {
            std::vector<Message> shares;
            for (const Message & one : round.messages) {
                auto of_host = codec_->split(one.bytes, codec_->n_shards);
                shares.push_back({one.host, one.weight, std::move(of_host[i])});
            }
            means.push_back({.bytes = codec_->average(shares).value()});
        }
        round.messages  = std::move(means);
        round.in_shares = true;
        return round;
    }

    Table &                   table_;
    std::string               host_;
    std::optional<ShardCodec> codec_;
};

// The hosts of all rounds, in the order in which their messages were applied.
std::vector<std::string> hosts_of(const std::string & nodes, const std::string & folder) {
    const Hosts              hosts = read_hosts(nodes);
    const auto               store = make_file_store(folder);
    std::vector<std::string> order;
    for (const ChainEntry & entry : CommitLog(*store, hosts.keys).load()) {
        std::vector<std::string> listed;
        for (const CommitMessage & message : entry.commit.messages) {
            listed.push_back(message.host);
        }
        if (listed.empty()) {
            continue;  // begins the run, or lists its last checkpoint
        }
        if (!order.empty() && order != listed) {
            throw Error("a host was left out of a round; run the hub with --quorum 100");
        }
        order = listed;
    }
    return order;
}

// True: the host's weights are those of `trained`, bit for bit.
bool is_same(const HostState & state, const ModelFile & trained) {
    size_t n_same = 0;
    for (const HostTensor & weight : state.weights) {
        const auto   values = weight.pieces[0].copies[0].values;  // one rank, on the CPU
        const auto & theirs = trained.at(weight.name).data;
        const bool   same   = values.size() == theirs.size() &&
                          std::memcmp(values.data(), theirs.data(), values.size_bytes()) == 0;
        n_same += same ? 1 : 0;
        if (!same) {
            std::printf("%s differs\n", weight.name.c_str());
        }
    }
    return n_same == trained.tensors.size();
}

bool train_host(
    const RunPlan &     plan,
    const ModelFile &   model,
    const TokenData &   tokens,
    const Tokenizer &   tokenizer,
    Table &             table,
    const std::string & host,
    const ModelFile &   trained
) {
    TextData data(
        tokens, tokenizer,
        {.seed = plan.seed, .host = host, .T = plan.T, .n_val = plan.eval_batches * plan.batch}
    );
    bool same = false;
    run_ranks(1, [&](LocalGroup & alone) {
        TablePeers peers(
            table, host, shard_codec(plan.optim, param_shapes(tensor_specs(model.config)))
        );
        TrainRank rank(plan, model, data, alone, peers);
        rank.trainer().join({}, true);
        while (rank.trainer().step() < static_cast<uint64_t>(plan.steps)) {
            (void) rank.trainer().train();
        }
        StepResult rest;
        rank.trainer().drain(rest);
        same = is_same(rank.state(), trained);
    });
    return same;
}

int run(char ** argv) {
    const std::vector<std::string> hosts = hosts_of(argv[1], argv[2]);
    const RunModel                 model{.file = load_model(argv[3])};
    const Tokenizer                tokenizer(model.file.keys.get(), argv[3]);
    PrepareOptions                 prepare;
    prepare.inputs  = {argv[4]};
    prepare.threads = 1;
    const TokenData tokens(cached_tokens(tokenizer, prepare).path);

    TrainFlags f;
    f.model            = argv[3];
    f.context          = model.file.config.n_ctx;
    f.steps            = std::stoll(argv[5]);
    f.batch            = std::stoll(argv[6]);
    f.optim.replicator = argv[7];
    f.optim.every      = std::stoull(argv[8]);
    f.optim.overlap    = std::stoll(argv[9]);
    f.optim.shares     = std::stoll(argv[10]);
    f.threads          = 1;
    f.compute          = chosen_compute(f);
    Flags none;
    f.visit_run(none);  // make_plan asks which flags were given
    f.visit_session(none);
    const RunInput in{
        .model        = &model,
        .T            = f.context,
        .n_samples    = static_cast<int64_t>(tokens.info().n_train),
        .n_per_sample = f.context,
        .alone        = false};
    const RunPlan plan = make_plan(choose_defaults(f, in), none, in, {});

    const ModelFile          trained = load_model(argv[11]);
    std::atomic<size_t>      n_same  = 0;
    Table                    table(hosts);
    std::vector<std::thread> threads;
    for (const std::string & host : hosts) {
        threads.emplace_back([&, host] {
            n_same += train_host(plan, model.file, tokens, tokenizer, table, host, trained) ? 1 : 0;
        });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    std::printf(
        "%zu of %zu hosts have the same weights in one process\n", n_same.load(), hosts.size()
    );
    return n_same == hosts.size() ? 0 : 1;
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 12) {
        std::fprintf(stderr, "see the head of tests/e2e/hosts/one-process.cpp\n");
        return 2;
    }
    return run_tool("one-process", [&] { return run(argv); });
}
