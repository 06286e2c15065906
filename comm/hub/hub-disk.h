// comm/hub/hub-disk.h — the hub's own store: a folder with an index, limits and waiting.
//
// The disk is authoritative; the index in memory (key -> size) is read from it at start, so a killed
// hub resumes with everything it had acknowledged. Thread-safe.
// Read next: hub-uploads.h (values that arrive in ranges), hub.cpp.
#pragma once

#include "comm/store/store-file.h"

#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

namespace gt {

// A limit of the hub is reached; the message says which. Answered with status 507.
class HubFull : public StoreError {
public:
    using StoreError::StoreError;
};

class HubDisk : public Store {
public:
    struct Limits {
        uint64_t max_value_bytes = 256ull << 20;
        uint64_t max_total_bytes = 16ull << 30;
        uint64_t max_keys        = 1'000'000;
    };
    struct Entry {
        uint64_t size    = 0;
        uint64_t version = 0;  // changes when the key is overwritten
    };
    enum class Outcome { created, there, other, incomplete };

    HubDisk(const std::string & path, const Limits & limits);

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override;
    std::optional<Bytes>     get(const std::string & key, std::chrono::milliseconds wait) override;
    std::vector<std::string> list(const std::string & prefix) override;
    void                     remove(const std::string & key) override;

    // Like put; `created` if the key is new.
    Outcome write(const std::string & key, std::span<const uint8_t> value, bool if_absent);

    // Space for a value that is being written, freed at the end of its scope.
    class Reservation {
    public:
        Reservation(HubDisk & disk, uint64_t bytes) : disk_(&disk), bytes_(bytes) {}
        Reservation(Reservation && other) noexcept
            : disk_(std::exchange(other.disk_, nullptr)), bytes_(other.bytes_) {}
        Reservation & operator=(Reservation && other) noexcept {
            std::swap(disk_, other.disk_);
            std::swap(bytes_, other.bytes_);
            return *this;
        }
        ~Reservation();

    private:
        HubDisk * disk_;
        uint64_t  bytes_;
    };
    [[nodiscard]] Reservation reserve(uint64_t bytes);  // throws HubFull
    std::filesystem::path     new_aside() const { return files_.new_aside(); }
    // Gives a flushed file its name, adds it to the index and wakes waiting readers.
    Outcome adopt(
        const std::filesystem::path & aside, const std::string & key, uint64_t size, bool if_absent
    );

    // Waits for the key. Nothing: it is not there within `wait`.
    std::optional<Entry> find(const std::string & key, std::chrono::milliseconds wait);
    // Nothing if the key was overwritten or removed since `version`.
    std::optional<Bytes>
    read(const std::string & key, uint64_t version, uint64_t offset, uint64_t length);

    // Waits for the first value that is newer than `version` and has one of the prefixes.
    std::optional<std::pair<std::string, Entry>> follow(
        const std::vector<std::string> & prefixes, uint64_t version, std::chrono::milliseconds wait
    );
    uint64_t newest_version() const;
    bool     is_stopping() const;

    // At most n keys after `after`.
    std::vector<std::string>
    list_some(const std::string & prefix, const std::string & after, size_t n);

    uint64_t total_bytes() const;
    uint64_t n_keys() const;
    void     stop_waiting();  // ends all waits, now and later

    const Limits & limits() const { return limits_; }

private:
    void         read_index();
    std::mutex & name_mutex(const std::string & key);

    // Held while a file's name and its entry in the index change together.
    std::array<std::mutex, 16>   names_;
    FileStore                    files_;
    Limits                       limits_;
    mutable std::mutex           mutex_;
    std::condition_variable      arrived_;
    std::map<std::string, Entry> index_;
    uint64_t                     total_ = 0, reserved_ = 0, version_ = 0;
    bool                         stopping_ = false;
};

}  // namespace gt
