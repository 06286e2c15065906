// comm/hub/hub-sequencer.cpp — see hub-sequencer.h.
#include "comm/hub/hub-sequencer.h"

#include <cmath>

namespace gt {

constexpr int kCommitsPerTick = 16;

HubSequencer::HubSequencer(const RunKeys & keys, const SequencerOptions & options)
    : keys_(keys), options_(options) {
    options_.on_refusal = [this](const std::string & text) {
        if (Hub * hub = hub_) {
            hub->fault(text);
        }
    };
    options_.on_message = [this](const SeenMessage & message) {
        Hub * hub = hub_;
        if (hub && std::isfinite(message.head.loss)) {
            const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
            const MessageHead & head = message.head;
            hub->add_metrics(
                message.host,
                format("step=%llu", number(head.step)) +
                    (head.loss > 0 ? format(" loss=%g", double(head.loss)) : ""
                    ) +  // 0: no step yet
                    format(
                        " tokens_s=%g waited_s=%g samples=%llu up_bytes=%llu down_bytes=%llu",
                        double(head.tokens_s), double(head.waited_s), number(head.weight),
                        number(head.up_bytes), number(head.down_bytes)
                    )
            );
        }
    };
}

void HubSequencer::start(Store & store) {
    sequencer_ = std::make_unique<Sequencer>(store, keys_, options_);
}

void HubSequencer::on_put(const std::string & key) {
    sequencer_->note(key, std::chrono::steady_clock::now());
}

void HubSequencer::tick(std::chrono::steady_clock::time_point now) {
    // a commit may make the next one due at once: its messages may be there already
    for (int n = 0; n < kCommitsPerTick && sequencer_->poll(now); n++) {
    }
}

}  // namespace gt
