// comm/sequencer/sequencer-thread.cpp — see sequencer-thread.h.
#include "comm/sequencer/sequencer-thread.h"

namespace gt {

SequencerThread::SequencerThread(
    Store & store, const RunKeys & keys, const SequencerOptions & options, Millis poll
)
    : thread_([this, &store, keys, options, poll] {
          Sequencer sequencer(store, keys, options);
          while (!stop_) {
              bool moved = false;
              try {
                  moved  = sequencer.poll(std::chrono::steady_clock::now());
                  leads_ = sequencer.leads();
              } catch (const Error &) {
                  // retry
              }
              if (!moved) {
                  std::this_thread::sleep_for(poll);
              }
          }
      }) {}

SequencerThread::~SequencerThread() {
    stop_ = true;
    thread_.join();
}

}  // namespace gt
