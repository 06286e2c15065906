// comm/run/host-key.cpp — see host-key.h.
#include "comm/run/host-key.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

namespace gt {

std::string default_host_key_path() {
    const char * config = std::getenv("XDG_CONFIG_HOME");
    const char * home   = std::getenv("HOME");
    const bool   has    = config && *config;
    return (has             ? std::string(config)
            : home && *home ? std::string(home) + "/.config"
                            : std::string(".")) +
           "/ggml-train/host-key";
}

// Several processes may start at once: the first that links its file wins.
static void make_host_key(const std::string & path) {
    make_folder(std::filesystem::path(path).parent_path());
    const std::string aside = path + format(".%d", static_cast<int>(::getpid()));
    const std::string text  = to_base64(new_secret()) + "\n";
    const int         fd    = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const bool        is_written = fd >= 0 &&
                            ::write(fd, text.data(), text.size()) == ssize_t(text.size()) &&
                            ::fsync(fd) == 0 && ::close(fd) == 0;
    const bool is_there =
        is_written && (::link(aside.c_str(), path.c_str()) == 0 || errno == EEXIST);
    ::unlink(aside.c_str());
    if (!is_there) {
        throw Error(
            path + ": can't be written; this machine's key is kept there (set XDG_CONFIG_HOME to "
                   "another folder)"
        );
    }
}

// What a copy of the file does not have: this start of this machine, and the file itself.
static Key32 identity_of(const std::string & path) {
    std::ifstream in("/proc/sys/kernel/random/boot_id");
    std::string   text;
    struct stat   file {};
    if (!std::getline(in, text) || ::stat(path.c_str(), &file) != 0) {
        return new_secret();
    }
    text += format(" %ju %ju", uintmax_t(file.st_dev), uintmax_t(file.st_ino));
    return digest256({reinterpret_cast<const uint8_t *>(text.data()), text.size()});
}

NameLock::NameLock(const std::string & folder, uint64_t run, const std::string & name)
    : path_(folder + format("/%016jx-%s.lock", uintmax_t(run), name.c_str())),
      lock_(
          path_,
          "another process of this machine takes part in the run as '" + name +
              "'; stop it, or give this one its own name with --name"
      ),
      process_(identity_of(path_)) {}

Key32 load_host_key(const std::string & path) {
    if (!std::filesystem::exists(path)) {
        make_host_key(path);
    }
    std::ifstream in(path);
    std::string   text;
    std::getline(in, text);
    const auto bytes = from_base64(text);
    if (!bytes || bytes->size() != sizeof(Key32)) {
        throw Error(
            path + ": no key of a machine; restore the file, or remove it and take another --name"
        );
    }
    Key32 seed;
    std::copy(bytes->begin(), bytes->end(), seed.begin());
    return seed;
}

}  // namespace gt
