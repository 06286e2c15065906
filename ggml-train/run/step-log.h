// ggml-train/run/step-log.h — the log of a run: its progress line (progress.h), and metrics.jsonl and
// metrics.csv in its folder, for plots; and the data of its status page (run-status.h).
#pragma once

#include "ggml-train/run/progress.h"

namespace gt {

class StepLog {
public:
    // Opens the metrics in `folder`, which must exist, for a run that has done `step` updates. Removes
    // lines beyond that step, which an interrupted session left, and a torn last line.
    StepLog(const std::string & folder, uint64_t step, StepLogOptions options);
    ~StepLog();
    StepLog(const StepLog &)             = delete;
    StepLog & operator=(const StepLog &) = delete;

    void step(const StepRecord & record);
    // accuracy, bits_per_byte < 0: unknown, or of no meaning for this kind of data
    void eval(uint64_t step, float val_loss, float accuracy = -1.0f, float bits_per_byte = -1.0f);
    void sample(uint64_t step, const std::string & prompt, const std::string & text);

    // As in Progress. eval and sample mark by themselves.
    void        note(const std::string & text);
    void        working(const std::string & what);
    void        mark() { progress_.mark(); }
    void        end() { progress_.end(); }
    std::string line() const { return progress_.line(); }

private:
    void   open_metrics(const std::string & folder, uint64_t step);
    void   write(const std::string & json, const std::string & csv);
    double seconds() const { return before_ + progress_.seconds(); }

    bool        enabled_;
    RunStatus * status_;
    Progress    progress_;
    FILE *      jsonl_    = nullptr;
    FILE *      csv_      = nullptr;
    uint64_t    n_tokens_ = 0;    // of all sessions
    double      before_   = 0.0;  // seconds of earlier sessions
};

}  // namespace gt
