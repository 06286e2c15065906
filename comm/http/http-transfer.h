// comm/http/http-transfer.h — one attempt of one request: a curl handle and its callbacks.
//
// Internal to http-client.cpp; used by the network thread only.
#pragma once

#include "comm/http/http-client.h"
#include "comm/wire/seal.h"

#include <curl/curl.h>

namespace gt {

using Clock = std::chrono::steady_clock;

class Transfer {
public:
    Transfer(const HttpOptions & options, const RunKeys & keys);
    ~Transfer();
    Transfer(const Transfer &)             = delete;
    Transfer & operator=(const Transfer &) = delete;

    CURL * handle() const { return handle_; }

    // Prepares the handle for the first or another attempt, at one of the server's addresses.
    void begin(const HttpRequest & request, HttpSink * sink, bool first, const std::string & base);
    // Called when curl has finished: fills the response.
    void end(CURLcode code, HttpResponse & response);
    // Whether the upload limit has paused it.
    bool                paused() const { return paused_; }
    void                resume();
    Clock::time_point   last_progress() const { return last_progress_; }
    bool                has_received() const { return best_ > 0; }  // in any attempt
    const std::string & base() const { return base_; }
    bool                has_moved() const { return moved_ > 0; }  // in this attempt

private:
    static size_t on_read(char * to, size_t size, size_t n, void * self);
    static int    on_seek(void * self, curl_off_t offset, int origin);
    static size_t on_write(char * from, size_t size, size_t n, void * self);
    static size_t on_header(char * from, size_t size, size_t n, void * self);
    static int    on_progress(
           void *     self,
           curl_off_t n_down_total,
           curl_off_t n_down,
           curl_off_t n_up_total,
           curl_off_t n_up
       );
    static int on_socket(void * self, curl_socket_t socket, curlsocktype purpose);

    void set_security(const HttpRequest & request);

    const HttpOptions & options_;
    const RunKeys &     keys_;
    CURL *              handle_;
    curl_slist *        headers_ = nullptr;
    const HttpRequest * request_ = nullptr;
    HttpSink *          sink_    = nullptr;
    std::string         base_;
    HttpResponse        received_;
    size_t              n_read_    = 0;  // of the body, by curl
    size_t              n_into_    = 0;
    bool                too_large_ = false;
    bool                paused_    = false;
    bool                stalled_   = false;
    uint64_t            moved_ = 0, best_ = 0;
    Clock::time_point   last_moved_, last_progress_;
    char                why_[CURL_ERROR_SIZE] = {};
};

}  // namespace gt
