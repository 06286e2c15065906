// tools/train/pause.h — when a machine that is also used for other things does not train: outside of its
// hours, while other programs are busy, and while the run's folder has a file named `pause`.
#pragma once

#include "ggml-train/base/base.h"

#include <optional>

namespace gt {

// "22:00-07:00": minutes of the day; from > to: over midnight.
struct ActiveHours {
    int from = 0, to = 24 * 60;

    bool contains(int minute) const {
        return from <= to ? minute >= from && minute < to : minute >= from || minute < to;
    }
};

// Throws an Error that shows the form. Empty: the whole day.
ActiveHours parse_active_hours(const std::string & text);

// Whether other programs are busy: they were using more than half of the cores in the last seconds. While
// they are, a quarter is enough, so that training does not start and stop in turns.
class BusyMeter {
public:
    explicit BusyMeter(int n_cores) : n_cores_(n_cores) {}

    // seconds: a clock; used, own: CPU seconds so far, of all programs and of this one.
    bool update(double seconds, double used, double own);

private:
    static constexpr double kWindow = 10.0;  // seconds that are averaged

    struct Reading {
        double seconds, others;
    };
    int                    n_cores_;
    std::optional<Reading> from_;
    bool                   is_busy_ = false;
};

class PauseRules {
public:
    struct Options {
        std::string folder;        // of the run
        std::string active_hours;  // as parse_active_hours takes them
        bool        when_busy = false;
    };
    explicit PauseRules(const Options & options);

    // Why training should not run now; empty: it should.
    std::string reason();

private:
    Options     options_;
    ActiveHours hours_;
    BusyMeter   meter_;
};

}  // namespace gt
