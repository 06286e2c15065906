// comm/store/store.cpp — the syntax of keys, and the test for atomic create.
#include "comm/store/store.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

namespace gt {

static constexpr size_t kMaxKey  = 512;
static constexpr size_t kMaxPart = 200;  // file systems allow 255

static bool valid_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '~' || c == '-' || c == '/';
}

bool valid_key(const std::string & key) {
    if (key.empty() || key.size() > kMaxKey) {
        return false;
    }
    size_t begin = 0;
    for (size_t i = 0; i <= key.size(); i++) {
        if (i < key.size() && !valid_letter(key[i])) {
            return false;
        }
        if (i == key.size() || key[i] == '/') {
            const std::string part = key.substr(begin, i - begin);
            if (part.empty() || part == "." || part == ".." || part.size() > kMaxPart) {
                return false;
            }
            begin = i + 1;
        }
    }
    return true;
}

void check_key(const std::string & key) {
    if (!valid_key(key)) {
        throw Error(
            "store: key '" + one_line(key.substr(0, 80)) +
            "' is invalid; use letters, digits and ._~-/ and no '..'"
        );
    }
}

std::string one_line(std::string text) {
    std::replace_if(
        text.begin(), text.end(),
        [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }, '?'
    );
    return text;
}

bool probe_atomic_create(Store & store, const std::string & prefix) {
    constexpr int kRaces   = 3;
    constexpr int kWriters = 4;
    // a random name: two hosts may test at the same time
    std::random_device random;
    const uint64_t     own    = (uint64_t(random()) << 32) | random();
    bool               atomic = true;
    for (int race = 0; race < kRaces && atomic; race++) {
        const std::string key =
            prefix + format("/probe-%016llx-%d", (unsigned long long) own, race);
        std::atomic<int>         n_won{0};
        std::vector<std::thread> writers;
        std::exception_ptr       failed;
        std::atomic<bool>        has_failed{false};
        for (int w = 0; w < kWriters; w++) {
            writers.emplace_back([&, w] {
                try {
                    const Bytes value(8, uint8_t(w));
                    n_won += store.put(key, value, true) ? 1 : 0;
                } catch (...) {
                    if (!has_failed.exchange(true)) {
                        failed = std::current_exception();
                    }
                }
            });
        }
        for (std::thread & writer : writers) {
            writer.join();
        }
        if (failed) {
            std::rethrow_exception(failed);
        }
        const Bytes late(8, uint8_t(kWriters));
        atomic = n_won == 1 && !store.put(key, late, true);
        store.remove(key);
    }
    return atomic;
}

}  // namespace gt
