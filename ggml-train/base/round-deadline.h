// ggml-train/base/round-deadline.h — how long a round waits for the messages of its members. Rounds close
// by it (comm/sequencer/membership.h), and slow hosts reduce their work to meet it (run/batch-pace.h).
#pragma once

namespace gt {

constexpr double kDeadlineFactor = 1.5;  // times the median time of the last messages
constexpr int    kMinDeadlineMs  = 500;

}  // namespace gt
