// comm/http/http-client.h — HTTP requests over several kept-alive connections, with retries.
//
// One network thread drives libcurl's multi interface. A request that fails for an ordinary reason
// (connection lost, 408, 429, 5xx) is retried as a whole, with back-off and jitter. The timeout is
// one of progress: a request fails only when no byte has moved for `give_up`. Of several addresses
// the one that answered last is used; when it does not answer any more, the next one is tried.
// Independent of stores; store-http.cpp and store-s3.cpp use it.
#pragma once

#include "comm/http/link.h"

#include <map>

namespace gt {

struct RunKeys;

struct HttpOptions : LinkOptions {
    std::string              base;            // https://host:port or http://host:port
    std::vector<std::string> more;            // other addresses of the same server
    const RunKeys *          keys = nullptr;  // copied: mutual TLS, pin and token
    std::vector<std::string> headers;         // sent with every request

    // AWS Signature V4; empty region: not used
    std::string region, access_key, secret_key;
};

// Receives the body of an endless answer; called by the network thread.
class HttpSink {
public:
    virtual ~HttpSink()                              = default;
    virtual void begin()                             = 0;  // a new attempt: drop what was received
    virtual bool take(std::span<const uint8_t> some) = 0;  // false: retry
};

struct HttpRequest {
    std::string               method = "GET";
    std::string               path;  // with query, already encoded
    std::vector<std::string>  headers;
    std::span<const uint8_t>  body;  // must outlive the call of perform
    bool                      has_body = false;
    std::span<uint8_t>        into;  // receives a 200 or 206 answer of exactly this size
    uint64_t                  max_bytes = 1 << 20;  // of an answer in HttpResponse::body
    std::chrono::milliseconds wait{};        // additional time without progress (a long poll)
    bool                      bulk = false;  // large: at most n_connections at a time
    bool hedge = false;  // send a second time, on another connection, if it takes long
};

struct HttpResponse {
    int                                status = 0;  // 0: no answer
    Bytes                              body;
    std::map<std::string, std::string> headers;              // names in lower case
    std::string                        error;                // not empty: why it failed
    bool                               refused_key = false;  // the server has another key

    std::string header(const std::string & name) const;
    std::string text() const;
};

class HttpClient {
public:
    explicit HttpClient(const HttpOptions & options);
    ~HttpClient();
    HttpClient(const HttpClient &)             = delete;
    HttpClient & operator=(const HttpClient &) = delete;

    // Runs the requests concurrently and returns when all have ended. Thread-safe.
    std::vector<HttpResponse> perform_all(const std::vector<HttpRequest> & requests);
    HttpResponse              perform(const HttpRequest & request);

    // Keeps a request open until the client is destroyed, with retries. Request and sink must outlive
    // the client.
    void stream(const HttpRequest & request, HttpSink & sink);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gt
