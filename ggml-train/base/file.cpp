#include "ggml-train/base/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gt {

namespace fs = std::filesystem;

static constexpr size_t kBlockBytes = 1 << 20;

void StreamDigest::add(const void * data, size_t n_bytes) {
    const auto * bytes = static_cast<const uint8_t *>(data);
    while (n_bytes > 0) {
        if (block_.empty() && n_bytes >= kBlockBytes) {  // a whole block needs no copy
            digest_ = digest64({bytes, kBlockBytes}, digest_);
            bytes += kBlockBytes;
            n_bytes -= kBlockBytes;
            continue;
        }
        const size_t n = std::min(n_bytes, kBlockBytes - block_.size());
        block_.insert(block_.end(), bytes, bytes + n);
        bytes += n;
        n_bytes -= n;
        if (block_.size() == kBlockBytes) {
            digest_ = digest64(block_, digest_);
            block_.clear();
        }
    }
}

uint64_t StreamDigest::value() const {
    return block_.empty() ? digest_ : digest64(block_, digest_);
}

AsideFile::AsideFile(std::string path) : path_(std::move(path)) {
    fd_ = ::open((path_ + ".part").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) {
        fail("cannot be written");
    }
    buffer_.reserve(kBlockBytes);
}

AsideFile::~AsideFile() {
    if (fd_ >= 0) {
        ::close(fd_);
        ::unlink((path_ + ".part").c_str());
    }
}

void AsideFile::fail(const char * what) const {
    const int   code = errno;
    std::string text = path_ + ": " + what + ": " + std::strerror(code);
    if (code == ENOSPC || code == EDQUOT) {
        text += format(
            " after %s; free some space and start again. The old file is unchanged",
            bytes_text(n_written_).c_str()
        );
    }
    throw Error(text);
}

static bool write_all(int fd, const uint8_t * data, size_t n) {
    while (n > 0) {
        const ssize_t done = ::write(fd, data, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return false;
        }
        data += done;
        n -= static_cast<size_t>(done);
    }
    return true;
}

void AsideFile::flush() {
    if (!write_all(fd_, buffer_.data(), buffer_.size())) {
        fail("could not be written");
    }
    buffer_.clear();
}

void AsideFile::write(const void * data, size_t n_bytes) {
    digest_.add(data, n_bytes);
    n_written_ += n_bytes;
    const auto * bytes = static_cast<const uint8_t *>(data);
    if (buffer_.size() + n_bytes > kBlockBytes) {
        flush();
    }
    if (n_bytes < kBlockBytes) {
        buffer_.insert(buffer_.end(), bytes, bytes + n_bytes);
    } else if (!write_all(fd_, bytes, n_bytes)) {
        fail("could not be written");
    }
}

void AsideFile::rewrite(uint64_t offset, const void * data, size_t n_bytes) {
    GT_CHECK(offset + n_bytes <= n_written_, "only written bytes can be rewritten");
    flush();
    const auto * bytes = static_cast<const uint8_t *>(data);
    if (::lseek(fd_, static_cast<off_t>(offset), SEEK_SET) < 0 || !write_all(fd_, bytes, n_bytes) ||
        ::lseek(fd_, 0, SEEK_END) < 0) {
        fail("could not be written");
    }
}

void AsideFile::commit() {
    const std::string part = path_ + ".part";
    flush();
    if (::fsync(fd_) != 0) {
        fail("could not be flushed to the disk");
    }
    if (::rename(part.c_str(), path_.c_str()) != 0) {
        fail("could not be renamed from its .part");
    }
    ::close(fd_);
    fd_ = -1;

    // Flush the directory as well, so that the new name survives a crash.
    const fs::path folder = fs::path(path_).parent_path();
    const int      dir    = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
    if (dir >= 0) {
        ::fsync(dir);
        ::close(dir);
    }
}

MappedFile::MappedFile(const std::string & path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        throw Error(path + ": " + std::strerror(errno));
    }
    struct stat info = {};
    ::fstat(fd, &info);
    if (!S_ISREG(info.st_mode)) {
        ::close(fd);
        throw Error(path + ": is not a file");
    }
    size_ = static_cast<size_t>(info.st_size);
    if (size_ > 0) {
        void * data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            const int code = errno;
            ::close(fd);
            throw Error(path + ": cannot be mapped: " + std::strerror(code));
        }
        data_ = static_cast<const uint8_t *>(data);
    }
    ::close(fd);
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) {
        ::munmap(const_cast<uint8_t *>(data_), size_);
    }
}

FileLock::FileLock(const std::string & path, const std::string & busy) {
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) {
        throw Error(path + ": cannot be written: " + std::strerror(errno));
    }
    int failed = 0;
    do {
        failed = ::flock(fd_, LOCK_EX | (busy.empty() ? 0 : LOCK_NB));
    } while (failed != 0 && errno == EINTR);
    if (failed != 0) {
        const int code = errno;
        ::close(fd_);
        throw Error(
            code == EWOULDBLOCK ? busy : path + ": cannot be locked: " + std::strerror(code)
        );
    }
}

FileLock::~FileLock() {
    ::close(fd_);
}

FolderLock::FolderLock(const std::string & folder)
    : FileLock(
          folder + "/.lock",
          folder +
              ": another process is training here; stop it, or choose another folder with --out"
      ) {}

void make_folder(const std::string & path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error || !fs::is_directory(path)) {
        throw Error(
            path + ": cannot be made: " + (error ? error.message() : "a file is in its place")
        );
    }
}

}  // namespace gt
