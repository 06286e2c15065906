// Thirteen kinds of bugs in a kernel are detected: by the emulator, by a sanitizer, or by the PTX
// interpreter. The kernel without a bug passes everywhere.
#include "ggml-train/base/base.h"
#include "tests/catch.h"

#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>

namespace {

struct Outcome {
    int         code = 0;  // exit code, or 128 + signal
    std::string text;
};

Outcome
run(const std::string & program, int bug, const std::string & order, const std::string & ptx = "") {
    const std::string command =
        program + " " + std::to_string(bug) + " " + order + " " + ptx + " 2>&1";
    FILE *  pipe = popen(("exec timeout 60 " + command).c_str(), "r");
    Outcome o;
    char    buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
        o.text.append(buffer, n);
    }
    const int status = pclose(pipe);
    o.code           = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return o;
}

// Expects one of these exit codes and this text in the output.
struct Expected {
    int          bug;
    const char * what;
    std::string  by;
    int          code;
    const char * text;
};

const std::string kPlain = GT_BUGS, kAsan = GT_BUGS_ASAN, kTsan = GT_BUGS_TSAN;

}  // namespace

TEST_CASE("a_kernel_without_bugs_raises_no_alarm", "[cuda]") {
    for (const std::string & program : {kPlain, kAsan, kTsan}) {
        for (const char * order : {"up", "down", "random"}) {
            const Outcome o = run(program, 0, order);
            INFO(program << " " << order << ": " << o.text);
            CHECK(o.code == 0);
            CHECK(o.text.empty());
        }
    }
}

TEST_CASE("twelve_kinds_of_bugs_are_caught", "[cuda]") {
    const std::vector<Expected> catches = {
        {1, "missing barrier, wrong result", kPlain, 3, ""},
        {1, "missing barrier, race", kTsan, 66, "data race"},
        {2, "write past the end", kPlain, 128 + SIGSEGV, ""},
        {3, "return before a barrier", kPlain, 128 + SIGABRT,
         "__syncthreads() after some threads have returned"},
        {4, "host reads device memory", kPlain, 128 + SIGSEGV, ""},
        {5, "missing synchronize", kPlain, 3, ""},
        {6, "barrier in half the threads", kPlain, 128 + SIGABRT,
         "__syncthreads() after some threads have returned"},
        {7, "race between blocks", kTsan, 66, "data race"},
        {8, "shuffle without half its lanes", kPlain, 128 + SIGABRT, "deadlock"},
        {9, "overrun of a shared array", kAsan, 1, "use-after-poison"},
        {10, "matrix read before the barrier, race", kTsan, 66, "data race"},
        {11, "product of half a warp", kPlain, 128 + SIGABRT, "lanes disagree"},
        {12, "row of a matrix that is not aligned", kPlain, 128 + SIGABRT, "not aligned"},
    };
    for (const Expected & c : catches) {
        for (const char * order : {"up", "down", "random"}) {
            const Outcome o = run(c.by, c.bug, order);
            INFO(c.what << ", " << order << ": exit " << o.code << "\n" << o.text);
            CHECK(o.code == c.code);
            CHECK(o.text.find(c.text) != std::string::npos);
        }
    }
}

#ifdef GT_BUGS_PTX
TEST_CASE("the_ptx_interpreter_catches_the_kernels_bugs", "[cuda][ptx]") {
    const std::vector<Expected> catches = {
        {0, "no bug", kPlain, 0, ""},
        {1, "missing barrier", kPlain, 4, "race with a"},
        {2, "write past the end", kPlain, 4, "global access out of bounds"},
        {3, "return before a barrier", kPlain, 4, "barrier after some threads have returned"},
        {6, "barrier in half the threads", kPlain, 4,
         "ptx: "},  // a race, before the barrier is missed
        {7, "race between blocks", kPlain, 4, "race between blocks"},
        {8, "shuffle without half its lanes", kPlain, 4, "deadlock"},
        {9, "overrun of a shared array", kPlain, 4, "shared access out of bounds"},
        {10, "matrix read before the barrier", kPlain, 4, "race with a"},
        {11, "product of half a warp", kPlain, 4, "lanes disagree"},
        {12, "row of a matrix that is not aligned", kPlain, 4, "misaligned"},
        {13, "a thread that reads a whole array", kPlain, 4, "reads 80004 bytes in one launch"},
    };
    for (const Expected & c : catches) {
        const Outcome o = run(c.by, c.bug, "up", GT_BUGS_PTX);
        INFO(c.what << ": exit " << o.code << "\n" << o.text);
        CHECK(o.code == c.code);
        CHECK(o.text.find(c.text) != std::string::npos);
    }
}
#endif
