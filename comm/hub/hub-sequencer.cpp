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
            hub->add_metrics(
                message.host, format(
                                  "step=%llu loss=%g tokens_s=%g waited_s=%g samples=%llu "
                                  "up_bytes=%llu down_bytes=%llu",
                                  (unsigned long long) message.head.step, double(message.head.loss),
                                  double(message.head.tokens_s), double(message.head.waited_s),
                                  (unsigned long long) message.head.weight,
                                  (unsigned long long) message.head.up_bytes,
                                  (unsigned long long) message.head.down_bytes
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
