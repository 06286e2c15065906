// comm/http/http-client.cpp — the network thread: starts, retries and hedges requests.
#include "comm/http/http-client.h"

#include "comm/http/http-transfer.h"
#include "ggml-train/base/plural.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

namespace gt {

namespace {

constexpr auto kFirstPause      = std::chrono::milliseconds(100);
constexpr auto kMaxPause        = std::chrono::milliseconds(5000);
constexpr auto kTrouble         = std::chrono::milliseconds(4000);  // without an answer: told
constexpr int  kMaxRetryAfter_s = 60;
constexpr int  kFull            = 507;  // a status

struct Batch {
    size_t                  n_left = 0;
    std::condition_variable done;
};

struct HttpAddress {
    std::string base;
    std::string error{};  // of the last attempt there
    bool        refused_key = false;
};

// Tells the user once that all attempts fail, and once that they succeed again.
struct Health {
    const char *      failing;
    const char *      good;
    Clock::time_point failing_since{};  // no attempt has succeeded since then
    bool              is_told = false;

    void note(bool is_good, const std::string & why, const HttpOptions & options) {
        const auto now = Clock::now();
        if (is_good) {
            failing_since = {};
            if (std::exchange(is_told, false)) {
                options.on_trouble(good);
            }
            return;
        }
        failing_since = failing_since == Clock::time_point{} ? now : failing_since;
        if (options.on_trouble && !is_told && now - failing_since > kTrouble) {
            is_told = true;
            options.on_trouble(failing + (" (" + why) + "); trying again");
        }
    }
};

struct Job {
    const HttpRequest *       request  = nullptr;
    HttpResponse *            response = nullptr;
    Batch *                   batch    = nullptr;  // null: a stream
    HttpSink *                sink     = nullptr;
    std::unique_ptr<Transfer> transfer;
    bool                      running    = false;
    int                       n_tries    = 0;
    Clock::time_point         not_before = Clock::now();
    Clock::time_point         busy_since{};  // first answer with a transient error status
    Clock::time_point         began{};       // of this attempt

    // Hedging: a packet that is lost at the end of a transfer is detected late, and the same request
    // on another connection may finish earlier. The slower one runs to its end, so that its
    // connection stays usable; the caller may have returned by then, so it has its own buffers.
    struct Own {
        HttpRequest request;
        Bytes       body, into;
    };
    std::unique_ptr<Own>      own;   // if it may be hedged
    std::span<uint8_t>        into;  // the caller's buffer
    std::unique_ptr<Transfer> second;
    bool                      answered = false;
};

}  // namespace

std::string HttpResponse::header(const std::string & name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
}

std::string HttpResponse::text() const {
    return {body.begin(), body.end()};
}

static void curl_start() {
    static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
    GT_CHECK(started == CURLE_OK, "curl_global_init failed");
}

struct HttpClient::Impl {
    HttpOptions                            options;
    RunKeys                                keys;
    CURLM *                                multi = nullptr;
    std::mutex                             mutex;  // inbox, stopping, and every Batch
    std::list<Job>                         inbox;
    bool                                   stopping = false;
    std::list<Job>                         jobs;  // the network thread's own
    std::vector<std::unique_ptr<Transfer>> idle;
    std::vector<HttpAddress>               addresses;          // the first one is in use
    Clock::duration typical = std::chrono::milliseconds(300);  // of requests that may be hedged
    Health          health{"does not answer", "answers again"};
    Health          room{"refuses what we send", "takes values again"};  // of puts: it is full
    std::mt19937_64 random{std::random_device{}()};
    std::thread     thread;

    explicit Impl(const HttpOptions & o) : options(o), keys(o.keys ? *o.keys : RunKeys{}) {
        curl_start();
        options.keys = o.keys ? &keys : nullptr;
        addresses.push_back({o.base});
        for (const std::string & base : o.more) {
            addresses.push_back({base});
        }
        multi = curl_multi_init();
        curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, long(4 * options.n_connections + 8));
        curl_multi_setopt(multi, CURLMOPT_PIPELINING, long(CURLPIPE_NOTHING));
        thread = std::thread([this] { run(); });
    }

    ~Impl() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            stopping = true;
        }
        curl_multi_wakeup(multi);
        thread.join();
        jobs.clear();
        idle.clear();
        curl_multi_cleanup(multi);
    }

    void run() {
        for (;;) {
            {
                std::lock_guard<std::mutex> lock(mutex);
                if (stopping) {
                    return;
                }
                jobs.splice(jobs.end(), inbox);
            }
            start_due();
            start_hedges();
            int n_running = 0;
            curl_multi_perform(multi, &n_running);
            take_finished();
            const auto timeout = pause_until_next();
            curl_multi_poll(multi, nullptr, 0, int(timeout.count()), nullptr);
            for (Job & job : jobs) {
                for (Transfer * transfer : {job.transfer.get(), job.second.get()}) {
                    if (transfer && job.running && transfer->paused()) {
                        transfer->resume();
                    }
                }
            }
        }
    }

    // At most n_connections large requests run at a time; small ones and long polls never wait.
    void start_due() {
        int n_bulk = 0;
        for (const Job & job : jobs) {
            n_bulk += job.running && job.request->bulk ? 1 : 0;
        }
        const auto now = Clock::now();
        for (Job & job : jobs) {
            if (job.running || job.not_before > now) {
                continue;
            }
            if (job.request->bulk && n_bulk >= options.n_connections) {
                continue;
            }
            if (!job.transfer) {
                job.transfer = take_idle();
            }
            n_bulk += job.request->bulk ? 1 : 0;
            job.running = true;
            job.began   = now;
            job.transfer->begin(*job.request, job.sink, job.n_tries == 0, addresses[0].base);
            job.n_tries++;
            curl_multi_add_handle(multi, job.transfer->handle());
        }
    }

    Clock::time_point hedge_at(const Job & job) const {
        return job.began + std::max<Clock::duration>(typical + typical / 2, kFirstPause);
    }

    void start_hedges() {
        const auto now = Clock::now();
        for (Job & job : jobs) {
            if (may_hedge(job) && hedge_at(job) <= now) {
                job.second = take_idle();
                job.second->begin(*job.request, nullptr, true, addresses[0].base);
                curl_multi_add_handle(multi, job.second->handle());
            }
        }
    }

    static bool may_hedge(const Job & job) {
        return job.own && job.running && !job.second && !job.answered;
    }

    std::unique_ptr<Transfer> take_idle() {
        if (idle.empty()) {
            return std::make_unique<Transfer>(options, keys);
        }
        std::unique_ptr<Transfer> transfer = std::move(idle.back());
        idle.pop_back();
        return transfer;
    }

    void take_finished() {
        int       n_left = 0;
        CURLMsg * message;
        while ((message = curl_multi_info_read(multi, &n_left)) != nullptr) {
            if (message->msg != CURLMSG_DONE) {
                continue;
            }
            CURL *         handle = message->easy_handle;
            const CURLcode code   = message->data.result;
            curl_multi_remove_handle(multi, handle);
            const auto is_its = [&](const std::unique_ptr<Transfer> & t) {
                return t && t->handle() == handle;
            };
            const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const Job & j) {
                return (j.running && is_its(j.transfer)) || is_its(j.second);
            });
            GT_CHECK(job != jobs.end(), "no job for a finished transfer");
            if (is_its(job->second)) {
                std::swap(job->transfer, job->second);
            }
            HttpResponse response;
            job->transfer->end(code, response);
            note_address(*job->transfer, response);
            health.note(response.status != 0, response.error, options);
            if (response.status != 0 && job->request->has_body) {
                room.note(response.status != kFull, response.text(), options);
            }
            if (job->second) {
                settle_one(*job, std::move(response));
                continue;
            }
            job->running = false;
            if (!job->batch && job->transfer->has_received()) {
                job->n_tries = 1;  // it worked: no long pause
            }
            if (!job->answered && (!job->batch || should_retry(*job, response))) {
                retry_later(*job, response);
            } else {
                finish(job, std::move(response));
            }
        }
    }

    // Tries the next address if this one does not answer with the right key. An error names all that
    // were tried, and a wrong key is final only if all have one.
    void note_address(const Transfer & transfer, HttpResponse & response) {
        if (addresses.size() == 1) {
            return;
        }
        const auto used =
            std::find_if(addresses.begin(), addresses.end(), [&](const HttpAddress & address) {
                return address.base == transfer.base();
            });
        used->error       = response.status == 0 ? response.error : "";
        used->refused_key = response.refused_key;
        if (response.status != 0 || (transfer.has_moved() && !response.refused_key)) {
            return;
        }
        response.error.clear();
        response.refused_key = true;
        for (const HttpAddress & address : addresses) {
            if (!address.error.empty()) {
                response.error += (response.error.empty() ? "" : "; ") +
                                  address.base.substr(address.base.find("//") + 2) + ": " +
                                  address.error;
            }
            response.refused_key = response.refused_key && address.refused_key;
        }
        if (used == addresses.begin()) {
            std::rotate(addresses.begin(), addresses.begin() + 1, addresses.end());
        }
    }

    // One of two hedged transfers has ended: with the answer, or with a failure.
    void settle_one(Job & job, HttpResponse && response) {
        if (!job.answered && !should_retry(job, response)) {
            answer(job, std::move(response));
        }
        idle.push_back(std::move(job.transfer));
        job.transfer = std::move(job.second);
    }

    bool should_retry(Job & job, HttpResponse & response) const {
        const int  s         = response.status;
        const bool transient = s == 0 || s == 408 || s == 429 || (s >= 500 && s != 501);
        if (!transient || response.refused_key || (options.stop && options.stop())) {
            return false;
        }
        const auto now = Clock::now();
        if (s == 0) {
            job.busy_since = {};
            if (now - job.transfer->last_progress() < options.give_up + job.request->wait) {
                return true;
            }
        } else {  // the server answers, with an error status
            if (job.busy_since == Clock::time_point{}) {
                job.busy_since = now;
            }
            if (now - job.busy_since < options.give_up) {
                return true;
            }
        }
        if (response.error.empty()) {
            response.error = format("status %d", s);
        }
        response.error += " (" + plural(job.n_tries, "attempt") + ")";
        return false;
    }

    // Back-off with jitter: hosts that lost the hub at the same time do not return at the same time.
    void retry_later(Job & job, const HttpResponse & response) {
        if (options.counters) {
            options.counters->n_retries++;
        }
        auto pause      = kFirstPause * (1 << std::min(job.n_tries - 1, 6));
        pause           = std::min<std::chrono::milliseconds>(pause, kMaxPause);
        pause           = pause / 2 + pause * int(random() % 1000) / 2000;
        const int asked = std::atoi(response.header("retry-after").c_str());
        if (asked > 0) {
            pause = std::max<std::chrono::milliseconds>(
                pause, std::chrono::milliseconds(std::min(asked, kMaxRetryAfter_s) * 1000)
            );
        }
        job.not_before = Clock::now() + pause;
    }

    void finish(std::list<Job>::iterator job, HttpResponse && response) {
        if (!job->answered) {
            answer(*job, std::move(response));
        }
        idle.push_back(std::move(job->transfer));
        jobs.erase(job);
    }

    // Hands the response to the caller, whose request may be gone afterwards.
    void answer(Job & job, HttpResponse && response) {
        if (options.counters) {
            options.counters->n_requests++;
        }
        if (job.own) {
            typical += (Clock::now() - job.began - typical) / 8;
            std::copy(job.own->into.begin(), job.own->into.end(), job.into.begin());
        }
        job.answered = true;
        std::lock_guard<std::mutex> lock(mutex);
        *job.response = std::move(response);
        if (--job.batch->n_left == 0) {
            job.batch->done.notify_all();
        }
    }

    std::chrono::milliseconds pause_until_next() const {
        auto       pause = std::chrono::milliseconds(500);
        const auto now   = Clock::now();
        for (const Job & job : jobs) {
            if (job.running && job.transfer->paused()) {
                pause = std::min(pause, std::chrono::milliseconds(10));
            } else if (may_hedge(job)) {
                const auto left = std::chrono::ceil<std::chrono::milliseconds>(hedge_at(job) - now);
                pause           = std::clamp(left, std::chrono::milliseconds(0), pause);
            } else if (!job.running && job.not_before > now) {
                const auto left =
                    std::chrono::ceil<std::chrono::milliseconds>(job.not_before - now);
                pause = std::min(pause, left);
            }
        }
        return pause;
    }
};

HttpClient::HttpClient(const HttpOptions & options) : impl_(std::make_unique<Impl>(options)) {}

HttpClient::~HttpClient() = default;

static std::unique_ptr<Job::Own> own_copy(const HttpRequest & request) {
    auto own     = std::make_unique<Job::Own>();
    own->request = request;
    own->body.assign(request.body.begin(), request.body.end());
    own->into.resize(request.into.size());
    own->request.body = own->body;
    own->request.into = own->into;
    return own;
}

std::vector<HttpResponse> HttpClient::perform_all(const std::vector<HttpRequest> & requests) {
    std::vector<HttpResponse> responses(requests.size());
    Batch                     batch;
    batch.n_left = requests.size();
    std::unique_lock<std::mutex> lock(impl_->mutex);
    for (size_t i = 0; i < requests.size(); i++) {
        Job job;
        job.request  = &requests[i];
        job.response = &responses[i];
        job.batch    = &batch;
        if (requests[i].hedge) {
            job.into    = requests[i].into;
            job.own     = own_copy(requests[i]);
            job.request = &job.own->request;
        }
        impl_->inbox.push_back(std::move(job));
    }
    curl_multi_wakeup(impl_->multi);
    batch.done.wait(lock, [&] { return batch.n_left == 0; });
    return responses;
}

void HttpClient::stream(const HttpRequest & request, HttpSink & sink) {
    Job job;
    job.request = &request;
    job.sink    = &sink;
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->inbox.push_back(std::move(job));
    }
    curl_multi_wakeup(impl_->multi);
}

HttpResponse HttpClient::perform(const HttpRequest & request) {
    return perform_all({request})[0];
}

}  // namespace gt
