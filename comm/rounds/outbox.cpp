// comm/rounds/outbox.cpp — see outbox.h.
#include "comm/rounds/outbox.h"

#include "comm/wire/wire.h"

#include <algorithm>

namespace gt {

std::optional<uint64_t> Outbox::first_step() const {
    return sent_.empty() ? std::nullopt : std::optional(sent_.front().step);
}

std::vector<uint64_t> Outbox::steps() const {
    std::vector<uint64_t> steps;
    for (const SentMessage & sent : sent_) {
        if (sent.phase != Phase::outputs) {  // outputs belong to the step of their inputs
            steps.push_back(sent.step);
        }
    }
    return steps;
}

std::optional<SentMessage> Outbox::settle(const Commit & commit, OpenedRound & out) {
    if (sent_.empty() || sent_.front().index != commit.index) {
        return std::nullopt;
    }
    const SentMessage sent = sent_.front();
    sent_.pop_front();
    const CommitMessage * listed  = commit.message_of(host_);
    const bool            is_ours = listed && listed->incarnation == sent.incarnation &&
                         (!sent.digest || *sent.digest == listed->digest);
    const bool is_open =
        std::any_of(out.messages.begin(), out.messages.end(), [&](const Message & message) {
            return message.host == host_;
        });
    out.mine = sent.step;
    // other hosts repeat a missing output: there is nothing to take back
    out.has_mine = sent.phase == Phase::outputs || (is_ours && (is_open || out.is_settled_only));
    return sent;
}

std::deque<OpenedRound>
Outbox::settle_skipped(const std::deque<ChainEntry> & chain, uint64_t index) {
    std::deque<OpenedRound> settled;
    while (!sent_.empty() && sent_.front().index <= index) {
        const SentMessage sent = sent_.front();
        OpenedRound       out;
        out.is_settled_only = true;
        out.commit.index    = sent.index;
        const auto entry    = std::find_if(chain.begin(), chain.end(), [&](const ChainEntry & e) {
            return e.commit.index == sent.index;
        });
        if (entry != chain.end()) {
            settle(entry->commit, out);
        } else {
            sent_.pop_front();  // outcome unknown: count it as listed, or it might be sent twice
        }
        out.commit.step = out.mine = sent.step;
        settled.push_back(std::move(out));
    }
    return settled;
}

std::deque<OpenedRound> Outbox::take_back(uint64_t first, uint64_t last) {
    std::deque<OpenedRound> settled;
    for (auto sent = sent_.begin(); sent != sent_.end();) {
        if (sent->index < first || sent->index > last) {
            ++sent;
            continue;
        }
        OpenedRound out;
        out.is_settled_only = true;
        out.commit.index    = sent->index;
        out.commit.step = out.mine = sent->step;
        out.has_mine               = sent->phase == Phase::outputs;
        settled.push_back(std::move(out));
        sent = sent_.erase(sent);
    }
    return settled;
}

void Outbox::write(WireWriter & out) const {
    out.u16(sent_.size());
    for (const SentMessage & sent : sent_) {
        fields(out, sent.index, sent.step, sent.incarnation);
    }
}

void Outbox::read(WireReader & in) {
    sent_.clear();
    for (size_t n = in.u16(); n > 0 && in.ok(); --n) {
        SentMessage sent;
        fields(in, sent.index, sent.step, sent.incarnation);
        sent_.push_back(sent);
    }
}

}  // namespace gt
