// tools/cli/nearest.h — what a mistyped name was meant to be.
#pragma once

#include <string>
#include <vector>

namespace gt {

// The known name that begins with `name` or is the fewest letters away; "" if none is near.
std::string nearest(const std::string & name, const std::vector<std::string> & known);

}  // namespace gt
