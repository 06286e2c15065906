// ggml-train/step-line.cpp — how the step log looks to people; see step-log.h.
#include "ggml-train/file.h"
#include "ggml-train/step-log.h"

#include <algorithm>
#include <sys/ioctl.h>
#include <unistd.h>

namespace gt {

// A few by name, more of them by number.
static std::string names_text(const std::vector<std::string> & names) {
    if (names.size() > 4) {
        return format("%zu hosts", names.size());
    }
    std::string text;
    for (const std::string & name : names) {
        text += (text.empty() ? "" : ", ") + name;
    }
    return text.empty() ? "nobody" : text;
}

std::string StepLog::line() const {
    std::string text;
    if (options_.steps > 0) {
        const double share =
            std::min(1.0, static_cast<double>(last_.step) / static_cast<double>(options_.steps));
        text = format(
            "%llu/%llu", static_cast<unsigned long long>(last_.step),
            static_cast<unsigned long long>(options_.steps)
        );
        if (options_.terminal == 1) {
            constexpr int kWidth = 16;
            const int     full   = static_cast<int>(share * kWidth);
            std::string   bar(kWidth, ' ');
            std::fill(bar.begin(), bar.begin() + full, '=');
            if (full < kWidth) {
                bar[full] = '>';
            }
            text += " [" + bar + "]";
        }
        text += format(
            " %llu%%", static_cast<unsigned long long>(
                           100 * std::min(last_.step, options_.steps) / options_.steps
                       )
        );
    } else {
        text = format("step %llu", static_cast<unsigned long long>(last_.step));
    }
    text += format(" | loss %.4f", last_.loss);
    if (val_loss_ >= 0.0f) {
        text += format(" | val %.4f", val_loss_);
    }
    text += format(" | lr %.2e", last_.lr);
    text += " | " + count_text(tokens_per_second()) + " " + options_.unit + "/s";
    if (const double share = share_waited(&Span::waited); share > 0.03) {
        text += format(" | waits %.0f%% for data", 100.0 * share);
    }
    text += " | " + bytes_text(options_.memory());
    if (!last_.in.empty() || !last_.late.empty()) {
        text += format(" | round %llu: ", static_cast<unsigned long long>(last_.round)) +
                names_text(last_.in);
        text += last_.late.empty() ? "" : "; late: " + names_text(last_.late);
        text += " | up " + bytes_text(last_.up_bytes) + ", down " + bytes_text(last_.down_bytes);
        text += format(" | waits %.0f%% for hosts", 100.0 * share_waited(&Span::waited_for_hosts));
    }
    const double left = seconds_left();
    if (options_.steps > last_.step) {
        text += " | " + (left < 0.0 ? std::string("...") : time_text(left)) + " left";
    }
    return text;
}

// Columns of the terminal; 80 if it does not say.
static size_t width_of(FILE * out) {
    winsize size = {};
    return ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 10 ? size.ws_col : 80;
}

void StepLog::draw(bool force) {
    if (options_.terminal == 0) {
        const bool due =
            last_.step == 1 || (options_.every > 0 && last_.step % options_.every == 0);
        if (due || force) {
            std::fprintf(options_.out, "%s\n", line().c_str());
            std::fflush(options_.out);
        }
        return;
    }
    const double time = now();
    if (!force && time - drawn_ < 0.1) {  // an eye sees no more, and a terminal is slow
        return;
    }
    drawn_ = time;
    std::fprintf(options_.out, "\r\033[K%s", line().substr(0, width_of(options_.out) - 1).c_str());
    std::fflush(options_.out);
    line_shown_ = true;
}

void StepLog::clear() {
    if (line_shown_) {
        std::fputs("\r\033[K", options_.out);
        line_shown_ = false;
    }
}

void StepLog::note(const std::string & text) {
    if (!options_.enabled) {
        return;
    }
    const bool again = line_shown_;
    clear();
    std::fprintf(options_.out, "%s\n", text.c_str());
    std::fflush(options_.out);
    if (again) {
        draw(true);
    }
}

// What a terminal would take for a command, or not be able to show, becomes a dot.
static std::string printable(const std::string & text) {
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        out += c == '\n' || c == '\t' || (byte >= 32 && byte != 127) ? c : '.';
    }
    return out;
}

void StepLog::sample(uint64_t step, const std::string & prompt, const std::string & text) {
    mark();
    std::string shown = "    " + printable(prompt + text);
    for (size_t at = 0; (at = shown.find('\n', at)) != std::string::npos; at += 5) {
        shown.insert(at + 1, "    ");
    }
    note(format("step %llu: sample\n", static_cast<unsigned long long>(step)) + shown);
}

}  // namespace gt
