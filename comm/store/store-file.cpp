// comm/store/store-file.cpp — write aside, flush, rename: readers never see a partial value.
#include "comm/store/store-file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace gt {

namespace fs = std::filesystem;

static constexpr int  kAttempts = 100;
static constexpr auto kMinPause = std::chrono::milliseconds(2);
static constexpr auto kMaxPause = std::chrono::milliseconds(100);

File::~File() {
    if (fd_ >= 0) {
        ::close(fd_);
    }
}

void fail_file(const char * what, const fs::path & path, int code) {
    throw StoreError(
        std::string("store: ") + what + " " + path.string() + ": " + std::strerror(code) +
        (code == ENOSPC ? "; free some space there" : "; check the folder and its permissions")
    );
}

static void make_folder(const fs::path & folder) {
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (failed) {
        fail_file("can't create", folder, failed.value());
    }
}

static void sync_folder(const fs::path & folder) {
    const File file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (file.fd() >= 0) {
        ::fsync(file.fd()
        );  // fails on some network file systems, which order their writes themselves
    }
}

void read_at(const File & file, uint64_t offset, std::span<uint8_t> out, const fs::path & path) {
    for (size_t done = 0; done < out.size();) {
        const ssize_t n =
            ::pread(file.fd(), out.data() + done, out.size() - done, off_t(offset + done));
        if (n == 0 || (n < 0 && errno != EINTR)) {
            fail_file("can't read", path, n < 0 ? errno : EIO);
        }
        done += size_t(std::max<ssize_t>(n, 0));
    }
}

void write_at(
    const File & file, uint64_t offset, std::span<const uint8_t> data, const fs::path & path
) {
    if (file.fd() < 0) {
        fail_file("can't write", path, errno);
    }
    for (size_t done = 0; done < data.size();) {
        const ssize_t n =
            ::pwrite(file.fd(), data.data() + done, data.size() - done, off_t(offset + done));
        if (n == 0 || (n < 0 && errno != EINTR)) {
            fail_file("can't write", path, n < 0 ? errno : EIO);
        }
        done += size_t(std::max<ssize_t>(n, 0));
    }
}

void flush(const File & file, const fs::path & path) {
    if (file.fd() < 0 || ::fsync(file.fd()) != 0) {
        fail_file("can't flush", path, errno);
    }
}

std::optional<Bytes> read_file(const fs::path & path) {
    const File  file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (file.fd() < 0 || ::fstat(file.fd(), &info) != 0 || !S_ISREG(info.st_mode)) {
        return std::nullopt;
    }
    Bytes value(size_t(info.st_size));
    read_at(file, 0, value, path);
    return value;
}

static bool same_content(const fs::path & a, const fs::path & b) {
    std::error_code failed;
    return fs::file_size(a, failed) == fs::file_size(b, failed) && !failed &&
           read_file(a) == read_file(b);
}

// Creates the folder and calls; again if another host's remove() deletes the empty folder meanwhile.
template <typename Call>
static int with_folder(const fs::path & target, const Call & call) {
    for (int attempt = 0;; attempt++) {
        std::error_code failed;
        fs::create_directories(target.parent_path(), failed);
        if (failed && (failed.value() != ENOENT || attempt == kAttempts)) {
            fail_file("can't create", target.parent_path(), failed.value());
        }
        const int result = call();
        if (result == 0 || errno != ENOENT || attempt == kAttempts) {
            return result;
        }
    }
}

FileStore::FileStore(const std::string & path, unsigned mode)
    : root_(fs::absolute(path).lexically_normal()), mode_(mode) {
    if (!root_.has_filename()) {
        root_ = root_.parent_path();  // "folder/"
    }
    make_folder(root_ / "=tmp");
    remove_old_aside();
}

bool FileStore::put(const std::string & key, std::span<const uint8_t> value, bool if_absent) {
    check_key(key);
    return adopt(write_aside(value), key, if_absent);
}

bool FileStore::adopt(const fs::path & aside, const std::string & key, bool if_absent, bool flush) {
    const fs::path target = path_of(key);
    if (if_absent) {
        if (!create(aside, target)) {
            // an earlier attempt of ours may have succeeded although its result was lost
            const bool same = same_content(aside, target);
            ::unlink(aside.c_str());
            return same;
        }
    } else {
        replace(aside, target);
    }
    if (flush) {
        sync_folder(target.parent_path());
    }
    return true;
}

std::optional<Bytes> FileStore::get(const std::string & key, std::chrono::milliseconds wait) {
    check_key(key);
    const auto end   = std::chrono::steady_clock::now() + wait;
    auto       pause = kMinPause;
    for (;;) {
        if (std::optional<Bytes> value = read_file(path_of(key))) {
            return value;
        }
        const auto now = std::chrono::steady_clock::now();
        if (now >= end) {
            return std::nullopt;
        }
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, end - now));
        pause = std::min(pause * 2, kMaxPause);
    }
}

std::vector<std::string> FileStore::list(const std::string & prefix) {
    if (prefix.find("..") != prefix.npos) {
        return {};  // not valid in keys, and would leave the folder
    }
    // begin in the deepest folder of the prefix
    const size_t             slash = prefix.rfind('/');
    const fs::path           begin = slash == prefix.npos ? root_ : root_ / prefix.substr(0, slash);
    std::vector<std::string> keys;
    std::error_code          failed;
    fs::recursive_directory_iterator it(begin, failed), end;
    while (!failed && it != end) {
        std::error_code ignored;
        if (it->path().filename().string().starts_with("=")) {
            it.disable_recursion_pending();
        } else if (it->is_regular_file(ignored)) {
            const std::string key = it->path().lexically_relative(root_).generic_string();
            if (key.starts_with(prefix) && valid_key(key)) {
                keys.push_back(key);
            }
        }
        it.increment(failed);
    }
    std::sort(keys.begin(), keys.end());
    return keys;
}

void FileStore::remove(const std::string & key) {
    check_key(key);
    const fs::path target = path_of(key);
    if (::unlink(target.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR && errno != EISDIR) {
        fail_file("can't remove", target, errno);
    }
    // remove empty folders, too; rmdir refuses others
    for (fs::path folder = target.parent_path(); folder != root_; folder = folder.parent_path()) {
        if (::rmdir(folder.c_str()) != 0) {
            break;
        }
    }
}

fs::path FileStore::new_aside() const {
    // unique on all machines that share the folder: 64 random bits, process and counter
    static std::atomic<uint64_t> counter{0};
    static const uint64_t        own = [] {
        std::random_device random;
        return (uint64_t(random()) << 32) | random();
    }();
    const auto n   = (unsigned long long) counter++;
    const int  pid = int(::getpid());  // a forked child has the same bits
    return root_ / "=tmp" / format("%016llx-%d-%llu", (unsigned long long) own, pid, n);
}

fs::path FileStore::write_aside(std::span<const uint8_t> value, bool flush_it) const {
    const fs::path aside = new_aside();
    const File     file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode_));
    try {
        write_at(file, 0, value, aside);
        if (flush_it) {
            flush(file, aside);
        }
    } catch (const StoreError &) {
        ::unlink(aside.c_str());
        throw;
    }
    return aside;
}

// True if the target did not exist; else the file aside stays. Without hard links: a rename that does
// not replace; without that either, a plain rename, which probe_atomic_create detects.
bool FileStore::create(const fs::path & aside, const fs::path & target) {
    if (with_folder(target, [&] { return ::link(aside.c_str(), target.c_str()); }) == 0) {
        ::unlink(aside.c_str());
        return true;
    }
    if (errno == EEXIST) {
        return false;
    }
    if (::renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0) {
        return true;
    }
    if (errno == EEXIST) {
        return false;
    }
    replace(aside, target);
    return true;
}

void FileStore::replace(const fs::path & aside, const fs::path & target) {
    if (with_folder(target, [&] { return ::rename(aside.c_str(), target.c_str()); }) != 0) {
        const int code = errno;
        ::unlink(aside.c_str());
        fail_file("can't write", target, code);
    }
}

// Removes files of crashed hosts. No upload takes a day.
void FileStore::remove_old_aside() const {
    std::error_code failed;
    for (const fs::directory_entry & entry : fs::directory_iterator(root_ / "=tmp", failed)) {
        std::error_code ignored;
        const auto      written = entry.last_write_time(ignored);
        if (!ignored && fs::file_time_type::clock::now() - written > std::chrono::hours(24)) {
            fs::remove(entry.path(), ignored);
        }
    }
}

std::unique_ptr<Store> make_file_store(const std::string & path) {
    return std::make_unique<FileStore>(path);
}

}  // namespace gt
