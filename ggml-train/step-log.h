// ggml-train/step-log.h — what a run says while it goes: one living line on a terminal (plain lines
// elsewhere), and metrics.jsonl and metrics.csv in the run's folder for plots.
//
//   120/1000 [==>             ] 12% | loss 3.214 | val 3.402 | 12.3k tokens/s | 820 MB | 1m20s left
//
// With other hosts also: round 119: anna, ben; late: cleo | up 12 MB, down 25 MB | waits 8% for hosts
//
// Steps are counted from 1 here: "120" means that 120 updates are done.
#pragma once

#include "ggml-train/base.h"

#include <cstdio>
#include <deque>

namespace gt {

struct StepRecord {
    uint64_t step      = 0;  // updates done, this one included
    float    loss      = 0.0f;
    float    lr        = 0.0f;
    float    grad_norm = 0.0f;
    uint64_t n_tokens  = 0;  // (or pictures) that this host went through in this step
    uint64_t n_samples = 0;
    double   waited    = 0;  // seconds in which the step waited for its data

    // With other hosts: the last round, counted as steps are.
    uint64_t                 round = 0;
    std::vector<std::string> in{}, late{};  // whose messages counted, members that were left out
    uint64_t                 n_sent   = 0;  // bytes of our message
    uint64_t                 up_bytes = 0, down_bytes = 0;  // of all rounds of this session
    double                   waited_for_hosts = 0;          // seconds of the step
};

struct StepLogOptions {
    bool        enabled  = true;  // false on all ranks but the first: every call does nothing
    uint64_t    steps    = 0;     // all of the run; 0: unknown
    int64_t     every    = 10;    // plain lines: one per so many steps
    std::string unit     = "tokens";
    FILE *      out      = stdout;
    int         terminal = -1;          // 1 or 0: is out a terminal? -1: find out
    std::function<double()>   seconds;  // a clock; none: the steady one
    std::function<uint64_t()> memory;   // bytes in use; none: this process
};

class StepLog {
public:
    // Opens the metrics in `folder` (which exists) for a run that has done `step` updates: lines
    // beyond it, from before an interruption, are cut, and a torn last line too.
    StepLog(const std::string & folder, uint64_t step, StepLogOptions options);
    ~StepLog();
    StepLog(const StepLog &)             = delete;
    StepLog & operator=(const StepLog &) = delete;

    void step(const StepRecord & record);
    void eval(uint64_t step, float val_loss, float accuracy = -1.0f);  // accuracy: share, if known
    void sample(uint64_t step, const std::string & prompt, const std::string & text);

    // A line for people, above the living line.
    void note(const std::string & text);

    // The time since the last step was not training (a checkpoint was written): it counts for the
    // time left, not for tokens per second. eval and sample say so themselves.
    void mark();

    // The living line without colours and control codes.
    std::string line() const;

private:
    struct Span {
        double   seconds;
        uint64_t n_tokens;
        double   waited, waited_for_hosts;
    };
    void   open_metrics(const std::string & folder, uint64_t step);
    void   write(const std::string & json, const std::string & csv);
    void   draw(bool force);
    void   clear();
    double now() const;
    double tokens_per_second() const;
    double share_waited(double Span::*waited) const;
    double seconds_left() const;

    StepLogOptions     options_;
    FILE *             jsonl_ = nullptr;
    FILE *             csv_   = nullptr;
    StepRecord         last_;
    float              val_loss_ = -1.0f;
    uint64_t           n_tokens_ = 0;    // in all sessions
    double             before_   = 0.0;  // seconds of earlier sessions
    double             start_, mark_, drawn_ = -1e9;
    std::deque<Span>   recent_;  // training time of the last steps
    std::deque<double> ends_;    // when the last steps ended, pauses included
    bool               line_shown_ = false;
};

// "1h05m", "1m20s", "8s"
std::string time_text(double seconds);

// "12.3k", "870", "1.25M"
std::string count_text(double n);

// Resident memory of this process in bytes.
uint64_t resident_bytes();

}  // namespace gt
