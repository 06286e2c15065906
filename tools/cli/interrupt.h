// tools/cli/interrupt.h — the first Ctrl+C ends a run after its step; a second one exits at once. SIGTERM and
// a closed terminal do the same.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace gt {

class Interrupt {
public:
    // text: what the first Ctrl+C tells. REQUIRES: a literal.
    explicit Interrupt(
        const char * text = "\nfinishing this step, then saving; Ctrl+C again exits at once\n"
    ) {
        n_asked() = 0;
        told()    = text;
        std::signal(SIGINT, handle);
        std::signal(SIGTERM, handle);
        hang_up(handle);
    }
    ~Interrupt() {
        std::signal(SIGINT, SIG_DFL);
        std::signal(SIGTERM, SIG_DFL);
        hang_up(SIG_DFL);
    }

    static bool asked() { return n_asked() > 0; }

    // Before the first step there is nothing to save: Ctrl+C ends the program, also one that a script
    // has started in the background, where the shell lets it be ignored.
    static void allow() { std::signal(SIGINT, SIG_DFL); }

private:
    static void hang_up(void (*action)(int)) {
        if (std::signal(SIGHUP, action) == SIG_IGN) {
            std::signal(SIGHUP, SIG_IGN);  // nohup
        }
    }
    static std::atomic<int> & n_asked() {  // threads that wait for other hosts ask, too
        static std::atomic<int> n = 0;
        return n;
    }
    static const char *& told() {
        static const char * text = "";
        return text;
    }
    static void handle(int signal) {
        if (++n_asked() > 1 && signal != SIGHUP) {
            _exit(130);
        }
        std::signal(SIGPIPE, SIG_IGN);  // the reader of our output may be gone, too
        (void) !write(STDERR_FILENO, told(), std::strlen(told()));
    }
};

}  // namespace gt
