#include "ggml-train/step-log.h"

#include "ggml-train/file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <unistd.h>

namespace gt {

static constexpr size_t kRecentSteps = 20;   // tokens/s is the mean of these
static constexpr size_t kEndsKept    = 200;  // time left is extrapolated from these
static constexpr char kCsvHead[] = "step,tokens,seconds,loss,lr,grad_norm,tokens_per_second,memory_"
                                   "bytes,hosts,missing,sent_bytes,val_loss,accuracy\n";

std::string time_text(double seconds) {
    const auto s = static_cast<long long>(std::llround(std::max(0.0, seconds)));
    if (s >= 86400) {
        return format("%lldd%02lldh", s / 86400, s % 86400 / 3600);
    }
    if (s >= 3600) {
        return format("%lldh%02lldm", s / 3600, s % 3600 / 60);
    }
    return s >= 60 ? format("%lldm%02llds", s / 60, s % 60) : format("%llds", s);
}

std::string count_text(double n) {
    const char * const units[] = {"", "k", "M", "G", "T"};
    int                unit    = 0;
    while (n >= 999.5 && unit < 4) {
        n /= 1000.0;
        ++unit;
    }
    const int digits = unit == 0 && n >= 10.0 ? 0 : n < 9.995 ? 2 : n < 99.95 ? 1 : 0;
    return format("%.*f%s", digits, n, units[unit]);
}

uint64_t resident_bytes() {
    std::ifstream in("/proc/self/statm");
    uint64_t      total = 0, resident = 0;
    in >> total >> resident;
    return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// JSON knows no NaN and no infinity.
static std::string number(double x, const char * none = "null") {
    return std::isfinite(x) ? format("%.9g", x) : none;
}

// Step and seconds of a metrics line; false if the line is not one of ours, or torn.
static bool
parse_jsonl(const std::string & line, uint64_t & step, uint64_t & tokens, double & seconds) {
    unsigned long long s = 0, n = 0;
    const int          got = std::sscanf(
                 line.c_str(), "{\"step\":%llu,\"tokens\":%llu,\"seconds\":%lf,", &s, &n, &seconds
             );
    step   = s;
    tokens = n;
    return got == 3 && line.back() == '}';
}

static bool parse_csv(const std::string & line, uint64_t & step) {
    unsigned long long s = 0;
    step                 = std::sscanf(line.c_str(), "%llu,", &s) == 1 ? s : 0;
    return std::count(line.begin(), line.end(), ',') ==
           std::count(kCsvHead, kCsvHead + sizeof kCsvHead, ',');
}

// --- metrics files -------------------------------------------------------------------------------

// Rewrites a file with those of its whole lines that `keep` accepts; nothing is done if all are.
template <class Keep>
static void keep_lines(const std::string & path, Keep && keep) {
    std::ifstream in(path, std::ios::binary);
    if (!in) {
        return;
    }
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    std::string       kept;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = text.find('\n', begin);
        if (end == std::string::npos) {
            break;  // torn
        }
        const std::string line = text.substr(begin, end - begin);
        if (!line.empty() && keep(line)) {
            kept += line + "\n";
        }
        begin = end + 1;
    }
    if (kept != text) {
        AsideFile file(path);
        file.write(kept.data(), kept.size());
        file.commit();
    }
}

static FILE * open_append(const std::string & path) {
    FILE * file = std::fopen(path.c_str(), "ab");
    if (file == nullptr) {
        throw Error(path + ": cannot be written: " + std::strerror(errno));
    }
    return file;
}

void StepLog::open_metrics(const std::string & folder, uint64_t step) {
    const std::string jsonl = folder + "/metrics.jsonl", csv = folder + "/metrics.csv";
    keep_lines(jsonl, [&](const std::string & line) {
        uint64_t s = 0, tokens = 0;
        double   seconds = 0.0;
        if (!parse_jsonl(line, s, tokens, seconds) || s > step) {
            return false;
        }
        n_tokens_ = std::max(n_tokens_, tokens);
        before_   = std::max(before_, seconds);
        return true;
    });
    keep_lines(csv, [&](const std::string & line) {
        uint64_t s = 0;
        return parse_csv(line, s) && s <= step;
    });
    jsonl_ = open_append(jsonl);
    csv_   = open_append(csv);
    if (std::fseek(csv_, 0, SEEK_END) == 0 && std::ftell(csv_) == 0) {
        std::fputs(kCsvHead, csv_);
    }
}

void StepLog::write(const std::string & json, const std::string & csv) {
    // A full disk here must not end a run: the next checkpoint will say it clearly.
    std::fputs(json.c_str(), jsonl_);
    std::fflush(jsonl_);
    std::fputs(csv.c_str(), csv_);
    std::fflush(csv_);
}

// --- steps ---------------------------------------------------------------------------------------

StepLog::StepLog(const std::string & folder, uint64_t step, StepLogOptions options)
    : options_(std::move(options)) {
    if (!options_.seconds) {
        options_.seconds = [] {
            return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()
            )
                .count();
        };
    }
    if (!options_.memory) {
        options_.memory = resident_bytes;
    }
    if (options_.terminal < 0) {
        options_.terminal = ::isatty(::fileno(options_.out));
    }
    last_.step = step;
    start_ = mark_ = now();
    if (options_.enabled) {
        open_metrics(folder, step);
    }
}

StepLog::~StepLog() {
    if (!options_.enabled) {
        return;
    }
    if (line_shown_) {
        draw(true);
        std::fputc('\n', options_.out);
        std::fflush(options_.out);
    }
    std::fclose(jsonl_);
    std::fclose(csv_);
}

double StepLog::now() const {
    return options_.seconds();
}

void StepLog::mark() {
    mark_ = now();
}

double StepLog::tokens_per_second() const {
    double seconds = 0.0, tokens = 0.0;
    for (const Span & span : recent_) {
        seconds += span.seconds;
        tokens += static_cast<double>(span.n_tokens);
    }
    return seconds > 0.0 ? tokens / seconds : 0.0;
}

double StepLog::share_waited(double Span::*waited) const {
    double seconds = 0.0, sum = 0.0;
    for (const Span & span : recent_) {
        seconds += span.seconds;
        sum += span.*waited;
    }
    return seconds > 0.0 ? std::min(1.0, sum / seconds) : 0.0;
}

double StepLog::seconds_left() const {
    if (ends_.size() < 2 || options_.steps <= last_.step) {
        return options_.steps > last_.step ? -1.0 : 0.0;
    }
    const double each = (ends_.back() - ends_.front()) / static_cast<double>(ends_.size() - 1);
    return each * static_cast<double>(options_.steps - last_.step);
}

// Names of hosts are letters, digits and ._- only.
static std::string name_list(const std::vector<std::string> & names) {
    std::string text;
    for (const std::string & name : names) {
        text += (text.empty() ? "\"" : ",\"") + name + "\"";
    }
    return "[" + text + "]";
}

// What a line of metrics.jsonl says of the round; nothing alone.
static std::string round_fields(const StepRecord & record) {
    if (record.in.empty() && record.late.empty()) {
        return "";
    }
    return format(
        ",\"round\":%llu,\"in\":%s,\"late\":%s,\"up_bytes\":%llu,\"down_bytes\":%llu,"
        "\"waited_for_hosts_seconds\":%.6f",
        static_cast<unsigned long long>(record.round), name_list(record.in).c_str(),
        name_list(record.late).c_str(), static_cast<unsigned long long>(record.up_bytes),
        static_cast<unsigned long long>(record.down_bytes), record.waited_for_hosts
    );
}

void StepLog::step(const StepRecord & record) {
    if (!options_.enabled) {
        return;
    }
    const double time = now();
    recent_.push_back({time - mark_, record.n_tokens, record.waited, record.waited_for_hosts});
    if (recent_.size() > kRecentSteps) {
        recent_.pop_front();
    }
    if (ends_.empty()) {
        ends_.push_back(start_);
    }
    ends_.push_back(time);
    if (ends_.size() > kEndsKept) {
        ends_.pop_front();
    }
    mark_ = time;
    last_ = record;
    n_tokens_ += record.n_tokens;

    const auto   step    = static_cast<unsigned long long>(record.step);
    const auto   tokens  = static_cast<unsigned long long>(n_tokens_);
    const auto   sent    = static_cast<unsigned long long>(record.n_sent);
    const double seconds = before_ + time - start_, speed = tokens_per_second();
    const auto   memory  = static_cast<unsigned long long>(options_.memory());
    const size_t n_hosts = std::max<size_t>(1, record.in.size());
    write(
        format(
            "{\"step\":%llu,\"tokens\":%llu,\"seconds\":%.3f,\"loss\":%s,\"lr\":%s,\"grad_norm\":%"
            "s,"
            "\"step_seconds\":%.6f,\"tokens_per_second\":%s,\"memory_bytes\":%llu,\"samples\":%llu,"
            "\"hosts\":%zu,\"missing\":%zu,\"sent_bytes\":%llu,\"waited_seconds\":%.6f%s}\n",
            step, tokens, seconds, number(record.loss).c_str(), number(record.lr).c_str(),
            number(record.grad_norm).c_str(), recent_.back().seconds, number(speed).c_str(), memory,
            static_cast<unsigned long long>(record.n_samples), n_hosts, record.late.size(), sent,
            record.waited, round_fields(record).c_str()
        ),
        format(
            "%llu,%llu,%.3f,%s,%s,%s,%s,%llu,%zu,%zu,%llu,,\n", step, tokens, seconds,
            number(record.loss, "").c_str(), number(record.lr, "").c_str(),
            number(record.grad_norm, "").c_str(), number(speed, "").c_str(), memory, n_hosts,
            record.late.size(), sent
        )
    );
    draw(record.step == options_.steps);
}

void StepLog::eval(uint64_t step, float val_loss, float accuracy) {
    if (!options_.enabled) {
        return;
    }
    mark();
    val_loss_                = val_loss;
    const auto   s           = static_cast<unsigned long long>(step);
    const auto   tokens      = static_cast<unsigned long long>(n_tokens_);
    const double seconds     = before_ + now() - start_;
    const bool   known       = accuracy >= 0.0f;
    const auto   share       = known ? number(accuracy) : "";
    const auto   share_field = known ? ",\"accuracy\":" + share : "";
    write(
        format(
            "{\"step\":%llu,\"tokens\":%llu,\"seconds\":%.3f,\"val_loss\":%s%s}\n", s, tokens,
            seconds, number(val_loss).c_str(), share_field.c_str()
        ),
        format(
            "%llu,%llu,%.3f,,,,,,,,,%s,%s\n", s, tokens, seconds, number(val_loss, "").c_str(),
            share.c_str()
        )
    );
    note(
        format("step %llu: validation loss %.4f", s, val_loss) +
        (known ? format(", %.1f %% right", 100.0 * accuracy) : "")
    );
}

}  // namespace gt
