// comm/store/s3-text.h — text helpers for S3 requests and answers.
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

std::string sha256_hex(std::span<const uint8_t> data);

// Percent-encoding of RFC 3986, including '/': for values in a query.
std::string encoded(const std::string & text);

// The texts between <name> and </name>, in order: enough for the answers of S3.
std::vector<std::string> xml_values(const std::string & xml, const std::string & name);

}  // namespace gt
