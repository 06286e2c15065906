#include "ggml-train/run/progress.h"

#include "ggml-train/base/text.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sys/ioctl.h>
#include <unistd.h>

namespace gt {

static constexpr size_t kRecentSteps = 20;    // tokens/s is the mean of these
static constexpr size_t kEndsKept    = 200;   // time left is extrapolated from these
static constexpr double kRedrawAfter = 0.1;   // seconds
static constexpr double kWaitedShown = 0.03;  // share of the time
static constexpr size_t kNamesShown  = 4;     // more hosts are only counted
static constexpr int    kBarWidth    = 16;
static constexpr char   kClearLine[] = "\r\033[K";

uint64_t resident_bytes() {
    std::ifstream in("/proc/self/statm");
    uint64_t      total = 0, resident = 0;
    in >> total >> resident;
    return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

static double steady_seconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
}

Progress::Progress(uint64_t step, StepLogOptions options) : options_(std::move(options)) {
    if (!options_.seconds) {
        options_.seconds = steady_seconds;
    }
    if (!options_.memory) {
        options_.memory = resident_bytes;
    }
    if (options_.terminal < 0) {
        options_.terminal = ::isatty(::fileno(options_.out));
    }
    last_.step = step;
    start_ = mark_ = options_.seconds();
}

Progress::~Progress() {
    if (line_shown_) {
        draw(true);
        std::fputc('\n', options_.out);
        std::fflush(options_.out);
    }
}

void Progress::step(const StepRecord & record) {
    const double now = options_.seconds();
    recent_.push_back({now - mark_, record.n_tokens, record.waited, record.waited_for_hosts});
    if (recent_.size() > kRecentSteps) {
        recent_.pop_front();
    }
    if (ends_.empty()) {
        ends_.push_back(start_);
    }
    ends_.push_back(now);
    if (ends_.size() > kEndsKept) {
        ends_.pop_front();
    }
    mark_ = now;
    last_ = record;
    draw(record.step == options_.steps);
}

double Progress::tokens_per_second() const {
    double seconds = 0.0, tokens = 0.0;
    for (const Span & span : recent_) {
        seconds += span.seconds;
        tokens += static_cast<double>(span.n_tokens);
    }
    return seconds > 0.0 ? tokens / seconds : 0.0;
}

double Progress::share_waited(double Span::*waited) const {
    double seconds = 0.0, sum = 0.0;
    for (const Span & span : recent_) {
        seconds += span.seconds;
        sum += span.*waited;
    }
    return seconds > 0.0 ? std::min(1.0, sum / seconds) : 0.0;
}

double Progress::seconds_left() const {
    if (ends_.size() < 2 || options_.steps <= last_.step) {
        return options_.steps > last_.step ? -1.0 : 0.0;
    }
    const double each = (ends_.back() - ends_.front()) / static_cast<double>(ends_.size() - 1);
    return each * static_cast<double>(options_.steps - last_.step);
}

// --- the line ------------------------------------------------------------------------------------

static std::string names_text(const std::vector<std::string> & names) {
    if (names.size() > kNamesShown) {
        return format("%zu hosts", names.size());
    }
    std::string text;
    for (const std::string & name : names) {
        text += (text.empty() ? "" : ", ") + name;
    }
    return text.empty() ? "nobody" : text;
}

// "120/1000 [==>             ] 12%"
std::string Progress::steps_text() const {
    const auto step = static_cast<unsigned long long>(last_.step);
    const auto all  = static_cast<unsigned long long>(options_.steps);
    if (all == 0) {
        return format("step %llu", step);
    }
    const auto  done = std::min(step, all);
    std::string text = format("%llu/%llu", step, all);
    if (options_.terminal == 1) {
        const auto full =
            static_cast<int>(static_cast<double>(done) / static_cast<double>(all) * kBarWidth);
        std::string bar(kBarWidth, ' ');
        std::fill(bar.begin(), bar.begin() + full, '=');
        if (full < kBarWidth) {
            bar[static_cast<size_t>(full)] = '>';
        }
        text += " [" + bar + "]";
    }
    return text + format(" %llu%%", 100 * done / all);
}

std::string Progress::round_text() const {
    if (last_.in.empty() && last_.late.empty()) {
        return "";
    }
    return format(" | round %llu: ", static_cast<unsigned long long>(last_.round)) +
           names_text(last_.in) + (last_.late.empty() ? "" : "; late: " + names_text(last_.late)) +
           " | up " + bytes_text(last_.up_bytes) + ", down " + bytes_text(last_.down_bytes) +
           format(" | waits %.0f%% for hosts", 100.0 * share_waited(&Span::waited_for_hosts));
}

std::string Progress::line() const {
    std::string text = steps_text() + format(" | loss %.4f", last_.loss);
    if (val_loss_ >= 0.0f) {
        text += format(" | val %.4f", val_loss_);
    }
    text += format(" | lr %.2e", last_.lr);
    text += " | " + count_text(tokens_per_second()) + " " + options_.unit + "/s";
    if (const double share = share_waited(&Span::waited); share > kWaitedShown) {
        text += format(" | waits %.0f%% for data", 100.0 * share);
    }
    text += " | " + bytes_text(memory()) + round_text();
    if (options_.steps > last_.step) {
        const double left = seconds_left();
        text += " | " + (left < 0.0 ? std::string("...") : time_text(left)) + " left";
    }
    return text;
}

// --- drawing -------------------------------------------------------------------------------------

// Columns of the terminal; 80 if unknown.
static size_t width_of(FILE * out) {
    winsize size = {};
    return ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 10 ? size.ws_col : 80;
}

void Progress::draw(bool force) {
    if (options_.terminal == 0) {
        const bool due =
            last_.step == 1 || (options_.every > 0 && last_.step % options_.every == 0);
        if (due || force) {
            std::fprintf(options_.out, "%s\n", line().c_str());
            std::fflush(options_.out);
        }
        return;
    }
    const double now = options_.seconds();
    if (!force && now - drawn_ < kRedrawAfter) {
        return;
    }
    drawn_                  = now;
    const std::string shown = line().substr(0, width_of(options_.out) - 1);
    std::fprintf(options_.out, "%s%s", kClearLine, shown.c_str());
    std::fflush(options_.out);
    line_shown_ = true;
}

void Progress::note(const std::string & text) {
    const bool again = line_shown_;
    if (line_shown_) {
        std::fputs(kClearLine, options_.out);
        line_shown_ = false;
    }
    std::fprintf(options_.out, "%s\n", text.c_str());
    std::fflush(options_.out);
    if (again) {
        draw(true);
    }
}

}  // namespace gt
