// comm/peers-self.cpp — a host alone: hears itself. Alone is not a special case for the trainer.
#include "comm/peers-self.h"

#include "comm/wire.h"

#include <deque>

namespace gt {

namespace {

class SelfPeers : public RunPeers {
public:
    explicit SelfPeers(const std::string & host) : host_(host) {}

    const std::string & host() const override { return host_; }

    void publish(uint64_t round, uint64_t weight, Bytes message) override {
        sent_.push_back({round, {host_, weight, std::move(message)}});
    }

    Round collect(uint64_t round) override {
        Round out;
        out.round    = round;
        out.mine     = round;
        out.has_mine = true;
        while (!sent_.empty() && sent_.front().round <= round) {
            if (sent_.front().round == round && !sent_.front().message.bytes.empty()) {
                out.messages.push_back(std::move(sent_.front().message));
            }
            sent_.pop_front();
        }
        out.validate = true;
        next_        = round + 1;
        return out;
    }

    // The mark: u64 next step | messages in flight, each: u64 round | u64 weight | u64 size | bytes
    Joined join(std::span<const uint8_t> mark, bool) override {
        WireReader in(mark);
        Joined     out;
        out.step = next_ = in.u64();
        sent_.clear();
        while (in.ok() && !in.at_end()) {
            Sent sent;
            sent.round          = in.u64();
            sent.message.host   = host_;
            sent.message.weight = in.u64();
            const auto bytes    = in.raw(in.u64());
            sent.message.bytes.assign(bytes.begin(), bytes.end());
            out.in_flight.push_back(sent.round);
            sent_.push_back(std::move(sent));
        }
        return out;
    }
    uint64_t n_behind() override { return 0; }
    Bytes    mark() override {
        WireWriter out;
        out.u64(next_);
        for (const Sent & sent : sent_) {
               out.u64(sent.round);
               out.u64(sent.message.weight);
               out.u64(sent.message.bytes.size());
               out.raw(sent.message.bytes);
        }
        return out.take();
    }
    void report(const StepReport &) override {}
    void put_part(uint64_t, int, Bytes) override {}

private:
    struct Sent {
        uint64_t round = 0;
        Message  message;
    };
    std::string      host_;
    std::deque<Sent> sent_;
    uint64_t         next_ = 0;
};

}  // namespace

std::unique_ptr<RunPeers> make_self_peers(const std::string & host) {
    return std::make_unique<SelfPeers>(host);
}

}  // namespace gt
