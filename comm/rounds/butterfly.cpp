// comm/rounds/butterfly.cpp — inputs committed, shards averaged, outputs committed.
#include "comm/rounds/butterfly.h"

#include "comm/wire/wire.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace gt {

constexpr size_t kMaxShards    = 4096;
constexpr int    kFetchThreads = 8;
constexpr int    kPatience     = 3;  // commits without an output, until it is made of what is there
constexpr Millis kShardPoll{200};    // one long poll for a shard
constexpr Millis kShardPause{50};

Butterfly::Butterfly(
    Store &             store,
    const RunKeys &     keys,
    RoundClient &       client,
    const std::string & host,
    const ShardCodec &  codec,
    RoundClient::Upload upload,
    Millis              fetch_timeout
)
    : store_(store), keys_(keys), client_(client), host_(host), codec_(codec),
      upload_(std::move(upload)), fetch_timeout_(fetch_timeout), paths_(keys.run) {
    GT_CHECK(
        codec_.n_shards > 0 && codec_.n_shards <= static_cast<int>(kMaxShards),
        "n_shards is not from 1 to kMaxShards"
    );
}

std::vector<std::string>
output_keys(const RunPaths & paths, const MessageId & id, std::span<const uint8_t> body) {
    WireReader               in(body);
    const uint64_t           inputs   = in.u64();
    const int                n_shards = in.u16();
    std::vector<std::string> keys;
    for (size_t n = in.u16(); n > 0 && in.ok(); --n) {
        keys.push_back(paths.shard({inputs, id.host, id.incarnation}, n_shards + in.u16()));
        in.u64();  // size
        in.key();
    }
    return in.at_end() ? keys : std::vector<std::string>();
}

static SealContext shard_context(const RunKeys & keys, const MessageId & id, int number) {
    return {
        .run         = keys.run,
        .kind        = "shard",
        .round       = id.index,
        .host        = id.host,
        .incarnation = id.incarnation,
        .part        = static_cast<uint32_t>(number)};
}

// Shards of outputs are numbered after those of inputs.
void Butterfly::put(
    uint64_t index, uint64_t needed_until, int number, std::span<const uint8_t> bytes
) {
    const MessageId   id{index, host_, client_.incarnation()};
    const std::string key = paths_.shard(id, number);
    shards_[index][key] = make_sealed(keys_, Kind::shard, shard_context(keys_, id, number), bytes);
    client_.count(bytes.size() + kSealBytes, 0);
    upload_(key, shards_[index][key], needed_until);
}

void Butterfly::put_back() {
    for (const auto & [index, shards] : shards_) {
        for (const auto & [key, value] : shards) {
            store_.put(key, value);
        }
    }
}

// What we have put ourselves; null: nothing under that key.
const Bytes * Butterfly::own(uint64_t index, const std::string & key) const {
    const auto shards = shards_.find(index);
    if (shards == shards_.end()) {
        return nullptr;
    }
    const auto found = shards->second.find(key);
    return found == shards->second.end() ? nullptr : &found->second;
}

std::optional<Bytes> Butterfly::get(uint64_t index, const Shard & shard, int number, Time give_up) {
    const MessageId   id{index, shard.host, shard.incarnation};
    const std::string key = paths_.shard(id, number);
    while (true) {
        try {
            const Bytes * held = own(index, key);
            auto          text = open_frame(
                         keys_, shard_context(keys_, id, number),
                held ? std::optional(*held) : store_.get(key, kShardPoll)
            );
            if (text && text->size() == shard.size && digest256(*text) == shard.digest) {
                return text;
            }
        } catch (const StoreError &) {
            // retry
        }
        if (std::chrono::steady_clock::now() >= give_up) {
            return std::nullopt;
        }
        std::this_thread::sleep_for(kShardPause);
    }
}

// Fetches several at a time: a single connection does not fill a lossy link.
std::vector<std::optional<Bytes>> Butterfly::get_all(const std::vector<Wanted> & wanted) {
    std::vector<std::optional<Bytes>> out(wanted.size());
    const Time                        give_up = std::chrono::steady_clock::now() + fetch_timeout_;
    std::atomic<size_t>               next{0};
    Workers(kFetchThreads).run([&](int, int) {
        for (size_t i = next++; i < wanted.size(); i = next++) {
            out[i] = get(wanted[i].index, *wanted[i].shard, wanted[i].number, give_up);
        }
    });
    for (size_t i = 0; i < wanted.size(); ++i) {
        client_.count(0, out[i] && wanted[i].shard->host != host_ ? out[i]->size() : 0);
    }
    return out;
}

void Butterfly::publish(uint64_t step, uint64_t weight, std::span<const uint8_t> message) {
    const uint64_t           index  = client_.next_index();
    const std::vector<Bytes> shards = codec_.split(message, codec_.n_shards);
    GT_CHECK(
        static_cast<int>(shards.size()) == codec_.n_shards,
        "split returned another number of shards"
    );
    WireWriter body;
    body.u16(shards.size());
    for (size_t i = 0; i < shards.size(); ++i) {
        put(index, index, static_cast<int>(i), shards[i]);  // before the message that lists them
        body.u64(shards[i].size());
        body.raw(digest256(shards[i]));
    }
    client_.publish(step, Phase::inputs, weight, body.bytes());
}

void Butterfly::begin(OpenedRound opened) {
    work_                = Work{};
    const uint64_t index = opened.commit.index;
    shards_.erase(shards_.begin(), shards_.lower_bound(index));  // all have those of the last one
    for (const Message & message : opened.messages) {
        WireReader         in(message.bytes);
        std::vector<Shard> shards(in.u16() == codec_.n_shards ? codec_.n_shards : 0);
        for (Shard & shard : shards) {
            shard.host        = message.host;
            shard.incarnation = opened.commit.message_of(message.host)->incarnation;
            shard.weight      = message.weight;
            shard.size        = in.u64();
            shard.digest      = in.key();
        }
        if (in.at_end() && !shards.empty()) {
            work_->shards.push_back(std::move(shards));
            work_->averagers.push_back(message.host);
        } else if (message.host == host_) {
            opened.has_mine = false;
        }
    }
    work_->inputs = std::move(opened);
    average_our_share(index);
}

void Butterfly::take_outputs(const OpenedRound & opened) {
    if (!work_) {
        work_ = Work{};  // we joined between inputs and outputs: the outputs are enough
    }
    std::vector<std::string> listed;
    for (const Message & message : opened.messages) {
        listed.push_back(message.host);
        WireReader     in(message.bytes);
        const uint64_t index    = in.u64();
        const int      n_shards = in.u16();
        if (work_->shards.empty() && work_->outputs.empty()) {
            work_->inputs.commit.index = index;
        }
        if (n_shards != codec_.n_shards || index != work_->inputs.commit.index) {
            continue;
        }
        for (size_t n = in.u16(); n > 0 && in.ok(); --n) {
            const int number = in.u16();
            Shard     shard;
            shard.host        = message.host;
            shard.incarnation = opened.commit.message_of(message.host)->incarnation;
            shard.size        = in.u64();
            shard.digest      = in.key();
            if (in.ok() && number < n_shards) {
                work_->outputs.try_emplace(number, shard);  // the first in commit order is valid
            }
        }
    }
    if (!listed.empty()) {
        work_->averagers = listed;
    }
}

// The mean of input shard `number`. Nothing: some can't be fetched, but by others perhaps.
std::optional<Bytes> Butterfly::average(int number) {
    std::vector<Wanted> wanted;
    for (const auto & of_host : work_->shards) {
        wanted.push_back({work_->inputs.commit.index, &of_host[static_cast<size_t>(number)], number}
        );
    }
    std::vector<Message> shards;
    auto                 values = get_all(wanted);
    for (size_t i = 0; i < values.size(); ++i) {
        if (values[i]) {
            const Shard & shard = *wanted[i].shard;
            shards.push_back({shard.host, shard.weight, std::move(*values[i])});
        }
    }
    if (shards.empty() || (shards.size() < values.size() && work_->n_tries < kPatience)) {
        return std::nullopt;
    }
    auto mean = codec_.average(shards);
    return mean ? mean : std::optional(Bytes());  // all bad: an empty mean, so that the round ends
}

// Several averagers have not fetched all inputs: the store may have lost some, so that we put ours again.
void Butterfly::put_missing_again(uint64_t index) {
    const uint64_t  inputs = work_->inputs.commit.index;
    const MessageId id{inputs, host_, client_.incarnation()};
    for (int j = 0; j < codec_.n_shards; ++j) {
        const std::string key   = paths_.shard(id, j);
        const Bytes *     value = work_->outputs.contains(j) ? nullptr : own(inputs, key);
        if (value) {
            upload_(key, *value, index);
        }
    }
}

// Averages the missing shards that are assigned to us, and publishes their digests; an empty list,
// too, because the sequencer waits for every member.
void Butterfly::average_our_share(uint64_t index) {
    if (client_.newest() > index) {
        return;  // we are behind: the round for our outputs is closed
    }
    const uint64_t inputs = work_->inputs.commit.index;
    WireWriter     list;
    size_t         n       = 0;
    uint64_t       n_bytes = 0;
    for (int j = 0; j < codec_.n_shards && !work_->averagers.empty(); ++j) {
        const auto & averager =
            work_->averagers[(static_cast<size_t>(j) + index) % work_->averagers.size()];
        if (work_->outputs.contains(j) || averager != host_ || work_->shards.empty()) {
            continue;
        }
        const auto known = work_->ours.find(j);
        if (known == work_->ours.end() || known->second.incarnation != client_.incarnation()) {
            const auto mean = average(j);
            if (!mean) {
                continue;  // it will be assigned to another host
            }
            // never dropped: if this round closes without us, a later message lists it
            put(inputs, kNone, codec_.n_shards + j, *mean);
            work_->ours[j] = {host_, client_.incarnation(), mean->size(), digest256(*mean)};
        }
        list.u16(static_cast<uint64_t>(j));
        list.u64(work_->ours[j].size);
        list.raw(work_->ours[j].digest);
        n_bytes += work_->ours[j].size;
        ++n;
    }
    WireWriter body;
    body.u64(inputs);
    body.u16(static_cast<uint64_t>(codec_.n_shards));
    body.u16(n);
    body.raw(list.bytes());
    client_.publish(work_->inputs.commit.step, Phase::outputs, 1, body.bytes(), n_bytes);
}

OpenedRound Butterfly::finish(const OpenedRound & opened) {
    std::vector<Wanted> wanted;
    for (const auto & [number, shard] : work_->outputs) {
        wanted.push_back({work_->inputs.commit.index, &shard, codec_.n_shards + number});
    }
    uint64_t weight = 0;
    for (const auto & of_host : work_->shards) {
        weight += of_host[0].weight;
    }
    std::vector<Message> means;
    for (auto & bytes : get_all(wanted)) {
        if (!bytes) {  // the store has lost it: load a later checkpoint
            OpenedRound out = work_->inputs;
            out.fault       = Fault::expired;
            work_.reset();
            return out;
        }
        means.push_back({"", std::max<uint64_t>(weight, 1), std::move(*bytes)});
    }
    OpenedRound out;
    out.messages  = std::move(means);
    out.in_shares = true;
    out.commit    = opened.commit;
    out.commit.hosts =
        work_->inputs.commit.hosts.empty() ? opened.commit.hosts : work_->inputs.commit.hosts;
    out.commit.messages = work_->inputs.commit.messages;
    out.heads           = work_->inputs.heads;
    out.has_mine        = work_->inputs.has_mine;
    out.mine            = work_->inputs.mine;
    out.drop_residual   = opened.drop_residual || work_->inputs.drop_residual;
    work_.reset();
    return out;
}

void Butterfly::abandon(OpenedRound & out) {
    if (work_ && !work_->inputs.has_mine) {
        out.has_mine = false;
        out.mine     = work_->inputs.mine;
    }
    work_.reset();
}

std::optional<OpenedRound> Butterfly::take(OpenedRound opened) {
    const Commit & commit = opened.commit;
    if (commit.phase == Phase::inputs) {
        begin(std::move(opened));
        return std::nullopt;
    }
    if (commit.phase != Phase::outputs && !work_) {
        return opened;  // an empty round between two exchanges
    }
    take_outputs(opened);
    if (static_cast<int>(work_->outputs.size()) == codec_.n_shards) {
        return finish(opened);
    }
    work_->inputs.commit.step = commit.messages.empty() ? work_->inputs.commit.step : commit.step;
    if (++work_->n_tries >= kPatience - 1) {
        put_missing_again(commit.index + 1);
    }
    average_our_share(commit.index);
    return std::nullopt;
}

}  // namespace gt
