// comm/store.cpp — what all stores share: which keys are valid, and the probe for atomic create.
#include "comm/store.h"

#include <atomic>
#include <random>
#include <thread>

namespace gt {

static bool valid_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '~' || c == '-' || c == '/';
}

bool valid_key(const std::string & key) {
    if (key.empty() || key.size() > 512) {
        return false;
    }
    size_t begin = 0;
    for (size_t i = 0; i <= key.size(); i++) {
        if (i < key.size() && !valid_letter(key[i])) {
            return false;
        }
        if (i == key.size() || key[i] == '/') {
            const std::string part = key.substr(begin, i - begin);
            // 200: file systems end at 255, and writing aside adds a little
            if (part.empty() || part == "." || part == ".." || part.size() > 200) {
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
            "store: key '" + key.substr(0, 80) +
            "' is not valid; use letters, digits and ._~-/ and no '..'"
        );
    }
}

bool probe_atomic_create(Store & store, const std::string & prefix) {
    constexpr int kRaces   = 3;
    constexpr int kWriters = 4;
    // A name of its own for each try: two hosts may probe at the same moment.
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
