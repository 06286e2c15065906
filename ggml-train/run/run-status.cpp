#include "ggml-train/run/run-status.h"

namespace gt {

static constexpr size_t   kTrafficSteps = 200;  // bytes per day are those of these
static constexpr size_t   kWarmUpSteps  = 10;   // before that they are not told
static constexpr size_t   kSamplesKept  = 20;
static constexpr size_t   kFaultsKept   = 50;
static constexpr uint64_t kLateRounds   = 3;  // in a row: worth a line

RunStatus::RunStatus(RunTitle title, Clock clock) : title_(std::move(title)), clock_(clock) {
    hosts_[title_.host].seen = clock_();
}

void RunStatus::idle(const std::string & state, const std::string & text) {
    const std::lock_guard lock(mutex_);
    state_ = state;
    text_  = text;
}

void RunStatus::old_step(uint64_t step, double loss) {
    const std::lock_guard lock(mutex_);
    last_.step = step;
    last_.loss = static_cast<float>(loss);
    hosts_[title_.host].curve.add(step, loss);
}

void RunStatus::step(
    const StepRecord & record, double units_s, double seconds, double seconds_left
) {
    const std::lock_guard lock(mutex_);
    state_   = "running";
    last_    = record;
    units_s_ = units_s;
    seconds_ = seconds;
    left_    = seconds_left;
    traffic_.push_back({clock_(), record.up_bytes, record.down_bytes});
    if (traffic_.size() > kTrafficSteps) {
        traffic_.pop_front();
    }
    note_round(record);
    Host & us  = hosts_[title_.host];
    us.state   = State::training;
    us.seen    = clock_();
    us.loss    = record.loss;
    us.units_s = units_s;
    us.samples = record.hosts.empty() ? record.n_samples : us.samples;
    us.up      = record.up_bytes;
    us.down    = record.down_bytes;
    us.curve.add(record.step, record.loss);
}

void RunStatus::note_round(const StepRecord & record) {
    for (const HostReport & report : record.hosts) {
        take(report, record.round);
    }
}

// A host that stops sending without a word is late, and gone when the run removes it; one that says
// goodbye is removed at once.
void RunStatus::take(const HostReport & report, uint64_t step) {
    const bool is_new = !hosts_.contains(report.name);
    if (is_new && !report.in) {
        return;
    }
    Host &      host   = hosts_[report.name];
    const State before = host.state;
    const auto  since  = static_cast<unsigned long long>(host.step);
    if (report.in) {
        host.state   = State::training;
        host.n_late  = 0;
        host.seen    = clock_();
        host.step    = step;
        host.samples = report.samples;
        host.units_s = report.tokens_s;
        host.up      = report.up_bytes;
        host.down    = report.down_bytes;
        if (report.loss > 0.0 && report.name != title_.host) {
            host.loss = report.loss;
            host.curve.add(step, report.loss);
        }
        if (before == State::gone || before == State::left) {
            add_fault(report.name + " is back");
        }
        return;
    }
    if (report.is_member) {
        host.state = State::late;
        if (++host.n_late == kLateRounds) {
            add_fault(report.name + format(" has sent nothing since step %llu", since));
        }
    } else if (before == State::late) {
        host.state = State::gone;
        add_fault(
            report.name + format(" is gone since step %llu; the run continues without it", since)
        );
    } else if (before == State::training) {
        host.state = State::left;
        add_fault(report.name + format(" left after step %llu", since));
    }
}

void RunStatus::eval(uint64_t step, double loss, double accuracy) {
    const std::lock_guard lock(mutex_);
    val_loss_ = loss;
    accuracy_ = accuracy;
    validation_.add(step, loss);
}

void RunStatus::sample(uint64_t step, const std::string & text) {
    const std::lock_guard lock(mutex_);
    samples_.emplace_front(step, text);
    if (samples_.size() > kSamplesKept) {
        samples_.pop_back();
    }
}

void RunStatus::fault(const std::string & text) {
    const std::lock_guard lock(mutex_);
    add_fault(text);
}

void RunStatus::add_fault(const std::string & text) {
    faults_.push_front({clock_(), text});
    if (faults_.size() > kFaultsKept) {
        faults_.pop_back();
    }
}

void RunStatus::ended(bool finished) {
    const std::lock_guard lock(mutex_);
    state_ = finished ? "finished" : "stopped";
}

RunStatus::Traffic RunStatus::traffic() const {
    if (traffic_.size() < kWarmUpSteps) {
        return {};
    }
    const Point &a = traffic_.front(), &b = traffic_.back();
    const double days = (b.time - a.time) / 86400.0;
    return {static_cast<double>(b.up - a.up) / days, static_cast<double>(b.down - a.down) / days};
}

RunStatus::Traffic RunStatus::per_day() const {
    const std::lock_guard lock(mutex_);
    return traffic();
}

// --- JSON ----------------------------------------------------------------------------------------

Json RunStatus::json_of(const Host & host, double now) {
    static const char * const names[] = {"training", "late", "gone", "left"};
    Json                      json    = Json::object();
    json.set("state", names[static_cast<int>(host.state)])
        .set("age", now - host.seen)
        .set("samples", host.samples)
        .set("units_s", host.units_s)
        .set("up", host.up)
        .set("down", host.down)
        .set("curve", host.curve.json());
    if (host.loss > 0.0) {
        json.set("loss", host.loss);
    }
    return json;
}

std::string RunStatus::json() const {
    const std::lock_guard lock(mutex_);
    const double          now   = clock_();
    Json                  hosts = Json::array(), samples = Json::array(), faults = Json::array();
    for (const auto & [name, host] : hosts_) {
        hosts.push(json_of(host, now).set("name", name).set("us", name == title_.host));
    }
    for (const auto & [step, text] : samples_) {
        samples.push(Json::object().set("step", step).set("text", text));
    }
    for (const Fault & fault : faults_) {
        faults.push(Json::object().set("age", now - fault.time).set("text", fault.text));
    }
    Json json = Json::object();
    json.set("version", kVersion)
        .set("run", title_.run)
        .set("model", title_.model)
        .set("state", state_)
        .set("unit", title_.unit)
        .set("step", last_.step)
        .set("steps", title_.steps)
        .set("batch", title_.batch)
        .set("seconds", seconds_);
    if (state_ == "waiting" || state_ == "paused") {
        json.set("text", text_);
    }
    if (last_.step > 0) {
        json.set("loss", last_.loss);
    }
    if (units_s_ > 0.0) {
        json.set("units_s", units_s_).set("seconds_left", left_);
    }
    if (val_loss_ >= 0.0) {
        json.set("val_loss", val_loss_).set("validation", validation_.json());
    }
    if (accuracy_ >= 0.0) {
        json.set("accuracy", accuracy_);
    }
    if (const Traffic traffic_now = traffic(); traffic_now.up > 0.0) {
        json.set("up_day", traffic_now.up).set("down_day", traffic_now.down);
    }
    return json.set("hosts", hosts).set("samples", samples).set("faults", faults).text();
}

}  // namespace gt
