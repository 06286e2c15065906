// comm/hub/hub-uploads.cpp — see hub-uploads.h.
#include "comm/hub/hub-uploads.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace gt {

namespace fs = std::filesystem;

static constexpr size_t   kMaxUploads    = 4096;
static constexpr size_t   kMaxUploadName = 64;
static constexpr uint64_t kMinRangeBytes = 16 * 1024;
static constexpr auto     kKeepFinished  = std::chrono::seconds(30);  // if the answer was lost
static constexpr auto     kKeepStalled   = std::chrono::seconds(120);

struct HubUploads::Upload {
    std::mutex                          mutex;  // ranges arrive on several connections
    std::string                         key;
    fs::path                            aside;
    uint64_t                            size = 0, range_bytes = 0, n_left = 0;
    std::vector<bool>                   have;
    bool                                done = false, failed = false;
    HubDisk::Outcome                    outcome = HubDisk::Outcome::incomplete;
    std::optional<HubDisk::Reservation> reservation;  // until done
    Time                                touched = std::chrono::steady_clock::now();

    ~Upload() {
        if (!done && !aside.empty()) {
            ::unlink(aside.c_str());
        }
    }
};

void HubUploads::require_limits(const Range & range) const {
    if (range.range_bytes < kMinRangeBytes || range.size == 0 ||
        range.size > disk_.limits().max_value_bytes ||
        range.index > range.size / range.range_bytes || range.upload.empty() ||
        range.upload.size() > kMaxUploadName) {
        throw Error("the ranges of this upload are outside the hub's limits");
    }
}

std::shared_ptr<HubUploads::Upload> HubUploads::open(const std::string & key, const Range & range) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = uploads_.find(range.upload); found != uploads_.end()) {
        const Upload & upload = *found->second;
        if (upload.key != key || upload.size != range.size ||
            upload.range_bytes != range.range_bytes) {
            throw StoreError("two uploads have the same name; repeat it with another name");
        }
        return found->second;
    }
    if (uploads_.size() >= kMaxUploads) {
        throw HubFull("too many uploads at the same time");
    }
    auto upload         = std::make_shared<Upload>();
    upload->reservation = disk_.reserve(key, range.size);
    upload->key         = key;
    upload->aside       = disk_.new_aside();
    upload->size        = range.size;
    upload->range_bytes = range.range_bytes;
    upload->n_left      = (range.size + range.range_bytes - 1) / range.range_bytes;
    upload->have.assign(upload->n_left, false);
    const File file(::open(upload->aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.fd() < 0) {
        fail_file("can't write", upload->aside, errno);
    }
    uploads_[range.upload] = upload;
    return upload;
}

// The sender starts over. REQUIRES: the upload's mutex is held.
void HubUploads::fail(Upload & upload, const std::string & name) {
    upload.failed = true;
    upload.reservation.reset();
    std::lock_guard<std::mutex> all(mutex_);
    uploads_.erase(name);
}

HubDisk::Outcome HubUploads::write(
    const std::string & key, const Range & range, std::span<const uint8_t> data, const Check & check
) {
    check_key(key);
    require_limits(range);
    const uint64_t begin = range.index * range.range_bytes;
    if (begin >= range.size || data.size() != std::min(range.range_bytes, range.size - begin)) {
        throw Error("a range that does not fit its upload");
    }
    const std::shared_ptr<Upload> upload = open(key, range);
    std::lock_guard<std::mutex>   lock(upload->mutex);
    upload->touched = std::chrono::steady_clock::now();
    if (upload->failed) {
        throw StoreError("the hub could not finish this upload; send it again");
    }
    if (upload->done) {  // the answer to the last range was lost
        return upload->outcome == HubDisk::Outcome::created ? HubDisk::Outcome::there
                                                            : upload->outcome;
    }
    const HubDisk::FileSlot slot(disk_);
    // write the range to its place
    if (!upload->have[range.index]) {
        if (!fs::exists(upload->aside)) {
            fail(*upload, range.upload);
            throw StoreError("the hub has lost a part of this upload; send it again");
        }
        const File file(::open(upload->aside.c_str(), O_WRONLY | O_CLOEXEC));
        write_at(file, begin, data, upload->aside);
        upload->have[range.index] = true;
        upload->n_left--;
    }
    if (upload->n_left > 0) {
        return HubDisk::Outcome::incomplete;
    }
    // all are there: give the file its name
    try {
        check(read_file(upload->aside).value_or(Bytes()));
        if (HubDisk::is_flushed(key)) {
            const File file(::open(upload->aside.c_str(), O_RDONLY | O_CLOEXEC));
            flush(file, upload->aside);
        }
        upload->outcome = disk_.adopt(upload->aside, key, upload->size);
        upload->done    = true;
    } catch (const Error &) {  // e.g. a full disk: the sender starts over
        fail(*upload, range.upload);
        throw;
    }
    upload->reservation.reset();
    return upload->outcome;
}

std::vector<uint64_t> HubUploads::missing(const std::string & key, const Range & range) {
    check_key(key);
    require_limits(range);
    const std::shared_ptr<Upload> upload = open(key, range);
    std::lock_guard<std::mutex>   lock(upload->mutex);
    std::vector<uint64_t>         missing;
    for (uint64_t i = 0; i < upload->have.size(); i++) {
        if (!upload->have[i]) {
            missing.push_back(i);
        }
    }
    return missing;
}

void HubUploads::drop_old() {
    const auto                  now = std::chrono::steady_clock::now();
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(uploads_, [&](const auto & entry) {
        const std::shared_ptr<Upload> upload = entry.second;
        std::unique_lock<std::mutex>  busy(upload->mutex, std::try_to_lock);
        return busy && now - upload->touched > (upload->done ? kKeepFinished : kKeepStalled);
    });
}

}  // namespace gt
