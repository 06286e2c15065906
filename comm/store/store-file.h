// comm/store/store-file.h — a folder as a store; the hub stores its values in one, too.
//
// A value is written aside to "=tmp" ('=' is not valid in keys), flushed, and then linked or renamed
// to its name, so that a reader sees all of it or nothing, after a crash, too.
// Read next: store-file.cpp; hub-disk.h (the same with an index, limits and waiting).
#pragma once

#include "comm/store/store.h"

#include <filesystem>

namespace gt {

class FileStore : public Store {
public:
    // mode: of its files, before the umask.
    explicit FileStore(const std::string & path, unsigned mode = 0666);

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override;
    std::optional<Bytes>     get(const std::string & key, std::chrono::milliseconds wait) override;
    std::vector<std::string> list(const std::string & prefix) override;
    void                     remove(const std::string & key) override;

    // Writes a value to a file in "=tmp".
    std::filesystem::path write_aside(std::span<const uint8_t> value, bool flush_it = true) const;
    // An unused name in "=tmp".
    std::filesystem::path new_aside() const;
    // Gives a file in "=tmp" its name, or removes it and returns false as put does.
    // REQUIRES: the key is valid.
    bool adopt(
        const std::filesystem::path & aside,
        const std::string &           key,
        bool                          if_absent,
        bool                          flush = true
    );

    std::filesystem::path path_of(const std::string & key) const { return root_ / key; }

private:
    bool create(const std::filesystem::path & aside, const std::filesystem::path & target);
    void replace(const std::filesystem::path & aside, const std::filesystem::path & target);
    void remove_old_aside() const;

    std::filesystem::path root_;
    unsigned              mode_;
};

// Nothing if there is no such file.
std::optional<Bytes> read_file(const std::filesystem::path & path);

// Throws StoreError: what failed on which file, and what to do.
[[noreturn]] void fail_file(const char * what, const std::filesystem::path & path, int code);

// Closes a file descriptor at the end of its scope.
class File {
public:
    explicit File(int fd) : fd_(fd) {}
    ~File();
    File(const File &)             = delete;
    File & operator=(const File &) = delete;

    int fd() const { return fd_; }

private:
    int fd_;
};

// Each throws StoreError if it fails.
void read_at(
    const File & file, uint64_t offset, std::span<uint8_t> out, const std::filesystem::path & path
);
void write_at(
    const File &                  file,
    uint64_t                      offset,
    std::span<const uint8_t>      data,
    const std::filesystem::path & path
);
void flush(const File & file, const std::filesystem::path & path);

}  // namespace gt
