// comm/butterfly.h — dense exchanges (diloco, full) through the store: everybody averages a part.
//
// A round has two commits. The first lists the inputs: each host has put its message, cut in shards.
// Shard j is then averaged by one of the listed hosts, in commit order, and put again; the second
// commit lists these outputs, and all hosts join them. A shard whose averager is gone is given to
// another one, commit by commit, until all are there. So each host uploads its message once and one
// share of the result, whatever the number of hosts, and who joins later replays the outputs only.
//
//   body of an input:   u16 n_shards | n_shards times: u64 size | digest
//   body of an output:  u64 index of the inputs | u16 n_shards | u16 n | n times:
//                       u16 shard | u64 size | digest           (size and digest: not sealed)
#pragma once

#include "comm/round-client.h"

namespace gt {

// What to do with the bytes: comm/ knows no tensors. All must be the same on every host. Nothing is
// returned for what is malformed; one bad shard among several is found by averaging each alone.
struct DenseCodec {
    int n_shards = 0;
    std::function<std::vector<Bytes>(uint64_t step, std::span<const uint8_t> message, int n_shards)>
        split;
    // The same shard of several hosts, in commit order.
    std::function<std::optional<Bytes>(std::span<const Message> shards)> average;
    // n_shards averages: one message.
    std::function<std::optional<Bytes>(std::span<const Bytes> shards)> join;
};

// Message = 32-bit floats: shards are ranges, the average is weighted and summed in commit order.
DenseCodec make_float_codec(int n_shards = 16);

// The shards of which a message of phase 2 tells, as its sender has put them.
std::vector<std::string>
output_keys(const RunPaths & paths, const MessageId & id, std::span<const uint8_t> body);

class Butterfly {
public:
    Butterfly(
        Store &             store,
        const RunKeys &     keys,
        RoundClient &       client,
        const std::string & host,
        const DenseCodec &  codec,
        RoundClient::Upload upload,
        Millis              patience  // for a shard that can't be fetched
    );

    void publish(uint64_t step, uint64_t weight, std::span<const uint8_t> message);

    // Takes the next commit, of whichever phase, and does our share of the work. Returns the round
    // once it is whole; blocks while it fetches shards.
    [[nodiscard]] std::optional<OpenedRound> take(OpenedRound opened);

    // The exchange can't be finished: a join starts over. `out` then tells of our input.
    void abandon(OpenedRound & out);
    void reset() { work_.reset(); }

private:
    struct Shard {
        std::string host;
        uint64_t    incarnation = 0;
        uint64_t    size        = 0;
        Key32       digest{};
        uint64_t    weight = 1;
    };
    struct Work {
        OpenedRound                     inputs;  // its commit and what became of our message
        std::vector<std::vector<Shard>> shards;  // by host in order, then by shard
        std::map<int, Shard>            outputs;
        std::vector<std::string>        averagers;
    };

    void begin(OpenedRound opened);
    void take_outputs(const OpenedRound & opened);
    void do_our_share(uint64_t index);
    struct Wanted {
        uint64_t      index  = 0;
        const Shard * shard  = nullptr;
        int           number = 0;
    };
    std::optional<Bytes> get(uint64_t index, const Shard & shard, int number, Time give_up);
    std::vector<std::optional<Bytes>> get_all(const std::vector<Wanted> & wanted);
    void        put(uint64_t index, uint64_t dies_with, int number, std::span<const uint8_t> bytes);
    OpenedRound finish(const OpenedRound & opened);

    Store &             store_;
    RunKeys             keys_;
    RoundClient &       client_;
    std::string         host_;
    DenseCodec          codec_;
    RoundClient::Upload upload_;
    Millis              patience_;
    RunPaths            paths_;
    std::optional<Work> work_;
};

}  // namespace gt
