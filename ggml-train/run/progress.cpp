#include "ggml-train/run/progress.h"

#include "ggml-train/base/text.h"

#include <algorithm>
#include <fstream>
#include <sys/ioctl.h>
#include <unistd.h>

namespace gt {

static constexpr size_t kRecentSteps  = 20;    // tokens/s is the mean of these
static constexpr size_t kEndsKept     = 200;   // time left is extrapolated from these
static constexpr double kRedrawAfter  = 0.1;   // seconds
static constexpr double kWorkingAfter = 0.5;   // seconds without a new line
static constexpr double kWaitedShown  = 0.03;  // share of the time
static constexpr size_t kNamesShown   = 4;     // more hosts are only counted
static constexpr int    kBarWidth     = 16;
static constexpr char   kClearLine[]  = "\r\033[K";

uint64_t resident_bytes() {
    std::ifstream in("/proc/self/statm");
    uint64_t      total = 0, resident = 0;
    in >> total >> resident;
    return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
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

void Progress::end() {
    const std::lock_guard lock(mutex_);
    if (n_shown_ > 0) {
        working_.clear();
        draw(true, 0.0);
        std::fputc('\n', options_.out);
        std::fflush(options_.out);
        n_shown_ = 0;
    }
}

void Progress::step(const StepRecord & record) {
    const std::lock_guard lock(mutex_);
    const double          now = options_.seconds();
    recent_.push_back({now - mark_, record.n_tokens, record.waited, record.waited_for_hosts});
    if (recent_.size() > kRecentSteps) {
        recent_.pop_front();
    }
    if (ends_.empty()) {
        ends_.push_back(mark_);
    }
    ends_.push_back(now);
    if (ends_.size() > kEndsKept) {
        ends_.pop_front();
    }
    mark_ = now;
    last_ = record;
    working_.clear();
    draw(record.step == options_.steps, kRedrawAfter);
}

void Progress::val_loss(float loss) {
    const std::lock_guard lock(mutex_);
    val_loss_ = loss;
}

void Progress::working(const std::string & what) {
    if (options_.terminal == 1) {
        const std::lock_guard lock(mutex_);
        working_ = what;
        draw(false, kWorkingAfter);
    }
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
std::string Progress::steps_text(bool with_bar) const {
    const auto step = static_cast<unsigned long long>(last_.step);
    const auto all  = static_cast<unsigned long long>(options_.steps);
    if (all == 0) {
        return format("step %llu", step);
    }
    const auto  done = std::min(step, all);
    std::string text = format("%llu/%llu", step, all);
    if (with_bar) {
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

void Progress::add_round(std::vector<std::string> & fields) const {
    if (last_.in.empty() && last_.late.empty()) {
        return;
    }
    fields.push_back(format("waits %.0f%% for hosts", 100.0 * share_waited(&Span::waited_for_hosts))
    );
    fields.push_back(
        format("round %llu: ", static_cast<unsigned long long>(last_.round)) +
        names_text(last_.in) + (last_.late.empty() ? "" : "; late: " + names_text(last_.late))
    );
    fields.push_back("up " + bytes_text(last_.up_bytes) + ", down " + bytes_text(last_.down_bytes));
}

// After the count of steps, the most valuable first.
std::vector<std::string> Progress::fields() const {
    std::vector<std::string> fields;
    if (!working_.empty()) {
        fields.push_back(working_);
    }
    if (!recent_.empty()) {
        fields.push_back(format("loss %.4f", last_.loss));
        if (options_.steps > last_.step) {
            fields.push_back(time_text(seconds_left()) + " left");
        }
        fields.push_back(count_text(tokens_per_second()) + " " + options_.unit + "/s");
    }
    if (val_loss_ >= 0.0f) {
        fields.push_back(format("val %.4f", val_loss_));
    }
    if (last_.n_samples > 0 && last_.n_samples < options_.batch) {
        fields.push_back(format(
            "%llu of %llu samples", static_cast<unsigned long long>(last_.n_samples),
            static_cast<unsigned long long>(options_.batch)
        ));
    }
    if (const double share = share_waited(&Span::waited); share > kWaitedShown) {
        fields.push_back(format("waits %.0f%% for data", 100.0 * share));
    }
    add_round(fields);
    if (!recent_.empty()) {
        fields.push_back(format("lr %.2e", last_.lr));
    }
    fields.push_back(bytes_text(memory()));
    return fields;
}

std::string Progress::line(size_t width) const {
    std::string text = steps_text(false);
    bool        all  = true;
    for (const std::string & field : fields()) {
        if (text.size() + 3 + field.size() > width) {
            all = false;
            break;
        }
        text += " | " + field;
    }
    const std::string plain = steps_text(false), with_bar = steps_text(true);
    if (options_.terminal == 1 && all && text.size() + with_bar.size() - plain.size() <= width) {
        return with_bar + text.substr(plain.size());
    }
    return text;
}

// --- drawing -------------------------------------------------------------------------------------

// Columns of the terminal; 80 if unknown.
size_t Progress::width() const {
    winsize size = {};
    if (options_.width) {
        return options_.width();
    }
    const bool known = ::ioctl(::fileno(options_.out), TIOCGWINSZ, &size) == 0 && size.ws_col > 10;
    return known ? size.ws_col : 80;
}

// Removes the line. In a terminal that has become narrower it is broken into several rows.
void Progress::erase() {
    const size_t n_above = n_shown_ > 0 ? (n_shown_ - 1) / width() : 0;
    if (n_above > 0) {
        std::fprintf(options_.out, "\033[%zuA\r\033[J", n_above);
    } else {
        std::fputs(kClearLine, options_.out);
    }
    n_shown_ = 0;
}

void Progress::draw(bool force, double after) {
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
    if (!force && now - drawn_ < after) {
        return;
    }
    drawn_                  = now;
    const std::string shown = line(width() - 1).substr(0, width() - 1);
    erase();
    std::fputs(shown.c_str(), options_.out);
    std::fflush(options_.out);
    n_shown_ = shown.size();
}

void Progress::note(const std::string & text) {
    const std::lock_guard lock(mutex_);
    const bool            again = n_shown_ > 0;
    if (again) {
        erase();
    }
    std::fprintf(options_.out, "%s\n", text.c_str());
    std::fflush(options_.out);
    if (again) {
        draw(true, 0.0);
    }
}

}  // namespace gt
