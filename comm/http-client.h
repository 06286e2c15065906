// comm/http-client.h — requests over several kept-alive connections, tried again until they pass.
//
// One network thread drives libcurl's multi interface. A request that fails for an ordinary reason
// (connection lost, 408, 429, 5xx) starts again as a whole after a pause that grows and is random.
// Its deadline is one of progress: it fails only when nothing has moved for `give_up`.
// Knows nothing of stores; store-http.cpp and store-s3.cpp build on it.
#pragma once

#include "ggml-train/base.h"

#include <atomic>
#include <chrono>
#include <map>
#include <string>

namespace gt {

struct RunKeys;

// What went over the line so far; read it at any time.
struct LineCounters {
    std::atomic<uint64_t> bytes_up{0};
    std::atomic<uint64_t> bytes_down{0};
    std::atomic<uint64_t> n_requests{0};
    std::atomic<uint64_t> n_retries{0};
    std::atomic<uint64_t> n_connects{0};
};

struct HttpOptions {
    std::string                   base;            // https://host:port or http://host:port
    const RunKeys *               keys = nullptr;  // copied: mutual TLS, pin and token
    std::vector<std::string>      headers;         // sent with every request
    int                           n_connections = 4;
    uint64_t                      up_limit      = 0;      // bytes per second over all; 0: none
    std::string                   congestion    = "bbr";  // tried, not insisted on
    std::chrono::milliseconds     stall{20'000};
    std::chrono::milliseconds     give_up{60'000};
    std::shared_ptr<LineCounters> counters;  // may be null

    // AWS Signature V4; empty region: not used
    std::string region, access_key, secret_key;
};

// Takes the body of an answer that has no end, as it comes; called by the network thread.
class HttpSink {
public:
    virtual ~HttpSink()                              = default;
    virtual void begin()                             = 0;  // an attempt begins: what came is void
    virtual bool take(std::span<const uint8_t> some) = 0;  // false: begin anew
};

struct HttpRequest {
    std::string               method = "GET";
    std::string               path;  // with query, already encoded
    std::vector<std::string>  headers;
    std::span<const uint8_t>  body;  // must live until perform returns
    bool                      has_body = false;
    std::span<uint8_t>        into;  // a 200 or 206 answer of this very size goes here
    uint64_t                  max_bytes = 1 << 20;  // of an answer that goes to HttpResponse::body
    std::chrono::milliseconds wait{};               // silence that is no fault (a long poll)
    bool                      bulk = false;         // large: shares n_connections; others go ahead
    bool hedge = false;  // small, and others wait for it: if it takes long, sent a second time
};

struct HttpResponse {
    int                                status = 0;  // 0: never got an answer
    Bytes                              body;
    std::map<std::string, std::string> headers;              // names in lower case
    std::string                        error;                // not empty: gave up; why
    bool                               refused_key = false;  // the other side has another key

    std::string header(const std::string & name) const;
    std::string text() const;
};

class HttpClient {
public:
    explicit HttpClient(const HttpOptions & options);
    ~HttpClient();
    HttpClient(const HttpClient &)             = delete;
    HttpClient & operator=(const HttpClient &) = delete;

    // Runs the requests side by side and returns when all have ended. May be called from several
    // threads at once.
    std::vector<HttpResponse> perform_all(const std::vector<HttpRequest> & requests);
    HttpResponse              perform(const HttpRequest & request);

    // Keeps a request open until the client ends, whatever happens to it. Request and sink must live
    // as long.
    void stream(const HttpRequest & request, HttpSink & sink);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gt
