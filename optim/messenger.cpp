#include "optim/messenger.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

namespace gt {

Messenger::Messenger(
    const Units &               units,
    const MessengerOptions &    options,
    std::unique_ptr<Replicator> own,
    std::unique_ptr<Replicator> exact
)
    : units_(units), options_(options), own_(std::move(own)), exact_(std::move(exact)) {}

// Where each unit of the whole model begins in a message's content; the last entry is its size.
std::vector<int64_t> Messenger::offsets_of(const Replicator & replicator, const Plan & plan) const {
    std::vector<int64_t> offsets{0};
    for (const Unit & unit : units_.all()) {
        offsets.push_back(offsets.back() + replicator.bytes(plan, unit));
    }
    return offsets;
}

int64_t Messenger::content_bytes(uint64_t step) const {
    return offsets_of(*own_, own_->plan(step / options_.every)).back();
}

// --- out -------------------------------------------------------------------------------------------

std::vector<int64_t> Messenger::owned_offsets(const Plan & plan) const {
    std::vector<int64_t> at(units_.all().size() + 1, 0);
    for (const int i : units_.owned()) {
        at[i] = at.back();
        at.back() += own_->bytes(plan, units_.all()[i]);
    }
    return at;
}

// The head and, for a part, the rows of a message of ours, its content zero.
Bytes Messenger::blank(uint64_t step, float lr, const Plan & plan, uint64_t n_content) const {
    CodecHead head = options_.head;
    head.is_part   = !units_.owns_all();
    head.step      = step;
    head.lr        = lr;
    head.n_content = n_content;
    if (!head.is_part) {
        return make_message(head);
    }
    std::vector<PartRows> rows;
    for (const ParamView & param : units_.params()) {
        rows.push_back({param.row_begin, param.row_end, 0});
    }
    for (const int i : units_.owned()) {
        rows[units_.all()[i].tensor].n_bytes += own_->bytes(plan, units_.all()[i]);
    }
    return make_message(head, rows);
}

Bytes Messenger::start(uint64_t step, float lr) const {
    if (!due(step)) {
        return {};
    }
    const Plan plan = own_->plan(step / options_.every);
    return blank(step, lr, plan, owned_offsets(plan).back());
}

void Messenger::keep(uint64_t step, const Bytes & message) {
    // the older slot, if both are taken: its round never came to an end
    Slot & slot  = slots_[0].used == 0               ? slots_[0]
                   : slots_[1].used == 0             ? slots_[1]
                   : slots_[0].step < slots_[1].step ? slots_[0]
                                                     : slots_[1];
    slot.used    = 1;
    slot.step    = step;
    slot.message = message;
}

Bytes Messenger::pack(
    uint64_t step, float lr, std::vector<std::vector<float>> & momentum, const FoldOf & fold
) {
    const bool                 sends   = due(step);
    const Plan                 plan    = sends ? own_->plan(step / options_.every) : Plan{};
    const std::vector<int64_t> at      = sends ? owned_offsets(plan) : std::vector<int64_t>{};
    Bytes                      message = start(step, lr);
    units_.run_owned([&](int i, float * room) {
        const Unit & unit = units_.all()[i];
        float *      m    = momentum[unit.tensor].data() + units_.offset(unit);
        uint8_t *    out  = sends ? message.data() + kHeadBytes + at[i] : nullptr;
        own_->extract(plan, unit, fold(unit, room), m, out);
    });
    if (sends) {
        keep(step, message);
    }
    return message;
}

Bytes Messenger::take(uint64_t step) {
    for (Slot & slot : slots_) {
        if (slot.used != 0 && slot.step == step) {
            slot.used = 0;
            return our_part(step, std::exchange(slot.message, {}));
        }
    }
    return {};
}

// A message that a checkpoint kept is the host's, whatever number of ranks had made it.
Bytes Messenger::our_part(uint64_t step, Bytes message) const {
    std::string why;
    const auto  head = read_head(message, why);
    if (!head || head->layout != options_.head.layout) {
        throw Error(
            "the message in flight is of another model or other settings; go on with those of "
            "that run"
        );
    }
    if (head->is_part || units_.owns_all()) {
        return message;
    }
    const Plan                 plan = own_->plan(step / options_.every);
    const std::vector<int64_t> from = offsets_of(*own_, plan), to = owned_offsets(plan);
    GT_CHECK(message.size() == static_cast<size_t>(kHeadBytes + from.back()), "size by layout");
    Bytes part = blank(step, head->lr, plan, static_cast<uint64_t>(to.back()));
    for (const int i : units_.owned()) {
        std::copy_n(
            message.data() + kHeadBytes + from[i], from[i + 1] - from[i],
            part.data() + kHeadBytes + to[i]
        );
    }
    return part;
}

bool Messenger::is_good(uint64_t step, const Unit & unit, const uint8_t * bytes) const {
    double norm2 = 0.0;
    return own_->check(own_->plan(step / options_.every), unit, bytes, norm2) == nullptr;
}

// Our message of that step, unit by unit; kept no longer.
void Messenger::each_taken(
    uint64_t step,
    const std::function<
        void(const Plan & plan, const Unit & unit, const uint8_t * bytes, float * room)> & fn
) {
    const Bytes message = take(step);
    if (message.empty()) {
        return;
    }
    const Plan                 plan = own_->plan(step / options_.every);
    const std::vector<int64_t> at   = owned_offsets(plan);
    units_.run_owned([&](int i, float * room) {
        const Unit &    unit  = units_.all()[i];
        const uint8_t * bytes = message.data() + kHeadBytes + at[i];
        // what we sent was refused by all, if it holds no number: then there is nothing to add
        if (is_good(step, unit, bytes)) {
            fn(plan, unit, bytes, room);
        }
    });
}

void Messenger::take_back(uint64_t step, std::vector<std::vector<float>> & momentum) {
    each_taken(step, [&](const Plan & plan, const Unit & unit, const uint8_t * bytes, float *) {
        own_->give_back(plan, unit, bytes, momentum[unit.tensor].data() + units_.offset(unit));
    });
}

void Messenger::take_back(uint64_t step, const TakeOf & fn) {
    each_taken(
        step,
        [&](const Plan & plan, const Unit & unit, const uint8_t * bytes, float * room) {
            const Piece piece{bytes};
            own_->merge(plan, unit, {&piece, 1}, room);
            fn(unit, room);
        }
    );
}

void Messenger::forget(uint64_t step) {
    for (Slot & slot : slots_) {
        if (slot.used != 0 && slot.step <= step) {
            slot.used = 0;
            slot.message.clear();
        }
    }
}

// The host's message from what its ranks keep: their parts, or all of it, after a checkpoint was loaded.
static Bytes join_kept(std::span<const Bytes> of_ranks) {
    for (const Bytes & kept : of_ranks) {
        std::string why;
        const auto  head = read_head(kept, why);
        if (head && !head->is_part) {
            return kept;
        }
    }
    return join_messages(of_ranks);
}

void Messenger::add_state(OptimizerState & state) {
    for (int i = 0; i < 2; ++i) {
        const std::string name = format("flight%d", i);
        state.counters.push_back({name + ".used", &slots_[i].used, false});
        state.counters.push_back({name + ".step", &slots_[i].step, false});
        state.blobs.push_back({name + ".message", &slots_[i].message, false, join_kept});
    }
}

// --- in --------------------------------------------------------------------------------------------

// Reason to refuse a message whose head has been read, or an empty string.
std::string Messenger::check(const Inbox & inbox, const Message & message, double & norm2) const {
    if (static_cast<int64_t>(message.bytes.size()) != kHeadBytes + inbox.offsets.back()) {
        return "not the length that this layout has";
    }
    const uint8_t *           content = message.bytes.data() + kHeadBytes;
    std::vector<const char *> why(units_.all().size(), nullptr);
    std::vector<double>       norms(units_.all().size(), 0.0);
    units_.run_all([&](int i, float *) {
        why[i] = inbox.replicator->check(
            inbox.plan, units_.all()[i], content + inbox.offsets[i], norms[i]
        );
    });
    for (size_t i = 0; i < why.size(); ++i) {
        if (why[i] != nullptr) {
            return why[i] + (", in " + units_.shapes()[units_.all()[i].tensor].name);
        }
        norm2 += norms[i];
    }
    return {};
}

// Factors that bring each norm to the middle one (the lower of two).
static std::vector<double> median_scales(std::vector<double> norms) {
    std::vector<double> sorted = norms;
    std::sort(sorted.begin(), sorted.end());
    const double median = sorted[(sorted.size() - 1) / 2];
    for (double & norm : norms) {
        norm = norm > 0.0 ? median / norm : 1.0;
    }
    return norms;
}

Inbox Messenger::open(const Round & round) const {
    Inbox                    inbox{.step = round.round};
    std::vector<std::string> why(round.messages.size());
    using Common = std::pair<uint32_t, Wire>;  // what all of a round must share
    std::vector<Common>   common(round.messages.size());
    std::map<Common, int> votes;
    for (size_t i = 0; i < round.messages.size(); ++i) {
        const auto head = read_head(round.messages[i].bytes, why[i]);
        if (!head) {
            continue;
        }
        const bool known = head->wire == options_.head.wire || (exact_ && head->wire == Wire::fp32);
        if (head->is_part || head->replicator != options_.head.replicator || !known) {
            why[i] = "of another replicator or wire type";
        } else if (head->layout != options_.head.layout) {
            why[i] = "of another model or other settings";
        } else if (head->step != round.round) {
            why[i] = "of another step";
        } else if (round.messages[i].weight == 0) {
            why[i] = "without weight";
        } else {
            common[i] = {std::bit_cast<uint32_t>(head->lr), head->wire};
            ++votes[common[i]];
        }
    }
    if (votes.empty()) {
        for (size_t i = 0; i < why.size(); ++i) {
            inbox.refused.push_back(round.messages[i].host + ": " + why[i]);
        }
        return inbox;
    }
    const Common agreed = std::max_element(votes.begin(), votes.end(), [](auto & a, auto & b) {
                              return a.second < b.second;
                          })->first;
    inbox.lr            = std::bit_cast<float>(agreed.first);
    inbox.replicator    = agreed.second == options_.head.wire ? own_.get() : exact_.get();
    inbox.plan          = inbox.replicator->plan(round.round / options_.every);
    inbox.offsets       = offsets_of(*inbox.replicator, inbox.plan);
    std::vector<double> norms;
    for (size_t i = 0; i < round.messages.size(); ++i) {
        const Message & message = round.messages[i];
        double          norm2   = 0.0;
        if (why[i].empty() && common[i] != agreed) {
            why[i] = "of another learning rate or wire type than most";
        }
        if (why[i].empty()) {
            why[i] = check(inbox, message, norm2);
        }
        if (!why[i].empty()) {
            inbox.refused.push_back(message.host + ": " + why[i]);
            continue;
        }
        inbox.contents.push_back(message.bytes.data() + kHeadBytes);
        inbox.weights.push_back(static_cast<double>(message.weight));
        norms.push_back(std::sqrt(norm2));
    }
    inbox.scales = options_.median_norm && !norms.empty() ? median_scales(norms)
                                                          : std::vector<double>(norms.size(), 1.0);
    return inbox;
}

void Messenger::merge(const Inbox & inbox, int unit, float * update) const {
    std::vector<Piece> pieces(inbox.contents.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
        pieces[i] = {inbox.contents[i] + inbox.offsets[unit], inbox.weights[i], inbox.scales[i]};
    }
    inbox.replicator->merge(inbox.plan, units_.all()[unit], pieces, update);
}

}  // namespace gt
