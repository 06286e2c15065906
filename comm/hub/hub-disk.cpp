// comm/hub/hub-disk.cpp — see hub-disk.h.
#include "comm/hub/hub-disk.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gt {

namespace fs = std::filesystem;

HubDisk::HubDisk(const std::string & path, const Limits & limits) : files_(path), limits_(limits) {
    read_index();
}

void HubDisk::read_index() {
    // no other process uses this folder: files aside are left over from a killed hub
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
            index_[key] = {size, ++version_};
            total_ += size;
        }
    }
}

HubDisk::Reservation HubDisk::reserve(uint64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > limits_.max_value_bytes) {
        throw Error(format(
            "a value of %llu bytes is larger than the hub's limit of %llu",
            (unsigned long long) bytes, (unsigned long long) limits_.max_value_bytes
        ));
    }
    if (total_ + reserved_ + bytes > limits_.max_total_bytes) {
        throw HubFull(format(
            "the hub's %llu MB are full; start it with a larger --disk, or wait until old rounds "
            "are removed",
            (unsigned long long) limits_.max_total_bytes >> 20
        ));
    }
    if (index_.size() >= limits_.max_keys) {
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

std::mutex & HubDisk::name_mutex(const std::string & key) {
    return names_[digest64(key) % names_.size()];
}

HubDisk::Outcome
HubDisk::adopt(const fs::path & aside, const std::string & key, uint64_t size, bool if_absent) {
    std::lock_guard<std::mutex> name(name_mutex(key));
    const bool                  won = files_.adopt(aside, key, if_absent);
    std::lock_guard<std::mutex> lock(mutex_);
    if (!won) {
        return Outcome::other;
    }
    const auto found = index_.find(key);
    if (found != index_.end() && if_absent) {
        return Outcome::there;  // the same bytes
    }
    const bool is_new = found == index_.end();
    total_ += size - (is_new ? 0 : found->second.size);
    index_[key] = {size, ++version_};
    arrived_.notify_all();
    return is_new ? Outcome::created : Outcome::there;
}

HubDisk::Outcome
HubDisk::write(const std::string & key, std::span<const uint8_t> value, bool if_absent) {
    check_key(key);
    const Reservation reservation = reserve(value.size());
    return adopt(files_.write_aside(value), key, value.size(), if_absent);
}

bool HubDisk::put(const std::string & key, std::span<const uint8_t> value, bool if_absent) {
    return write(key, value, if_absent) != Outcome::other;
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
        for (const std::string & prefix : prefixes) {
            for (auto it = index_.lower_bound(prefix);
                 it != index_.end() && it->first.starts_with(prefix); ++it) {
                if (it->second.version > version &&
                    (!next || it->second.version < next->second.version)) {
                    next = *it;
                }
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
    for (size_t done = 0; done < out.size();) {
        const ssize_t n =
            ::pread(file.fd(), out.data() + done, out.size() - done, off_t(offset + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            fail_file("can't read", files_.path_of(key), n < 0 ? errno : EIO);
        }
        done += size_t(n);
    }
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
        }  // else overwritten or removed meanwhile
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
        index_.erase(found);
    }
    files_.remove(key);
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
