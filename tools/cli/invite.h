// tools/cli/invite.h — --join, without showing the run's key to other users of this machine.
#pragma once

#include <string>

namespace gt {

// `given` is an invitation, the file that contains one, or "-" for standard input.
std::string read_invite(const std::string & given);

// Overwrites invitations in the command line, which every user can list.
void hide_invites(int argc, char ** argv);

}  // namespace gt
