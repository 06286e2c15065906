#include "ggml-train/run/step-log.h"

#include "ggml-train/base/file.h"
#include "ggml-train/base/json.h"
#include "ggml-train/base/text.h"
#include "ggml-train/run/run-status.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>

namespace gt {

static constexpr char kCsvHead[] = "step,tokens,seconds,loss,lr,grad_norm,tokens_per_second,memory_"
                                   "bytes,hosts,missing,sent_bytes,val_loss,accuracy\n";

// --- metrics files -------------------------------------------------------------------------------

// The step of a row of metrics.csv, 0 for the head; nothing if the row is torn.
static std::optional<uint64_t> csv_step(const std::string & line) {
    if (std::count(line.begin(), line.end(), ',') !=
        std::count(std::begin(kCsvHead), std::end(kCsvHead), ',')) {
        return std::nullopt;
    }
    uint64_t step = 0;
    std::from_chars(line.data(), line.data() + line.size(), step);
    return step;
}

// Rewrites a file with its complete lines that `keep` accepts, unless these are all of it.
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
    const bool        fresh = step == 0;  // an earlier start may have got as far as its validation
    keep_lines(jsonl, [&](const std::string & line) {
        const std::optional<Json> json  = Json::parse(line);
        const auto                field = [&](const char * key) {
            return json ? json->number(key) : std::nullopt;
        };
        const auto number = field("step"), tokens = field("tokens"), seconds = field("seconds");
        if (fresh || !number || !tokens || !seconds || *number > static_cast<double>(step)) {
            return false;
        }
        n_tokens_ = std::max(n_tokens_, static_cast<uint64_t>(*tokens));
        before_   = std::max(before_, *seconds);
        if (status_) {
            const auto loss = field("loss"), val = field("val_loss");
            if (loss) {
                status_->old_step(static_cast<uint64_t>(*number), *loss);
            } else if (val) {
                status_->eval(static_cast<uint64_t>(*number), *val, field("accuracy").value_or(-1));
            }
        }
        return true;
    });
    keep_lines(csv, [&](const std::string & line) {
        const std::optional<uint64_t> row = csv_step(line);
        return !fresh && row && *row <= step;
    });
    jsonl_ = open_append(jsonl);
    csv_   = open_append(csv);
    if (std::fseek(csv_, 0, SEEK_END) == 0 && std::ftell(csv_) == 0) {
        std::fputs(kCsvHead, csv_);
    }
}

// Ignores a full disk: it must not end a run here, and the next checkpoint reports it.
void StepLog::write(const std::string & json, const std::string & csv) {
    std::fputs((json + "\n").c_str(), jsonl_);
    std::fflush(jsonl_);
    std::fputs((csv + "\n").c_str(), csv_);
    std::fflush(csv_);
}

// --- records -------------------------------------------------------------------------------------

StepLog::StepLog(const std::string & folder, uint64_t step, StepLogOptions options)
    : enabled_(options.enabled), status_(options.status), progress_(step, std::move(options)) {
    if (enabled_) {
        open_metrics(folder, step);
    }
}

StepLog::~StepLog() {
    if (enabled_) {
        std::fclose(jsonl_);
        std::fclose(csv_);
    }
}

static double rounded(double x, double decimals) {
    const double scale = std::pow(10.0, decimals);
    return std::round(x * scale) / scale;
}

// A field of metrics.csv; empty for NaN and Inf.
static std::string csv_number(double x) {
    return std::isfinite(x) ? format("%.9g", x) : "";
}

static Json names(const std::vector<std::string> & list) {
    Json json = Json::array();
    for (const std::string & name : list) {
        json.push(name);
    }
    return json;
}

void StepLog::step(const StepRecord & record) {
    if (!enabled_) {
        return;
    }
    progress_.step(record);
    n_tokens_ += record.n_tokens;
    const double   time = seconds(), speed = progress_.tokens_per_second();
    const uint64_t memory  = progress_.memory();
    const size_t   n_hosts = std::max<size_t>(1, record.in.size());
    if (status_) {
        status_->step(record, speed, time, progress_.seconds_left());
    }

    Json json = Json::object();
    json.set("step", record.step)
        .set("tokens", n_tokens_)
        .set("seconds", rounded(time, 3))
        .set("loss", record.loss)
        .set("lr", record.lr)
        .set("grad_norm", record.grad_norm)
        .set("step_seconds", rounded(progress_.step_seconds(), 6))
        .set("tokens_per_second", rounded(speed, 6))
        .set("memory_bytes", memory)
        .set("samples", record.n_samples)
        .set("hosts", n_hosts)
        .set("missing", record.late.size())
        .set("sent_bytes", record.n_sent)
        .set("waited_seconds", rounded(record.waited, 6));
    if (!record.in.empty() || !record.late.empty()) {
        json.set("round", record.round)
            .set("in", names(record.in))
            .set("late", names(record.late))
            .set("up_bytes", record.up_bytes)
            .set("down_bytes", record.down_bytes)
            .set("waited_for_hosts_seconds", rounded(record.waited_for_hosts, 6));
    }
    write(
        json.text(),
        format(
            "%llu,%llu,%.3f,%s,%s,%s,%s,%llu,%zu,%zu,%llu,,",
            static_cast<unsigned long long>(record.step),
            static_cast<unsigned long long>(n_tokens_), time, csv_number(record.loss).c_str(),
            csv_number(record.lr).c_str(), csv_number(record.grad_norm).c_str(),
            csv_number(speed).c_str(), static_cast<unsigned long long>(memory), n_hosts,
            record.late.size(), static_cast<unsigned long long>(record.n_sent)
        )
    );
}

void StepLog::eval(uint64_t step, float val_loss, float accuracy, float bits_per_byte) {
    if (!enabled_) {
        return;
    }
    progress_.mark();
    progress_.val_loss(val_loss);
    if (status_) {
        status_->eval(step, val_loss, accuracy);
    }
    const auto   number = static_cast<unsigned long long>(step);
    const double time   = seconds();
    const bool   known = accuracy >= 0.0f, is_text = bits_per_byte >= 0.0f;

    Json json = Json::object();
    json.set("step", step).set("tokens", n_tokens_).set("seconds", rounded(time, 3));
    json.set("val_loss", val_loss);
    if (known) {
        json.set("accuracy", accuracy);
    }
    if (is_text) {
        json.set("val_bits_per_byte", bits_per_byte);
    }
    write(
        json.text(),
        format(
            "%llu,%llu,%.3f,,,,,,,,,%s,%s", number, static_cast<unsigned long long>(n_tokens_),
            time, csv_number(val_loss).c_str(), known ? csv_number(accuracy).c_str() : ""
        )
    );
    note(
        format("step %llu: validation loss %.4f", number, val_loss) +
        (known ? format(", accuracy %.1f %%", 100.0 * accuracy) : "") +
        (is_text
             ? format(", perplexity %.4g, %.4f bits per byte", std::exp(val_loss), bits_per_byte)
             : "")
    );
}

void StepLog::note(const std::string & text) {
    if (enabled_) {
        progress_.note(text);
    }
}

void StepLog::working(const std::string & what) {
    if (enabled_) {
        progress_.working(what);
    }
}

void StepLog::sample(uint64_t step, const std::string & prompt, const std::string & text) {
    progress_.mark();
    const std::string all = printable(prompt + text);
    if (status_) {
        status_->sample(step, all);
    }
    std::string shown = "    " + all.substr(std::min(all.find_first_not_of('\n'), all.size()));
    for (size_t at = 0; (at = shown.find('\n', at)) != std::string::npos; at += 5) {
        shown.insert(at + 1, "    ");
    }
    note(format("step %llu: sample\n", static_cast<unsigned long long>(step)) + shown);
}

}  // namespace gt
