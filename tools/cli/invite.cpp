#include "tools/cli/invite.h"

#include "ggml-train/base/base.h"

#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

namespace gt {

constexpr char kMark[] = "gt1.";  // how invitations begin

std::string read_invite(const std::string & given) {
    if (given.starts_with(kMark)) {
        return given;
    }
    if (given == "-") {
        return {std::istreambuf_iterator<char>(std::cin), {}};
    }
    std::ifstream in(given, std::ios::binary);
    if (!in) {
        throw Error(
            "--join " + given + ": neither an invitation (gt1...) nor a file that can be read"
        );
    }
    return {std::istreambuf_iterator<char>(in), {}};
}

void hide_invites(int argc, char ** argv) {
    for (int i = 1; i < argc; ++i) {
        if (char * invite = std::strstr(argv[i], kMark)) {
            std::memset(invite, 'x', std::strlen(invite));
        }
    }
}

}  // namespace gt
