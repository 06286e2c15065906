// ggml-train/run/progress.h — the progress line of a run: redrawn in place on a terminal, a plain line
// every few steps elsewhere.
//
//   120/1000 [==>             ] 12% | loss 3.214 | 1m20s left | 12.3k tokens/s | val 3.402 | ...
//
// With other hosts also: waits 8% for hosts | round 119: anna, ben; late: cleo | up 12 MB, down 25 MB
//
// The fields are in the order of their value: a terminal gets as many as fit. Steps are counted from 1
// here: "120" means that 120 updates are done. One thread calls everything; note may come from others, too.
#pragma once

#include "ggml-train/peers.h"

#include <cstdio>
#include <deque>
#include <limits>
#include <mutex>

namespace gt {

struct StepRecord {
    uint64_t step      = 0;  // updates done, including this one
    float    loss      = 0.0f;
    float    lr        = 0.0f;
    float    grad_norm = 0.0f;
    uint64_t n_tokens  = 0;  // tokens (or pictures) that this host processed in this step
    uint64_t n_samples = 0;
    double   waited    = 0;  // seconds that the step waited for its data

    // With other hosts: the last round, numbered like steps.
    uint64_t                 round = 0;
    std::vector<std::string> in{}, late{};  // hosts whose messages counted; members that missed it
    uint64_t                 n_sent   = 0;  // bytes of our message
    uint64_t                 up_bytes = 0, down_bytes = 0;  // of all rounds of this session
    double                   waited_for_hosts = 0;          // seconds of the step
    std::vector<HostReport>  hosts{};                       // all hosts of the round
};

class RunStatus;

struct StepLogOptions {
    bool        enabled  = true;  // false on all ranks but the first: every call does nothing
    uint64_t    steps    = 0;     // total steps of the run; 0: unknown
    int64_t     every    = 10;    // steps between plain lines
    uint64_t    batch    = 0;     // samples of a whole step; 0: unknown
    std::string unit     = "tokens";
    FILE *      out      = stdout;
    int         terminal = -1;          // 1 or 0: out is a terminal or not; -1: ask the system
    std::function<size_t()>   width;    // columns; none: ask the system
    std::function<double()>   seconds;  // a clock; none: the steady one
    std::function<uint64_t()> memory;   // bytes in use; none: this process
    RunStatus *               status = nullptr;  // also told; may be null
};

class Progress {
public:
    // step: updates done before this session.
    Progress(uint64_t step, StepLogOptions options);
    ~Progress() { end(); }
    Progress(const Progress &)             = delete;
    Progress & operator=(const Progress &) = delete;

    void step(const StepRecord & record);
    void val_loss(float loss);

    // On a terminal: shows what is being done, such as "step 3: 2/8", if it takes long.
    void working(const std::string & what);

    // Prints a line of text above the progress line, or below it after its end.
    void note(const std::string & text);

    // Leaves the line as it is on the terminal.
    void end();

    // Excludes the time since the last step from the speed: it was not training. The time left
    // includes it.
    void mark() { mark_ = options_.seconds(); }

    // The line without control codes: all fields, or those that fit.
    std::string line(size_t width = std::numeric_limits<size_t>::max()) const;

    double   seconds() const { return options_.seconds() - start_; }  // of this session
    double   step_seconds() const { return recent_.empty() ? 0.0 : recent_.back().seconds; }
    double   seconds_left() const;  // < 0: unknown
    double   tokens_per_second() const;
    uint64_t memory() const { return options_.memory(); }

private:
    struct Span {
        double   seconds;
        uint64_t n_tokens;
        double   waited, waited_for_hosts;
    };
    void        draw(bool force, double after);
    void        erase();
    size_t      width() const;
    std::string steps_text(bool bar) const;
    void        add_round(std::vector<std::string> & fields) const;

    std::vector<std::string> fields() const;
    double                   share_waited(double Span::*waited) const;

    StepLogOptions     options_;
    StepRecord         last_;
    float              val_loss_ = -1.0f;  // < 0: unknown
    double             start_, mark_, drawn_ = -1e9;
    std::deque<Span>   recent_;       // training time of the last steps
    std::deque<double> ends_;         // when the last steps ended, pauses included
    std::string        working_;      // shown until the step ends
    size_t             n_shown_ = 0;  // columns on the terminal; 0: no line
    std::mutex         mutex_;
};

// Resident memory of this process in bytes.
uint64_t resident_bytes();

}  // namespace gt
