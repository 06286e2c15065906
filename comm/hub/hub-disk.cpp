// comm/hub/hub-disk.cpp — see hub-disk.h.
#include "comm/hub/hub-disk.h"

#include "comm/wire/frame.h"
#include "comm/wire/keys.h"
#include "ggml-train/base/text.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gt {

namespace fs = std::filesystem;

constexpr unsigned kFileMode = 0600;  // settings and metrics are not sealed
constexpr uint64_t kReserve  = 32;    // this part of the space is for records only

HubDisk::HubDisk(const std::string & path, const Limits & limits)
    : files_(path, kFileMode), limits_(limits), path_(path) {
    read_index();
}

void HubDisk::read_index() {
    // files aside are left over from a killed hub
    std::error_code failed;
    for (const fs::directory_entry & entry :
         fs::directory_iterator(files_.new_aside().parent_path(), failed)) {
        std::error_code ignored;
        fs::remove(entry.path(), ignored);
    }
    for (const std::string & key : files_.list("")) {
        std::error_code gone;
        const uint64_t  size = fs::file_size(files_.path_of(key), gone);
        if (!gone) {
            add(key, size);
        }
    }
}

// To the index. REQUIRES: mutex_ is held.
void HubDisk::add(const std::string & key, uint64_t size) {
    Entry & entry = index_[key];
    arrivals_.erase(entry.version);
    total_ += size - entry.size;
    entry = {size, ++version_};
    arrivals_.emplace(version_, key);
}

bool HubDisk::has(const std::string & key) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return index_.contains(key);
}

HubDisk::Reservation HubDisk::reserve(const std::string & key, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > limits_.max_value_bytes) {
        throw Error(format(
            "a value of %llu bytes is larger than the hub's limit of %llu",
            (unsigned long long) bytes, (unsigned long long) limits_.max_value_bytes
        ));
    }
    // a value that is there may be put again, after a restart
    const bool is_new = is_bulk_key(key) && !index_.contains(key);
    const auto usable = [&](uint64_t all) { return is_new ? all - all / kReserve : all; };
    if (total_ + reserved_ + bytes > usable(limits_.max_total_bytes)) {
        throw HubFull(
            "the hub's " + bytes_text(limits_.max_total_bytes) +
            " are full; start it with a larger --disk, or wait until old rounds are removed"
        );
    }
    if (index_.size() >= usable(limits_.max_keys)) {
        throw HubFull(format(
            "the hub has its limit of %llu keys; wait until old rounds are removed",
            (unsigned long long) limits_.max_keys
        ));
    }
    reserved_ += bytes;
    return {*this, bytes};
}

HubDisk::Reservation::~Reservation() {
    if (disk_) {
        std::lock_guard<std::mutex> lock(disk_->mutex_);
        disk_->reserved_ -= bytes_;
    }
}

bool HubDisk::is_flushed(const std::string & key) {
    return key.find("/message/") == key.npos;
}

std::mutex & HubDisk::name_mutex(const std::string & key) {
    return names_[digest64(key) % names_.size()];
}

static bool is_frame(const fs::path & path) {
    const auto value = read_file(path);
    return value && parse_frame(*value);
}

HubDisk::Outcome HubDisk::adopt(const fs::path & aside, const std::string & key, uint64_t size) {
    std::lock_guard<std::mutex> name(name_mutex(key));
    const bool                  is_there = has(key);
    const bool is_damaged = is_there && !is_frame(files_.path_of(key)) && is_frame(aside);
    if (!files_.adopt(aside, key, !is_damaged, is_flushed(key))) {
        return Outcome::other;
    }
    if (is_there && !is_damaged) {
        return Outcome::there;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    add(key, size);
    arrived_.notify_all();
    return Outcome::created;
}

HubDisk::Outcome HubDisk::write(const std::string & key, std::span<const uint8_t> value) {
    check_key(key);
    const Reservation reservation = reserve(key, value.size());
    const FileSlot    slot(*this);
    return adopt(files_.write_aside(value, is_flushed(key)), key, value.size());
}

bool HubDisk::put(const std::string & key, std::span<const uint8_t> value, bool) {
    return write(key, value) != Outcome::other;
}

std::optional<HubDisk::Entry>
HubDisk::find(const std::string & key, std::chrono::milliseconds wait) {
    check_key(key);
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait_for(lock, wait, [&] { return stopping_ || index_.contains(key); });
    const auto found = index_.find(key);
    return found == index_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::pair<std::string, HubDisk::Entry>> HubDisk::follow(
    const std::vector<std::string> & prefixes, uint64_t version, std::chrono::milliseconds wait
) {
    std::optional<std::pair<std::string, Entry>> next;

    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait_for(lock, wait, [&] {
        for (auto it = arrivals_.upper_bound(version); it != arrivals_.end() && !next; ++it) {
            const std::string & key = it->second;
            version                 = it->first;
            if (std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string & prefix) {
                    return key.starts_with(prefix);
                })) {
                next = {key, index_.at(key)};
            }
        }
        return stopping_ || next;
    });
    return next;
}

uint64_t HubDisk::newest_version() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return version_;
}

bool HubDisk::is_stopping() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return stopping_;
}

std::optional<Bytes>
HubDisk::read(const std::string & key, uint64_t version, uint64_t offset, uint64_t length) {
    const FileSlot               slot(*this);
    std::unique_lock<std::mutex> name(name_mutex(key));
    const File                   file(::open(files_.path_of(key).c_str(), O_RDONLY | O_CLOEXEC));
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto                  found = index_.find(key);
        if (found == index_.end() || found->second.version != version || file.fd() < 0) {
            return std::nullopt;
        }
        if (offset > found->second.size || length > found->second.size - offset) {
            throw Error("a range past the end of the value");
        }
    }
    name.unlock();  // the open file does not change any more
    Bytes out(length);
    read_at(file, offset, out, files_.path_of(key));
    return out;
}

std::optional<Bytes> HubDisk::get(const std::string & key, std::chrono::milliseconds wait) {
    for (;;) {
        const std::optional<Entry> entry = find(key, wait);
        if (!entry) {
            return std::nullopt;
        }
        if (std::optional<Bytes> value = read(key, entry->version, 0, entry->size)) {
            return value;
        }  // else removed meanwhile
    }
}

std::vector<std::string>
HubDisk::list_some(const std::string & prefix, const std::string & after, size_t n) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::string>    keys;
    auto it = after.empty() ? index_.lower_bound(prefix) : index_.upper_bound(after);
    for (; it != index_.end() && it->first.starts_with(prefix) && keys.size() < n; ++it) {
        keys.push_back(it->first);
    }
    return keys;
}

std::vector<std::string> HubDisk::list(const std::string & prefix) {
    return list_some(prefix, "", size_t(-1));
}

void HubDisk::remove(const std::string & key) {
    check_key(key);
    std::lock_guard<std::mutex> name(name_mutex(key));
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto                  found = index_.find(key);
        if (found == index_.end()) {
            return;
        }
        total_ -= found->second.size;
        arrivals_.erase(found->second.version);
        index_.erase(found);
    }
    files_.remove(key);
}

bool HubDisk::is_nearly_full() {
    std::error_code failed;
    const auto      disk = fs::space(path_, failed);

    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t              most = failed ? limits_.max_total_bytes
                                              : std::min(limits_.max_total_bytes, total_ + disk.available);
    return total_ > most / 5 * 4 || index_.size() > limits_.max_keys / 5 * 4;
}

std::map<std::string, uint64_t> HubDisk::bytes_of_runs() const {
    std::map<std::string, uint64_t> bytes;
    std::lock_guard<std::mutex>     lock(mutex_);
    for (const auto & [key, entry] : index_) {
        bytes[key.substr(0, key.find('/') + 1)] += entry.size;
    }
    return bytes;
}

uint64_t HubDisk::total_bytes() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return total_;
}

uint64_t HubDisk::n_keys() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return index_.size();
}

void HubDisk::stop_waiting() {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    arrived_.notify_all();
}

}  // namespace gt
