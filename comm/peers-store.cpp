// comm/peers-store.cpp — waits, and tries again, around RoundClient.
#include "comm/peers-store.h"

#include "comm/shared-checkpoint.h"

#include <algorithm>

namespace gt {

static Time now() {
    return std::chrono::steady_clock::now();
}

StorePeers::StorePeers(Store & store, const RunKeys & keys, const StorePeersOptions & options)
    : store_(store), keys_(keys), options_(options),
      client_(
          store_,
          keys_,
          {.host       = options.host,
           .lost_after = options.lost_after,
           .n_fetch    = options.n_fetch,
           .observe    = options.observe},
          [this](const std::string & key, Bytes value, uint64_t index) {
              const auto shared = std::make_shared<Bytes>(std::move(value));
              messages_.push({[this, key, shared] { store_.put(key, *shared); }, index});
          }
      ) {
    if (options_.dense) {
        butterfly_.emplace(
            store_, keys_, client_, options_.host, *options_.dense,
            [this](const std::string & key, Bytes value, uint64_t index) {
                const auto shared = std::make_shared<Bytes>(std::move(value));
                messages_.push({[this, key, shared] { store_.put(key, *shared); }, index});
            },
            options_.lost_after
        );
    }
}

StorePeers::~StorePeers() {
    try {
        messages_.drain(options_.drain / 4);
        parts_.drain(options_.drain);
        client_.leave();
    } catch (const Error &) {
        // the others will notice by our silence
    }
}

void StorePeers::wait_or_give_up(Time since, const std::string & for_what, Millis pause) {
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now() - since);
    if (now() - since > options_.patience) {
        throw Error(
            format(
                "nothing was heard for %lld s while waiting ",
                static_cast<long long>(waited.count())
            ) +
            for_what + "; is the hub (or the first host) running and reachable?"
        );
    }
    const auto n_said = static_cast<uint64_t>(waited.count() / 30);
    if (n_said > n_said_ && options_.say) {
        options_.say(format(
            "waiting %s, for %lld s so far", for_what.c_str(),
            static_cast<long long>(waited.count())
        ));
    }
    n_said_ = n_said;
    std::this_thread::sleep_for(pause);
}

Joined StorePeers::join(std::span<const uint8_t> mark, bool fresh) {
    const Time                        since = now();
    std::optional<RoundClient::Start> start;
    while (!start) {
        try {
            start = client_.try_join(mark, fresh, now());
        } catch (const StoreError &) {
            // try again
        }
        if (!start) {
            wait_or_give_up(since, "to join the run", Millis(100));
        }
    }
    if (butterfly_) {
        butterfly_->reset();
    }
    empty_.clear();
    Joined out;
    out.step          = start->step + 1;  // kNone + 1 = 0
    out.in_flight     = client_.steps_in_flight();
    out.write_parts   = {};
    out.n_write_parts = static_cast<int>(start->writers.size());
    for (int i = 0; i < out.n_write_parts; ++i) {
        if (start->writers[static_cast<size_t>(i)] == options_.host) {
            out.write_parts.push_back(i);
        }
    }
    orders_[kNone] = 0;
    if (start->checkpoint) {
        out.n_parts    = static_cast<int>(start->checkpoint->parts.size());
        out.fetch_part = [this, list = *start->checkpoint](int part) {
            for (const Time begin = now();;) {
                try {
                    return read_part(store_, keys_, list, part);
                } catch (const StoreError & error) {
                    if (now() - begin > options_.patience) {
                        throw Error(error.what());
                    }
                    std::this_thread::sleep_for(Millis(500));
                }
            }
        };
    }
    return out;
}

uint64_t StorePeers::n_behind() {
    const Time since = now();
    while (true) {
        try {
            const uint64_t n = client_.n_behind(now());
            messages_.closed(client_.newest());
            return n;
        } catch (const StoreError &) {
            wait_or_give_up(since, "for the store", Millis(200));
        }
    }
}

void StorePeers::publish(uint64_t round, uint64_t weight, Bytes message) {
    if (message.empty()) {
        empty_.push_back(round);
    } else if (butterfly_) {
        butterfly_->publish(round, weight, message);
    } else {
        client_.publish(round, 0, weight, message);
    }
}

OpenedRound StorePeers::next() {
    const Time since = now();
    while (true) {
        bool is_bad = false;
        try {
            if (auto opened = client_.try_next(options_.poll, now())) {
                messages_.closed(client_.index());
                return std::move(*opened);
            }
        } catch (const StoreError &) {
            is_bad = true;
        }
        messages_.closed(client_.newest());
        const bool is_stuck = client_.newest() > client_.index();  // a listed message is missing
        wait_or_give_up(
            since, format("for round %llu", static_cast<unsigned long long>(client_.index() + 1)),
            is_bad     ? Millis(200)
            : is_stuck ? Millis(50)
                       : Millis(0)
        );
    }
}

Round StorePeers::collect(uint64_t round) {
    if (const auto it = std::find(empty_.begin(), empty_.end(), round); it != empty_.end()) {
        empty_.erase(it);
        Round out;
        out.round    = round;
        out.has_mine = true;
        return out;
    }
    while (true) {
        OpenedRound opened = next();
        if (butterfly_ && opened.fault != Fault::none) {
            butterfly_->abandon(opened);
        }
        if (!butterfly_ || opened.fault != Fault::none || opened.is_settled_only) {
            return to_round(std::move(opened));
        }
        if (auto whole = butterfly_->take(std::move(opened))) {
            return to_round(std::move(*whole));
        }
    }
}

Round StorePeers::to_round(OpenedRound opened) {
    const Commit & commit = opened.commit;
    Round          out;
    out.round         = commit.step;
    out.has_mine      = opened.has_mine;
    out.mine          = opened.mine;
    out.fault         = opened.fault;
    out.drop_residual = opened.drop_residual;
    if (out.fault != Fault::none || opened.is_settled_only) {
        return out;
    }
    out.messages = std::move(opened.messages);
    out.validate = commit.validator == options_.host;
    out.pace_s   = commit.pace_ms / 1000.0;
    for (const CommitHost & host : commit.hosts) {
        if (commit.message_of(host.name)) {
            out.in.push_back(host.name);
        } else if (host.member && host.since < commit.index) {  // was there before it closed
            out.late.push_back(host.name);
        }
    }
    out.up_bytes   = client_.up_bytes();
    out.down_bytes = client_.down_bytes();
    out.n_parts    = static_cast<int>(commit.writers.size());
    for (int i = 0; i < out.n_parts; ++i) {
        if (commit.writers[static_cast<size_t>(i)] == options_.host) {
            out.write_parts.push_back(i);
        }
    }
    if (out.n_parts > 0) {
        orders_[commit.step] = commit.index;
        while (orders_.size() > 8) {
            orders_.erase(orders_.begin());
        }
    }
    return out;
}

void StorePeers::put_part(uint64_t round, int part, Bytes bytes) {
    const auto order = orders_.find(round);
    GT_CHECK(order != orders_.end(), "parts are given only where Round::write_parts asks for them");
    const PartId   id{order->second, part, options_.host, client_.incarnation()};
    const uint64_t digest = client_.state_index() == id.index ? client_.state_digest() : 0;
    const auto     shared = std::make_shared<Bytes>(std::move(bytes));
    parts_.push({[this, id, digest, shared] { write_part(store_, keys_, id, digest, *shared); }});
}

}  // namespace gt
