// ggml-train/base/file.h — files that survive a crash (written aside, then renamed), mapped files, locks.
// No ggml header. Used by gguf/gguf-write.h, run/checkpoint.h, models/text/token-data.h.
#pragma once

#include "ggml-train/base/base.h"
#include "ggml-train/base/text.h"

namespace gt {

// Digest of a long stream, computed block by block while it is written.
class StreamDigest {
public:
    void     add(const void * data, size_t n_bytes);
    uint64_t value() const;  // of all bytes added so far

private:
    Bytes    block_;
    uint64_t digest_ = 0;
};

// A file that appears under its name completely or not at all. Data is written to `<path>.part`; commit
// flushes it to disk and renames it over the old file. Every failure (such as a full disk) is an Error.
// After a failure, or without commit, the .part file is removed and the old file is unchanged.
class AsideFile {
public:
    explicit AsideFile(std::string path);
    ~AsideFile();
    AsideFile(const AsideFile &)             = delete;
    AsideFile & operator=(const AsideFile &) = delete;

    void     write(const void * data, size_t n_bytes);
    uint64_t n_written() const { return n_written_; }
    uint64_t digest() const { return digest_.value(); }

    // Replaces bytes written before; does not change the digest.
    void rewrite(uint64_t offset, const void * data, size_t n_bytes);
    void commit();

private:
    [[noreturn]] void fail(const char * what) const;
    void              flush();

    std::string  path_;
    int          fd_ = -1;
    Bytes        buffer_;
    uint64_t     n_written_ = 0;
    StreamDigest digest_;
};

// A file mapped into memory, read only. REQUIRES: it is not truncated meanwhile.
class MappedFile {
public:
    explicit MappedFile(const std::string & path);
    ~MappedFile();
    MappedFile(const MappedFile &)             = delete;
    MappedFile & operator=(const MappedFile &) = delete;

    std::span<const uint8_t> bytes() const { return {data_, size_}; }

private:
    const uint8_t * data_ = nullptr;
    size_t          size_ = 0;
};

// A lock on a separate file. The system releases it when the process ends, even by a signal.
class FileLock {
public:
    // Waits for the lock. With `busy` it does not wait: if another process holds it, throws Error(busy).
    explicit FileLock(const std::string & path, const std::string & busy = "");
    ~FileLock();
    FileLock(const FileLock &)             = delete;
    FileLock & operator=(const FileLock &) = delete;

private:
    int fd_ = -1;
};

// Held while a run uses its folder; a second process gets an Error.
class FolderLock : public FileLock {
public:
    explicit FolderLock(const std::string & folder);
};

// Makes a folder and its parents, or throws an Error.
void make_folder(const std::string & path);

}  // namespace gt
