// comm/rounds/peers-self.cpp — a host alone: every round holds its own message. The trainer needs no
// special case for it.
#include "comm/rounds/peers-self.h"

#include "comm/wire/wire.h"

#include <deque>

namespace gt {

namespace {

class SelfPeers : public Peers {
public:
    explicit SelfPeers(const std::string & host) : host_(host) {}

    // The mark: u64 next step | messages in flight, each: u64 step | u64 weight | u64 size | bytes
    Joined join(std::span<const uint8_t> mark, bool) override {
        WireReader in(mark);
        Joined     out;
        out.step = next_ = in.u64();
        sent_.clear();
        while (in.ok() && !in.at_end()) {
            Sent sent;
            sent.step           = in.u64();
            sent.message.host   = host_;
            sent.message.weight = in.u64();
            const auto bytes    = in.raw(in.u64());
            sent.message.bytes.assign(bytes.begin(), bytes.end());
            out.in_flight.push_back(sent.step);
            sent_.push_back(std::move(sent));
        }
        return out;
    }
    Bytes mark() override {
        WireWriter out;
        out.u64(next_);
        for (const Sent & sent : sent_) {
            out.u64(sent.step);
            out.u64(sent.message.weight);
            out.u64(sent.message.bytes.size());
            out.raw(sent.message.bytes);
        }
        return out.take();
    }

    void publish(uint64_t step, uint64_t n_samples, Bytes message) override {
        sent_.push_back({step, {host_, n_samples, std::move(message)}});
    }

    Collected collect(uint64_t step) override {
        Collected out;
        out.round.step = out.round.mine = step;
        out.round.has_mine              = true;
        while (!sent_.empty() && sent_.front().step <= step) {
            if (sent_.front().step == step) {
                out.round.messages.push_back(std::move(sent_.front().message));
            }
            sent_.pop_front();
        }
        out.info.validate = true;
        next_             = step + 1;
        return out;
    }

    // There is no other host.
    std::optional<Bytes>     slice(int) override { return std::nullopt; }
    std::optional<Collected> missed(bool) override { return std::nullopt; }
    void                     pause() override {}
    void                     applied(Applied) override {}

private:
    struct Sent {
        uint64_t step = 0;
        Message  message;
    };
    std::string      host_;
    std::deque<Sent> sent_;
    uint64_t         next_ = 0;
};

}  // namespace

std::unique_ptr<Peers> make_self_peers(const std::string & host) {
    return std::make_unique<SelfPeers>(host);
}

}  // namespace gt
