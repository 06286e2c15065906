#include "tools/train/pause.h"

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

namespace gt {

ActiveHours parse_active_hours(const std::string & text) {
    if (text.empty()) {
        return {};
    }
    int h0 = 0, m0 = 0, h1 = 0, m1 = 0, n = 0;
    if (std::sscanf(text.c_str(), "%2d:%2d-%2d:%2d%n", &h0, &m0, &h1, &m1, &n) != 4 ||
        static_cast<size_t>(n) != text.size() || h0 < 0 || h0 > 23 || m0 < 0 || m0 > 59 || h1 < 0 ||
        h1 > 24 || m1 < 0 || m1 > 59 || h1 * 60 + m1 > 24 * 60 || h0 * 60 + m0 == h1 * 60 + m1) {
        throw Error("--active-hours " + text + ": write the hours as 22:00-07:00");
    }
    return {h0 * 60 + m0, h1 * 60 + m1};
}

bool BusyMeter::update(double seconds, double used, double own) {
    const Reading now{seconds, used - own};
    if (!from_) {
        from_ = now;
    }
    const double passed = now.seconds - from_->seconds;
    if (passed >= kWindow) {
        const double cores = (now.others - from_->others) / passed;
        is_busy_           = cores > (is_busy_ ? 0.25 : 0.5) * n_cores_;
        from_              = now;
    }
    return is_busy_;
}

// CPU seconds of all programs, without idle time and without waiting for disks.
static double used_cpu_seconds() {
    std::ifstream in("/proc/stat");
    std::string   name;
    double        user = 0, nice = 0, system = 0, idle = 0, disk = 0, irq = 0, soft = 0;
    in >> name >> user >> nice >> system >> idle >> disk >> irq >> soft;
    return (user + nice + system + irq + soft) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

static double own_cpu_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

PauseRules::PauseRules(const Options & options)
    : options_(options), hours_(parse_active_hours(options.active_hours)),
      meter_(static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {}

std::string PauseRules::reason() {
    if (options_.when_busy &&
        meter_.update(steady_seconds(), used_cpu_seconds(), own_cpu_seconds())) {
        return "other programs are busy";
    }
    const std::time_t time = std::time(nullptr);
    std::tm           local{};
    ::localtime_r(&time, &local);
    if (!hours_.contains(local.tm_hour * 60 + local.tm_min)) {
        return "outside of --active-hours " + options_.active_hours;
    }
    std::error_code none;
    const auto      file = std::filesystem::path(options_.folder) / "pause";
    return std::filesystem::exists(file, none) ? "until " + file.string() + " is removed" : "";
}

}  // namespace gt
