// comm/hub-parts.cpp — large values that arrive at the hub in parts, on several connections.
#include "comm/hub-disk.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace gt {

namespace fs = std::filesystem;

struct HubDisk::Upload {
    std::mutex        mutex;  // parts of one upload arrive on several connections
    std::string       key;
    fs::path          aside;
    uint64_t          size = 0, part_bytes = 0, n_left = 0;
    std::vector<bool> have;
    bool              done = false, failed = false;
    Outcome           outcome                     = Outcome::incomplete;
    std::chrono::steady_clock::time_point touched = std::chrono::steady_clock::now();

    ~Upload() {
        if (!done && !aside.empty()) {
            ::unlink(aside.c_str());
        }
    }
};

HubDisk::HubDisk(const std::string & path, const Limits & limits) : files_(path), limits_(limits) {
    read_index();
}

HubDisk::~HubDisk() = default;

std::shared_ptr<HubDisk::Upload> HubDisk::open_upload(const std::string & key, const Part & part) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<Upload> &   slot = uploads_[part.upload];
    if (slot) {
        const bool same =
            slot->key == key && slot->size == part.size && slot->part_bytes == part.part_bytes;
        if (!same) {
            throw StoreError("two uploads with the same name; send it again under another");
        }
        return slot;
    }
    try {
        if (uploads_.size() > limits_.max_uploads) {
            throw HubFull("too many uploads at once");
        }
        reserve(part.size);
    } catch (...) {
        uploads_.erase(part.upload);
        throw;
    }
    slot             = std::make_shared<Upload>();
    slot->key        = key;
    slot->aside      = files_.new_aside();
    slot->size       = part.size;
    slot->part_bytes = part.part_bytes;
    slot->n_left     = (part.size + part.part_bytes - 1) / part.part_bytes;
    slot->have.assign(slot->n_left, false);
    return slot;
}

static void write_at(const fs::path & path, uint64_t offset, std::span<const uint8_t> data) {
    const File file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (file.fd() < 0) {
        fail_file("can't write", path, errno);
    }
    for (size_t done = 0; done < data.size();) {
        const ssize_t n =
            ::pwrite(file.fd(), data.data() + done, data.size() - done, off_t(offset + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            fail_file("can't write", path, errno);
        }
        done += size_t(n);
    }
}

void HubDisk::check_part(const Part & part) const {
    if (part.part_bytes < 16 * 1024 || part.size == 0 || part.size > limits_.max_value_bytes ||
        part.index > part.size / part.part_bytes || part.upload.empty() ||
        part.upload.size() > 64) {
        throw Error("the parts of this upload are out of this hub's limits");
    }
}

HubDisk::Outcome
HubDisk::write_part(const std::string & key, const Part & part, std::span<const uint8_t> data) {
    check_key(key);
    check_part(part);
    const uint64_t begin = part.index * part.part_bytes;
    if (begin >= part.size || data.size() != std::min(part.part_bytes, part.size - begin)) {
        throw Error("a part that does not fit its upload");
    }
    const std::shared_ptr<Upload> upload = open_upload(key, part);
    std::lock_guard<std::mutex>   lock(upload->mutex);
    upload->touched = std::chrono::steady_clock::now();
    if (upload->failed) {
        throw StoreError("the hub could not finish this upload; send it again");
    }
    if (upload->done) {  // the answer to the last part got lost
        return upload->outcome == Outcome::created ? Outcome::there : upload->outcome;
    }
    if (!upload->have[part.index]) {
        write_at(upload->aside, begin, data);
        upload->have[part.index] = true;
        upload->n_left--;
    }
    if (upload->n_left > 0) {
        return Outcome::incomplete;
    }
    try {
        const File file(::open(upload->aside.c_str(), O_RDONLY | O_CLOEXEC));
        if (file.fd() < 0 || ::fsync(file.fd()) != 0) {
            fail_file("can't flush", upload->aside, errno);
        }
        upload->outcome = adopt(upload->aside, key, upload->size, part.if_absent);
        upload->done    = true;
    } catch (const StoreError &) {  // a full disk: the parts are asked for again
        std::lock_guard<std::mutex> all(mutex_);
        upload->failed = true;
        uploads_.erase(part.upload);
        reserved_ -= upload->size;
        throw;
    }
    std::lock_guard<std::mutex> all(mutex_);
    reserved_ -= upload->size;
    return upload->outcome;
}

std::vector<uint64_t> HubDisk::missing_parts(const std::string & key, const Part & part) {
    check_key(key);
    check_part(part);
    const std::shared_ptr<Upload> upload = open_upload(key, part);
    std::lock_guard<std::mutex>   lock(upload->mutex);
    std::vector<uint64_t>         missing;
    for (uint64_t i = 0; i < upload->have.size(); i++) {
        if (!upload->have[i]) {
            missing.push_back(i);
        }
    }
    return missing;
}

void HubDisk::drop_old_uploads() {
    const auto                  now = std::chrono::steady_clock::now();
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = uploads_.begin(); it != uploads_.end();) {
        Upload &                     upload = *it->second;
        std::unique_lock<std::mutex> busy(upload.mutex, std::try_to_lock);
        // a finished one is kept a little for a sender that lost the answer
        const auto keep = upload.done ? std::chrono::seconds(30) : std::chrono::seconds(120);
        if (busy && now - upload.touched > keep) {
            reserved_ -= upload.done ? 0 : upload.size;
            busy.unlock();
            it = uploads_.erase(it);
        } else {
            ++it;
        }
    }
}

}  // namespace gt
