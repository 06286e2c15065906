// ggml-train/run/run-status.h — what the status page of a run shows, as this host sees it: the data of
// comm/status/page.h. All functions may be called from any thread.
#pragma once

#include "ggml-train/base/curve.h"
#include "ggml-train/run/progress.h"

#include <map>

namespace gt {

struct RunTitle {
    std::string run, model, host;
    std::string unit  = "tokens";
    uint64_t    steps = 0;
    uint64_t    batch = 0;  // samples of a whole round on one host
};

class RunStatus {
public:
    using Clock = double (*)();  // seconds

    explicit RunStatus(RunTitle title, Clock clock = steady_seconds);

    // state: "waiting" (before the first step) or "paused"; text: for what, why.
    void idle(const std::string & state, const std::string & text);

    // A step of this session, or of an earlier one (from its metrics).
    void step(const StepRecord & record, double units_s, double seconds, double seconds_left);
    void old_step(uint64_t step, double loss);
    void eval(uint64_t step, double loss, double accuracy);  // accuracy < 0: unknown
    void sample(uint64_t step, const std::string & text);

    // What went wrong, in one sentence.
    void fault(const std::string & text);

    // The session has ended, before or after the last step.
    void ended(bool finished);

    // Bytes per day of the last steps; 0: not known yet.
    struct Traffic {
        double up = 0.0, down = 0.0;
    };
    Traffic per_day() const;

    std::string json() const;

private:
    enum class State { training, late, gone, left };

    struct Host {
        State    state   = State::training;
        double   seen    = 0.0;
        uint64_t n_late  = 0;  // rounds in a row
        uint64_t step    = 0;  // of its last message
        uint64_t samples = 0, up = 0, down = 0;
        double   loss = 0.0, units_s = 0.0;  // loss 0: unknown
        Curve    curve;
    };
    struct Point {
        double   time;
        uint64_t up, down;
    };
    struct Fault {
        double      time;
        std::string text;
    };

    void note_round(const StepRecord & record);
    void take(const HostReport & report, uint64_t step);
    void add_fault(const std::string & text);

    Traffic     traffic() const;
    static Json json_of(const Host & host, double now);

    mutable std::mutex                           mutex_;
    RunTitle                                     title_;
    Clock                                        clock_;
    std::string                                  state_ = "waiting", text_;
    StepRecord                                   last_;
    double                                       units_s_ = 0.0, seconds_ = 0.0, left_ = -1.0;
    double                                       accuracy_ = -1.0;
    Curve                                        validation_;
    double                                       val_loss_ = -1.0;
    std::deque<Point>                            traffic_;  // of the last steps
    std::deque<std::pair<uint64_t, std::string>> samples_;
    std::deque<Fault>                            faults_;
    std::map<std::string, Host>                  hosts_;
};

}  // namespace gt
