// comm/http/http-transfer.cpp — see http-transfer.h.
//
// Workarounds for libcurl 7.88: SigV4 does not send x-amz-content-sha256 (the S3 store does), and an
// empty "Expect:" header breaks the signature.
#include "comm/http/http-transfer.h"

#include <algorithm>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace gt {

static constexpr int    kUnsentLow  = 128 * 1024;
static constexpr size_t kMaxHeaders = 64;

Transfer::Transfer(const HttpOptions & options, const RunKeys & keys)
    : options_(options), keys_(keys), handle_(curl_easy_init()) {
    GT_CHECK(handle_, "curl_easy_init");
}

Transfer::~Transfer() {
    curl_easy_cleanup(handle_);
    curl_slist_free_all(headers_);
}

static curl_blob blob_of(const std::string & text) {
    return {const_cast<char *>(text.data()), text.size(), CURL_BLOB_COPY};
}

void Transfer::set_security(const HttpRequest & request) {
    const auto set = [&](CURLoption option, auto value) {
        curl_easy_setopt(handle_, option, value);
    };
    const auto header = [&](const std::string & line) {
        headers_ = curl_slist_append(headers_, line.c_str());
    };
    if (options_.keys) {
        curl_blob certificate = blob_of(keys_.certificate), key = blob_of(keys_.key);
        set(CURLOPT_CAINFO_BLOB, &certificate);
        set(CURLOPT_SSLCERT_BLOB, &certificate);
        set(CURLOPT_SSLKEY_BLOB, &key);
        set(CURLOPT_SSLCERTTYPE, "PEM");
        set(CURLOPT_SSLKEYTYPE, "PEM");
        set(CURLOPT_PINNEDPUBLICKEY, keys_.pin.c_str());
        set(CURLOPT_SSL_VERIFYPEER, 1L);
        set(CURLOPT_SSL_VERIFYHOST, 0L);  // the pinned key identifies the server
        set(CURLOPT_SSLVERSION, long(CURL_SSLVERSION_TLSv1_3));
        header("Authorization: Bearer " + keys_.token);
    }
    if (!options_.region.empty()) {
        set(CURLOPT_AWS_SIGV4, ("aws:amz:" + options_.region + ":s3").c_str());
        set(CURLOPT_USERNAME, options_.access_key.c_str());
        set(CURLOPT_PASSWORD, options_.secret_key.c_str());
        set(CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
    } else {
        header("Expect:");
    }
    for (const std::string & line : options_.headers) {
        header(line);
    }
    for (const std::string & line : request.headers) {
        header(line);
    }
    set(CURLOPT_HTTPHEADER, headers_);
}

void Transfer::begin(
    const HttpRequest & request, HttpSink * sink, bool first, const std::string & base
) {
    curl_easy_reset(handle_);
    curl_slist_free_all(headers_);
    headers_ = nullptr;
    if (first) {
        best_          = 0;
        last_progress_ = Clock::now();
    }
    // state
    request_    = &request;
    sink_       = sink;
    base_       = base;
    received_   = {};
    n_read_     = 0;
    n_into_     = 0;
    too_large_  = false;
    paused_     = false;
    stalled_    = false;
    moved_      = 0;
    why_[0]     = 0;
    last_moved_ = Clock::now();
    if (sink_) {
        sink_->begin();
    }

    // connection
    const auto set = [&](CURLoption option, auto value) {
        curl_easy_setopt(handle_, option, value);
    };
    set(CURLOPT_URL, (base_ + request.path).c_str());
    set_security(request);
    set(CURLOPT_ERRORBUFFER, why_);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_PROTOCOLS_STR, base_.starts_with("https:") ? "https" : "http");
    set(CURLOPT_HTTP_VERSION, long(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_CONNECTTIMEOUT_MS, options_.more.empty() ? 8000L : 3000L);
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_TCP_KEEPIDLE, 15L);
    set(CURLOPT_TCP_KEEPINTVL, 10L);
    set(CURLOPT_BUFFERSIZE, 256L * 1024);
    set(CURLOPT_UPLOAD_BUFFERSIZE, options_.up_limit ? 16L * 1024 : 128L * 1024);
    set(CURLOPT_MAXAGE_CONN, 50L);  // the hub closes idle connections after 60 s
    // callbacks
    set(CURLOPT_WRITEFUNCTION, on_write);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_HEADERFUNCTION, on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, on_progress);
    set(CURLOPT_XFERINFODATA, this);
    set(CURLOPT_SOCKOPTFUNCTION, on_socket);
    set(CURLOPT_SOCKOPTDATA, this);
    set(CURLOPT_PRIVATE, this);
    // body and method
    if (request.has_body) {
        set(CURLOPT_UPLOAD, 1L);
        set(CURLOPT_INFILESIZE_LARGE, curl_off_t(request.body.size()));
        set(CURLOPT_READFUNCTION, on_read);
        set(CURLOPT_READDATA, this);
        set(CURLOPT_SEEKFUNCTION, on_seek);
        set(CURLOPT_SEEKDATA, this);
    }
    if (request.method != (request.has_body ? "PUT" : "GET")) {
        set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
}

void Transfer::end(CURLcode code, HttpResponse & response) {
    long       status = 0, n_connects = 0;
    curl_off_t n_up = 0, n_down = 0;
    curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(handle_, CURLINFO_NUM_CONNECTS, &n_connects);
    curl_easy_getinfo(handle_, CURLINFO_SIZE_UPLOAD_T, &n_up);
    curl_easy_getinfo(handle_, CURLINFO_SIZE_DOWNLOAD_T, &n_down);
    if (options_.counters) {
        options_.counters->n_connects += uint64_t(n_connects);
        options_.counters->bytes_up += uint64_t(n_up);
        options_.counters->bytes_down += uint64_t(n_down);
    }
    response        = std::move(received_);
    response.status = code == CURLE_OK ? int(status) : 0;
    if (code == CURLE_OK) {
        const bool good = status == 200 || status == 206;
        if (good && !request_->into.empty() && n_into_ != request_->into.size()) {
            response.status = 0;
            response.error  = "the answer was truncated";
        }
        last_progress_ = Clock::now();
        return;
    }
    response.error = why_[0] ? why_ : curl_easy_strerror(code);
    if (too_large_) {
        response.error  = "the answer is larger than expected";
        response.status = 413;  // a retry would not help
    } else if (stalled_) {
        response.error = format("no progress for %d s", int(options_.stall.count() / 1000));
    }
    response.refused_key =
        code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_PINNEDPUBKEYNOTMATCH;
}

void Transfer::resume() {
    paused_ = false;
    curl_easy_pause(handle_, CURLPAUSE_CONT);
}

size_t Transfer::on_read(char * to, size_t size, size_t n, void * self) {
    Transfer &    t      = *static_cast<Transfer *>(self);
    const size_t  wanted = std::min(size * n, t.request_->body.size() - t.n_read_);
    UploadLimit * limit  = t.options_.up_limit.get();
    const size_t  now    = limit ? limit->take(wanted) : wanted;
    if (wanted > 0 && now == 0) {
        t.paused_ = true;
        return CURL_READFUNC_PAUSE;
    }
    std::memcpy(to, t.request_->body.data() + t.n_read_, now);
    t.n_read_ += now;
    return now;
}

int Transfer::on_seek(void * self, curl_off_t offset, int origin) {
    Transfer & t = *static_cast<Transfer *>(self);
    if (origin != SEEK_SET || offset < 0 || size_t(offset) > t.request_->body.size()) {
        return CURL_SEEKFUNC_FAIL;
    }
    t.n_read_ = size_t(offset);
    return CURL_SEEKFUNC_OK;
}

size_t Transfer::on_write(char * from, size_t size, size_t n, void * self) {
    Transfer &   t      = *static_cast<Transfer *>(self);
    const size_t bytes  = size * n;
    long         status = 0;
    curl_easy_getinfo(t.handle_, CURLINFO_RESPONSE_CODE, &status);
    if (t.sink_ && status == 200) {
        return t.sink_->take({reinterpret_cast<const uint8_t *>(from), bytes}) ? bytes : 0;
    }
    if (!t.request_->into.empty() && (status == 200 || status == 206)) {
        if (bytes > t.request_->into.size() - t.n_into_) {
            t.too_large_ = true;
            return 0;
        }
        std::memcpy(t.request_->into.data() + t.n_into_, from, bytes);
        t.n_into_ += bytes;
        return bytes;
    }
    if (bytes > t.request_->max_bytes -
                    std::min(t.request_->max_bytes, uint64_t(t.received_.body.size()))) {
        t.too_large_ = true;
        return 0;
    }
    t.received_.body.insert(t.received_.body.end(), from, from + bytes);
    return bytes;
}

size_t Transfer::on_header(char * from, size_t size, size_t n, void * self) {
    Transfer &        t = *static_cast<Transfer *>(self);
    const std::string line(from, size * n);
    const size_t      colon = line.find(':');
    if (line.starts_with("HTTP/")) {
        t.received_.headers.clear();  // of an earlier 100 Continue
    } else if (colon != line.npos && t.received_.headers.size() < kMaxHeaders) {
        std::string name = line.substr(0, colon);
        std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
            return char(std::tolower(c));
        });
        const size_t first = line.find_first_not_of(" \t", colon + 1);
        const size_t last  = line.find_last_not_of(" \t\r\n");
        if (first != line.npos && last != line.npos && last >= first) {
            t.received_.headers[name] = line.substr(first, last - first + 1);
        }
    }
    return size * n;
}

int Transfer::on_progress(void * self, curl_off_t, curl_off_t n_down, curl_off_t, curl_off_t n_up) {
    Transfer &     t     = *static_cast<Transfer *>(self);
    const auto     now   = Clock::now();
    const uint64_t moved = uint64_t(n_down + n_up);
    if (moved != t.moved_ || t.paused_) {
        t.moved_      = moved;
        t.last_moved_ = now;
    }
    if (moved > t.best_) {
        t.best_          = moved;
        t.last_progress_ = now;
    }
    t.stalled_ = now - t.last_moved_ > t.options_.stall + t.request_->wait;
    return t.stalled_ ? 1 : 0;
}

int Transfer::on_socket(void * self, curl_socket_t socket, curlsocktype) {
    const Transfer & t = *static_cast<Transfer *>(self);
    // the kernel may refuse it; each direction uses the setting of its sender
    const std::string & name = t.options_.congestion;
    if (!name.empty()) {
        ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.c_str(), socklen_t(name.size()));
    }
    // keep little unsent data in the kernel, so that progress means progress on the link
    const int low = kUnsentLow;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof low);
    return CURL_SOCKOPT_OK;
}

}  // namespace gt
