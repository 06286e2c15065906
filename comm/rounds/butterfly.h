// comm/rounds/butterfly.h — exchanges through the store in which every host averages a share of all messages.
//
// A round has two commits. The first lists the inputs: each host has put its message, cut in shards.
// Shard j is then averaged by one of the listed hosts, in commit order, and put again; the second
// commit lists these outputs, and all hosts apply them. If an averager is gone, its shards are
// assigned to another one, commit by commit, until all are there. So each host uploads its message
// once and one share of the result, independent of the number of hosts, and a host that joins later
// needs the outputs only.
//
// A listed message counts whole: who can't fetch a shard of it leaves the output to the next averager, and if that
// can't either, hosts put their shards again. Only if the shard stays away, with its sender and the store's copy
// gone, is the mean that of the others.
//
//   body of an input:   u16 n_shards | n_shards times: u64 size | digest
//   body of an output:  u64 index of the inputs | u16 n_shards | u16 n | n times:
//                       u16 shard | u64 size | digest           (size and digest: before sealing)
#pragma once

#include "comm/rounds/round-client.h"

namespace gt {

// Operations on messages, since comm knows no tensors. They must give the same result on every host.
struct ShardCodec {
    int                                                                        n_shards = 0;
    std::function<std::vector<Bytes>(std::span<const uint8_t> message, int n)> split;
    // The same shard of several hosts, in commit order, but for malformed ones. Nothing: all are.
    std::function<std::optional<Bytes>(std::span<const Message> shards)> average;
};

// Keys of the shards that a message of Phase::outputs lists.
std::vector<std::string>
output_keys(const RunPaths & paths, const MessageId & id, std::span<const uint8_t> body);

class Butterfly {
public:
    Butterfly(
        Store &             store,
        const RunKeys &     keys,
        RoundClient &       client,
        const std::string & host,
        const ShardCodec &  codec,
        RoundClient::Upload upload,
        Millis              fetch_timeout  // for one shard
    );

    void publish(uint64_t step, uint64_t weight, std::span<const uint8_t> message);

    // Takes the next commit, of any phase, and averages our share. Returns the round when all its
    // outputs are there: they are its messages, in order. Blocks while it fetches shards.
    [[nodiscard]] std::optional<OpenedRound> take(OpenedRound opened);

    // Gives up the exchange before a join. Sets in `out` whether our input was listed.
    void abandon(OpenedRound & out);
    void reset() {
        work_.reset();
        shards_.clear();
    }

    // Puts our shards again: the store has lost them.
    void put_back();

private:
    struct Shard {
        std::string host;
        uint64_t    incarnation = 0;
        uint64_t    size        = 0;
        Key32       digest{};
        uint64_t    weight = 1;
    };
    struct Work {
        OpenedRound inputs;  // the first commit, and whether it lists our message
        std::vector<std::vector<Shard>> shards;  // by host in commit order, then by shard
        std::map<int, Shard>            outputs;
        std::map<int, Shard>            ours;  // outputs that we have put
        std::vector<std::string>        averagers;
        int n_tries;  // commits of outputs that left some missing; clang 14 takes no initializer here
    };

    void                 begin(OpenedRound opened);
    void                 take_outputs(const OpenedRound & opened);
    void                 put_missing_again(uint64_t index);
    void                 average_our_share(uint64_t index);
    std::optional<Bytes> average(int number);
    struct Wanted {
        uint64_t      index  = 0;
        const Shard * shard  = nullptr;
        int           number = 0;
    };
    const Bytes *        own(uint64_t index, const std::string & key) const;
    std::optional<Bytes> get(uint64_t index, const Shard & shard, int number, Time give_up);
    std::vector<std::optional<Bytes>> get_all(const std::vector<Wanted> & wanted);
    void put(uint64_t index, uint64_t needed_until, int number, std::span<const uint8_t> bytes);
    OpenedRound finish(const OpenedRound & opened);

    Store &             store_;
    RunKeys             keys_;
    RoundClient &       client_;
    std::string         host_;
    ShardCodec          codec_;
    RoundClient::Upload upload_;
    Millis              fetch_timeout_;
    RunPaths            paths_;
    std::optional<Work> work_;

    // what we have put for the current exchange, by the index of its inputs
    std::map<uint64_t, std::map<std::string, Bytes>> shards_;
};

}  // namespace gt
