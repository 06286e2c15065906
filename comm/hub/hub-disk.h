// comm/hub/hub-disk.h — the hub's own store: a folder with an index, limits and waiting.
//
// The disk is authoritative; the index in memory (key -> size) is read from it at start, so a killed
// hub resumes with everything it had acknowledged. A key keeps its first value: only a frame
// may replace a value that is not one, i.e. is damaged. Thread-safe.
// Read next: hub-uploads.h (values that arrive in ranges), hub.cpp.
#pragma once

#include "comm/store/store-file.h"

#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <semaphore>
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
        uint64_t version = 0;  // of all values, in order of arrival
    };
    enum class Outcome { created, there, other, incomplete };

    // REQUIRES: no other process uses the folder.
    HubDisk(const std::string & path, const Limits & limits);

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override;
    std::optional<Bytes>     get(const std::string & key, std::chrono::milliseconds wait) override;
    std::vector<std::string> list(const std::string & prefix) override;
    void                     remove(const std::string & key) override;
    bool                     is_nearly_full() override;  // four fifths of the limit or the disk

    // Like put; `created` if the key is new, `there` if it has the same bytes.
    Outcome write(const std::string & key, std::span<const uint8_t> value);

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
    // Throws HubFull. The last part of the space is for records: a full hub still writes commits.
    [[nodiscard]] Reservation reserve(const std::string & key, uint64_t bytes);
    // Held while files are open: hundreds of connections may ask for a value at the same time.
    class FileSlot {
    public:
        explicit FileSlot(HubDisk & disk) : slots_(disk.slots_) { slots_.acquire(); }
        ~FileSlot() { slots_.release(); }
        FileSlot(const FileSlot &)             = delete;
        FileSlot & operator=(const FileSlot &) = delete;

    private:
        std::counting_semaphore<> & slots_;
    };
    static constexpr int kFileSlots = 16;

    std::filesystem::path new_aside() const { return files_.new_aside(); }
    // Whether a value is on disk before it is acknowledged: all but messages, which their senders put
    // again after a restart (store-http.cpp).
    static bool is_flushed(const std::string & key);
    // Gives a file its name, adds it to the index and wakes waiting readers.
    Outcome adopt(const std::filesystem::path & aside, const std::string & key, uint64_t size);

    // Waits for the key. Nothing: it is not there within `wait`.
    std::optional<Entry> find(const std::string & key, std::chrono::milliseconds wait);
    // Nothing if the key was removed since `version`.
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

    // Bytes by the first part of keys, which is one per run.
    std::map<std::string, uint64_t> bytes_of_runs() const;

    uint64_t total_bytes() const;
    uint64_t n_keys() const;
    void     stop_waiting();  // ends all waits, now and later

    const Limits & limits() const { return limits_; }

private:
    void         read_index();
    void         add(const std::string & key, uint64_t size);
    bool         has(const std::string & key) const;
    std::mutex & name_mutex(const std::string & key);

    // Held while a file's name and its entry in the index change together.
    std::array<std::mutex, 16>      names_;
    std::counting_semaphore<>       slots_{kFileSlots};
    FileStore                       files_;
    Limits                          limits_;
    std::filesystem::path           path_;
    mutable std::mutex              mutex_;
    std::condition_variable         arrived_;
    std::map<std::string, Entry>    index_;
    std::map<uint64_t, std::string> arrivals_;  // version -> key
    uint64_t                        total_ = 0, reserved_ = 0, version_ = 0;
    bool                            stopping_ = false;
};

}  // namespace gt
