// comm/s3-text.h — the small pieces of text that S3 requests and answers are made of.
#pragma once

#include "ggml-train/base.h"

namespace gt {

std::string sha256_hex(std::span<const uint8_t> data);

// RFC 3986, '/' too: for values in a query.
std::string encoded(const std::string & text);

// Texts between <name> and </name>, in order; enough for the answers S3 gives.
std::vector<std::string> xml_values(const std::string & xml, const std::string & name);

}  // namespace gt
