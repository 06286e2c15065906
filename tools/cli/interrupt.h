// tools/cli/interrupt.h — the first Ctrl+C ends a run after its step; a second one exits at once.
#pragma once

#include <csignal>
#include <cstdlib>
#include <unistd.h>

namespace gt {

class Interrupt {
public:
    Interrupt() {
        n_asked() = 0;
        std::signal(SIGINT, handle);
        std::signal(SIGTERM, handle);
    }
    ~Interrupt() {
        std::signal(SIGINT, SIG_DFL);
        std::signal(SIGTERM, SIG_DFL);
    }

    static bool asked() { return n_asked() > 0; }

private:
    static volatile std::sig_atomic_t & n_asked() {
        static volatile std::sig_atomic_t n = 0;
        return n;
    }
    static void handle(int) {
        n_asked() = n_asked() + 1;
        if (n_asked() > 1) {
            _exit(130);
        }
        static const char text[] =
            "\nfinishing this step, then saving; Ctrl+C again exits at once\n";
        (void) !write(STDERR_FILENO, text, sizeof(text) - 1);
    }
};

}  // namespace gt
