// ggml-train/file.h — files that survive a crash: written aside and renamed, or mapped to be read.
// No ggml header. Read next: gguf-writer.h, checkpoint.h and data.h, which stand on these.
#pragma once

#include "ggml-train/base.h"

namespace gt {

// Digest of a long stream, taken block by block so that it can be computed while writing.
class StreamDigest {
public:
    void     add(const void * data, size_t n_bytes);
    uint64_t value() const;  // of all that was added

private:
    Bytes    block_;
    uint64_t digest_ = 0;
};

// A file that appears under its name whole or not at all. What is written goes to `<path>.part`;
// commit flushes it to the disk and renames it over the old one. Every failure (a full disk) is an
// Error; then, or without commit, the part is removed and the old file stays as it was.
class AsideFile {
public:
    explicit AsideFile(std::string path);
    ~AsideFile();
    AsideFile(const AsideFile &)             = delete;
    AsideFile & operator=(const AsideFile &) = delete;

    void     write(const void * data, size_t n_bytes);
    uint64_t n_written() const { return n_written_; }
    uint64_t digest() const { return digest_.value(); }

    // Replaces bytes written before; the digest does not see it.
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

// A file in memory, read only. REQUIRES: nobody shortens it meanwhile.
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

// A lock on a file of its own, freed when the process ends, however it ends.
class FileLock {
public:
    // Waits for it. With `busy` it does not wait: if another process holds it, that is the Error.
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

// "3.2 GB"
std::string bytes_text(uint64_t n_bytes);

}  // namespace gt
