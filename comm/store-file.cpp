// comm/store-file.cpp — a folder as a store: one machine, NFS, SMB, a synchronised drive.
//
// A value is written aside into "=tmp" ('=' can't occur in a key), flushed, and then linked or
// renamed to its name, so that a reader sees all of it or nothing, after a crash too.
#include "comm/store.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace gt {

namespace fs = std::filesystem;

namespace {

class File {
public:
    explicit File(int fd) : fd_(fd) {}
    ~File() {
        if (fd_ >= 0) {
            ::close(fd_);
        }
    }
    File(const File &)             = delete;
    File & operator=(const File &) = delete;

    int fd() const { return fd_; }

private:
    int fd_;
};

class FileStore : public Store {
public:
    explicit FileStore(const std::string & path) : root_(path) {
        std::error_code failed;
        fs::create_directories(root_ / "=tmp", failed);
        if (failed) {
            fail("can't create", root_, failed.value());
        }
        remove_old_aside();
    }

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override {
        check_key(key);
        const fs::path target = root_ / key;
        const fs::path aside  = write_aside(value);
        make_folder(target.parent_path());
        const bool won = if_absent ? create(aside, target) : replace(aside, target);
        sync_folder(target.parent_path());
        if (!won) {
            // our own earlier try may have got through without our hearing of it
            const std::optional<Bytes> there = read(target);
            return there && std::equal(there->begin(), there->end(), value.begin(), value.end());
        }
        return true;
    }

    std::optional<Bytes> get(const std::string & key, std::chrono::milliseconds wait) override {
        check_key(key);
        const auto end   = std::chrono::steady_clock::now() + wait;
        auto       pause = std::chrono::milliseconds(2);
        for (;;) {
            if (std::optional<Bytes> value = read(root_ / key)) {
                return value;
            }
            const auto now = std::chrono::steady_clock::now();
            if (now >= end) {
                return std::nullopt;
            }
            std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, end - now));
            pause = std::min(pause * 2, std::chrono::milliseconds(100));
        }
    }

    std::vector<std::string> list(const std::string & prefix) override {
        // begin at the deepest folder that the prefix names
        const size_t   slash = prefix.rfind('/');
        const fs::path begin = slash == prefix.npos ? root_ : root_ / prefix.substr(0, slash);
        std::vector<std::string>         keys;
        std::error_code                  failed;
        fs::recursive_directory_iterator it(begin, failed), end;
        while (!failed && it != end) {
            const std::string name = it->path().filename().string();
            std::error_code   ignored;
            if (name.starts_with("=")) {
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

    void remove(const std::string & key) override {
        check_key(key);
        const fs::path target = root_ / key;
        if (::unlink(target.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR &&
            errno != EISDIR) {
            fail("can't remove", target, errno);
        }
        // empty folders behind it go too; one that is in use stays (rmdir refuses)
        for (fs::path folder = target.parent_path(); folder != root_;
             folder          = folder.parent_path()) {
            if (::rmdir(folder.c_str()) != 0) {
                break;
            }
        }
    }

private:
    [[noreturn]] static void fail(const char * what, const fs::path & path, int code) {
        throw StoreError(
            std::string("store: ") + what + " " + path.string() + ": " + std::strerror(code) +
            (code == ENOSPC ? "; free some space there" : "; check the folder and its rights")
        );
    }

    fs::path write_aside(std::span<const uint8_t> value) {
        static std::atomic<uint64_t> counter{0};
        static const uint64_t        start =
            uint64_t(std::chrono::system_clock::now().time_since_epoch().count());
        char machine[65] = {};
        ::gethostname(machine, sizeof machine - 1);
        const fs::path aside =
            root_ / "=tmp" /
            format(
                "%016llx-%d-%llx-%llu", (unsigned long long) digest64(std::string(machine)),
                int(::getpid()), (unsigned long long) start, (unsigned long long) counter++
            );
        File file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
        if (file.fd() < 0) {
            fail("can't write", aside, errno);
        }
        size_t done = 0;
        while (done < value.size()) {
            const ssize_t n = ::write(file.fd(), value.data() + done, value.size() - done);
            if (n < 0 && errno == EINTR) {
                continue;
            }
            if (n <= 0) {
                const int code = errno;
                ::unlink(aside.c_str());
                fail("can't write", aside, code);
            }
            done += size_t(n);
        }
        if (::fsync(file.fd()) != 0) {
            const int code = errno;
            ::unlink(aside.c_str());
            fail("can't flush", aside, code);
        }
        return aside;
    }

    void make_folder(const fs::path & folder) {
        std::error_code failed;
        fs::create_directories(folder, failed);
        if (failed) {
            fail("can't create", folder, failed.value());
        }
    }

    // True if the target was not there. Without hard links: a rename that does not replace; without
    // that either, a plain rename, which the probe finds out.
    bool create(const fs::path & aside, const fs::path & target) {
        if (retry_folder(target, [&] { return ::link(aside.c_str(), target.c_str()); }) == 0) {
            ::unlink(aside.c_str());
            return true;
        }
        if (errno == EEXIST) {
            ::unlink(aside.c_str());
            return false;
        }
        if (::renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0) {
            return true;
        }
        if (errno == EEXIST) {
            ::unlink(aside.c_str());
            return false;
        }
        return replace(aside, target);
    }

    bool replace(const fs::path & aside, const fs::path & target) {
        if (retry_folder(target, [&] { return ::rename(aside.c_str(), target.c_str()); }) != 0) {
            const int code = errno;
            ::unlink(aside.c_str());
            fail("can't write", target, code);
        }
        return true;
    }

    // Another host's remove() may take the empty folder away between our making and using it.
    template <typename Call>
    int retry_folder(const fs::path & target, const Call & call) {
        for (int attempt = 0;; attempt++) {
            const int result = call();
            if (result == 0 || errno != ENOENT || attempt == 10) {
                return result;
            }
            make_folder(target.parent_path());
        }
    }

    static void sync_folder(const fs::path & folder) {
        const File file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (file.fd() >= 0) {
            ::fsync(file.fd());  // not every network file system can; its own write order must do
        }
    }

    static std::optional<Bytes> read(const fs::path & path) {
        const File  file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        struct stat info {};
        if (file.fd() < 0 || ::fstat(file.fd(), &info) != 0 || !S_ISREG(info.st_mode)) {
            return std::nullopt;
        }
        Bytes  value(size_t(info.st_size));
        size_t done = 0;
        while (done < value.size()) {
            const ssize_t n = ::read(file.fd(), value.data() + done, value.size() - done);
            if (n < 0 && errno == EINTR) {
                continue;
            }
            if (n <= 0) {
                fail("can't read", path, n < 0 ? errno : EIO);
            }
            done += size_t(n);
        }
        return value;
    }

    // What a crashed host left behind. A day: no upload takes that long.
    void remove_old_aside() {
        std::error_code failed;
        for (const fs::directory_entry & entry : fs::directory_iterator(root_ / "=tmp", failed)) {
            std::error_code ignored;
            const auto      age = fs::file_time_type::clock::now() - entry.last_write_time(ignored);
            if (!ignored && age > std::chrono::hours(24)) {
                fs::remove(entry.path(), ignored);
            }
        }
    }

    fs::path root_;
};

}  // namespace

std::unique_ptr<Store> make_file_store(const std::string & path) {
    return std::make_unique<FileStore>(fs::absolute(path).lexically_normal());
}

}  // namespace gt
