// tests/scratch.h — a folder for one test, gone afterwards; and small file helpers.
#pragma once

#include "ggml-train/base/base.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace gt {

class Scratch {
public:
    Scratch() {
        static int n = 0;
        folder_      = std::filesystem::temp_directory_path() /
                  format("gt-test-%d-%d", static_cast<int>(::getpid()), n++);
        std::filesystem::create_directories(folder_);
    }
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    std::string operator/(const std::string & name) const { return (folder_ / name).string(); }
    std::string path() const { return folder_.string(); }

private:
    std::filesystem::path folder_;
};

inline std::string read_text(const std::string & path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const std::string & path, const std::string & text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
}

// Message of the Error that fn throws; empty if it throws none.
template <class Fn>
std::string error_of(Fn && fn) {
    try {
        fn();
    } catch (const Error & error) {
        return error.what();
    }
    return "";
}

}  // namespace gt
