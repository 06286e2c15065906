// comm/store-file.h — a folder as a store; the hub keeps its values in one too.
//
// A value is written aside into "=tmp" ('=' can't occur in a key), flushed, and then linked or
// renamed to its name, so that a reader sees all of it or nothing, after a crash too.
// Read next: store-file.cpp; hub-disk.h (the same with an index, limits and waiting).
#pragma once

#include "comm/store.h"

#include <filesystem>

namespace gt {

class FileStore : public Store {
public:
    explicit FileStore(const std::string & path);

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override;
    std::optional<Bytes>     get(const std::string & key, std::chrono::milliseconds wait) override;
    std::vector<std::string> list(const std::string & prefix) override;
    void                     remove(const std::string & key) override;

    // A value as a whole, flushed file in "=tmp".
    std::filesystem::path write_aside(std::span<const uint8_t> value) const;
    // An unused name there.
    std::filesystem::path new_aside() const;
    // Gives a whole, flushed file in "=tmp" its name. False as for put; the file is gone then.
    // REQUIRES: the key is valid.
    bool adopt(const std::filesystem::path & aside, const std::string & key, bool if_absent);

    std::filesystem::path path_of(const std::string & key) const { return root_ / key; }

private:
    bool create(const std::filesystem::path & aside, const std::filesystem::path & target);
    void replace(const std::filesystem::path & aside, const std::filesystem::path & target);
    void remove_old_aside() const;

    std::filesystem::path root_;
};

// Throws StoreError: what could not be done to which file, and the next move.
[[noreturn]] void fail_file(const char * what, const std::filesystem::path & path, int code);

// A file descriptor that is closed at the end of its scope.
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

}  // namespace gt
