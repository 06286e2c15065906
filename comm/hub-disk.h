// comm/hub-disk.h — the hub's own store: a folder with an index, limits, parts and waiting.
//
// What is on disk is the truth; the index in memory (key -> size) is read from it at start, so a
// hub that was killed goes on with everything it had acknowledged. A large value arrives in parts,
// written to their places in one file aside, which gets its name when the last part is there.
// Safe for several threads. Read next: hub.cpp.
#pragma once

#include "comm/store-file.h"

#include <array>
#include <condition_variable>
#include <map>
#include <mutex>

namespace gt {

// A limit of the hub was reached; the message says which. Answered with 507.
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
        size_t   max_uploads     = 4096;  // finished ones are remembered for 30 s
    };
    struct Entry {
        uint64_t size    = 0;
        uint64_t version = 0;  // changes when the key is written again
    };
    enum class Outcome { created, there, other, incomplete };

    // Where a part belongs. All parts but the last have the same size.
    struct Part {
        std::string upload;  // random name, chosen by the sender
        uint64_t    index = 0, part_bytes = 0, size = 0;
        bool        if_absent = false;
    };

    HubDisk(const std::string & path, const Limits & limits);
    ~HubDisk() override;

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override;
    std::optional<Bytes>     get(const std::string & key, std::chrono::milliseconds wait) override;
    std::vector<std::string> list(const std::string & prefix) override;
    void                     remove(const std::string & key) override;

    // As put, and says whether the key is new.
    Outcome write(const std::string & key, std::span<const uint8_t> value, bool if_absent);
    Outcome write_part(const std::string & key, const Part & part, std::span<const uint8_t> data);
    // Of an upload that may have been lost in a restart: the parts that are missing.
    std::vector<uint64_t> missing_parts(const std::string & key, const Part & part);

    // Waits until the key is there. Nothing: not within `wait`.
    std::optional<Entry> find(const std::string & key, std::chrono::milliseconds wait);
    // Nothing if the key was written again or removed since `version`.
    std::optional<Bytes>
    read(const std::string & key, uint64_t version, uint64_t offset, uint64_t length);

    // The first value that came after `version` under one of the prefixes, waited for.
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
    void     drop_old_uploads();  // nothing came for a minute
    void     stop_waiting();      // all waits end now, and later ones at once

private:
    struct Upload;

    void read_index();
    void check_part(const Part & part) const;
    void reserve(uint64_t bytes);  // REQUIRES: lock held; throws HubFull
    // Gives a flushed file its name, enters it into the index and wakes those who wait.
    Outcome adopt(
        const std::filesystem::path & aside, const std::string & key, uint64_t size, bool if_absent
    );
    std::mutex &            name_mutex(const std::string & key);
    std::shared_ptr<Upload> open_upload(const std::string & key, const Part & part);

    // Name on disk and entry in the index change together: one of these is held for both.
    std::array<std::mutex, 16>                     names_;
    FileStore                                      files_;
    Limits                                         limits_;
    mutable std::mutex                             mutex_;
    std::condition_variable                        arrived_;
    std::map<std::string, Entry>                   index_;
    std::map<std::string, std::shared_ptr<Upload>> uploads_;
    uint64_t                                       total_ = 0, reserved_ = 0, version_ = 0;
    bool                                           stopping_ = false;
};

}  // namespace gt
