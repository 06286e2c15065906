// tests/comm/hub-process.h — the real hub program as a child process that can be killed and restarted.
#pragma once

#include "comm/run/hosts.h"
#include "comm/store/store.h"
#include "tests/catch.h"
#include "tests/scratch.h"

#include <arpa/inet.h>
#include <csignal>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace gt {

inline int free_port() {
    const int   fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    socklen_t   size        = sizeof address;
    address.sin_family      = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(fd, reinterpret_cast<sockaddr *>(&address), size);
    ::getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size);
    ::close(fd);
    return ntohs(address.sin_port);
}

class HubProcess {
public:
    // `hub` is the program; its store and log live in `folder`.
    HubProcess(const std::string & hub, const Scratch & folder)
        : hub_(hub), nodes_(folder / "hosts.txt"), path_(folder / "store"),
          log_(folder / "out.txt"), port_(free_port()) {
        Hosts hosts;
        hosts.key = to_base64(new_secret());
        hosts.hosts.push_back({.name = "hub", .address = "127.0.0.1:" + std::to_string(port_)});
        write_text(nodes_, hosts_text(hosts));
        keys_ = read_hosts(nodes_).keys;
    }
    ~HubProcess() { kill(SIGKILL); }

    // n_files: its hard limit of open files, of which half are allowed at first; 0: ours.
    void start(std::vector<std::string> more = {}, unsigned n_files = 0) {
        std::vector<std::string> words = {hub_,
                                          "--nodes",
                                          nodes_,
                                          "--path",
                                          path_,
                                          "--listen",
                                          "127.0.0.1:" + std::to_string(port_),
                                          "--quiet"};
        words.insert(words.end(), more.begin(), more.end());
        std::vector<char *> argv;
        for (std::string & word : words) {
            argv.push_back(word.data());
        }
        argv.push_back(nullptr);
        const int out = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        pid_          = ::fork();
        if (pid_ == 0) {
            const rlimit limit{n_files / 2, n_files};
            n_files ? ::setrlimit(RLIMIT_NOFILE, &limit) : 0;
            ::dup2(out, 1);
            ::dup2(out, 2);
            ::execv(argv[0], argv.data());
            ::_exit(127);
        }
        ::close(out);
    }

    void kill(int signal) {
        if (pid_ > 0) {
            ::kill(pid_, signal);
            ::waitpid(pid_, nullptr, 0);
            pid_ = -1;
        }
    }

    HttpStoreOptions client(const std::string & host) const {
        HttpStoreOptions options;
        options.address = "127.0.0.1:" + std::to_string(port_);
        options.keys    = &keys_;
        options.host    = host;
        return options;
    }

    double rss_mb() const {
        std::ifstream in("/proc/" + std::to_string(pid_) + "/status");
        std::string   word;
        double        kb = 0;
        while (in >> word && word != "VmRSS:") {
        }
        in >> kb;
        return kb / 1024;
    }

    const std::string & path() const { return path_; }
    std::string         output() const { return read_text(log_); }

private:
    std::string hub_, nodes_, path_, log_;
    int         port_;
    RunKeys     keys_;
    pid_t       pid_ = -1;
};

}  // namespace gt
