// one-process — the rounds of a finished run once more, all hosts in this process and no network:
// the same data, hosts and order of messages, the real trainer and optimizer. Compares the weights.
//
//   one-process HOSTS.TXT STORE MODEL TEXT STEPS BATCH REPLICATOR EVERY TRAINED
//
// STORE: folder of the run's hub, or its shared folder; TRAINED: the model that the run has made. The
// commits say who took part: all hosts in every round, for the residual of one that was left out can't
// be told from here. Of dense rounds (diloco, full), which hosts average in shares, the messages are
// merged whole. tests/four-hosts.py runs it.
#include "comm/comm.h"
#include "comm/commit-log.h"
#include "models/prepare.h"
#include "tools/train-rank.h"

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

class TablePeers : public RunPeers {
public:
    TablePeers(Table & table, const std::string & host) : table_(table), host_(host) {}

    const std::string & host() const override { return host_; }
    void                publish(uint64_t round, uint64_t weight, Bytes message) override {
        sends_ = !message.empty();
        if (sends_) {
                           table_.put(round, {host_, weight, std::move(message)});
        }
    }
    Round collect(uint64_t round) override {
        Round out;
        out.round = out.mine = round;
        out.has_mine         = true;
        if (sends_) {
            out.messages = table_.get(round);
        }
        return out;
    }
    Joined   join(std::span<const uint8_t>, bool) override { return {}; }
    uint64_t n_behind() override { return 0; }
    Bytes    mark() override { return {}; }
    void     report(const StepReport &) override {}
    void     put_part(uint64_t, int, Bytes) override {}

private:
    Table &     table_;
    std::string host_;
    bool        sends_ = false;  // in this step
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
    const TrainFlags &  f,
    const TrainTask &   task,
    Table &             table,
    const std::string & host,
    const ModelFile &   trained
) {
    bool same = false;
    run_ranks(1, [&](LocalGroup & alone) {
        TablePeers peers(table, host);
        TrainRank  rank(f, task, alone, peers);
        rank.trainer().join({}, true);
        while (rank.trainer().step() < static_cast<uint64_t>(f.steps)) {
            (void) rank.trainer().train();
        }
        same = is_same(rank.state(), trained);
    });
    return same;
}

int run(char ** argv) {
    const std::vector<std::string> hosts = hosts_of(argv[1], argv[2]);
    TrainFlags                     f;
    f.model            = argv[3];
    f.steps            = std::stoll(argv[5]);
    f.batch            = std::stoll(argv[6]);
    f.micro            = std::max<int64_t>(1, f.batch / 8);  // as settle has it with other hosts
    f.optim.replicator = argv[7];
    f.optim.every      = std::stoull(argv[8]);
    f.threads          = 1;
    TrainTask task;
    task.model = load_model(f.model);
    const Tokenizer tokenizer(task.model.keys.get(), f.model);
    PrepareOptions  prepare;
    prepare.inputs  = {argv[4]};
    prepare.threads = 1;
    const TokenData data(cached_tokens(tokenizer, prepare));
    task.T = task.n_per_sample = f.context = task.model.config.n_ctx;
    task.train = [&](uint64_t step, const std::string & host, int64_t begin, int64_t end) {
        return data.train(f.seed, step, host, begin, end, task.T);
    };
    choose_defaults(f, task.model.config, task.T, static_cast<int64_t>(data.info().n_train));
    Flags none("", "", "");
    f.visit_session(none);  // settle asks which of them were given
    Together alone{NodesFlags{}};
    settle(f, none, task, alone);

    const ModelFile          trained = load_model(argv[9]);
    std::atomic<size_t>      n_same  = 0;
    Table                    table(hosts);
    std::vector<std::thread> threads;
    for (const std::string & host : hosts) {
        threads.emplace_back([&, host] {
            n_same += train_host(f, task, table, host, trained) ? 1 : 0;
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
    if (argc != 10) {
        std::fprintf(stderr, "see the head of tests/one-process.cpp\n");
        return 2;
    }
    int       code   = 0;
    const int failed = run_tool("one-process", [&] { code = run(argv); });
    return failed ? failed : code;
}
