// comm/store/s3-text.cpp — see s3-text.h.
#include "comm/store/s3-text.h"

#include <openssl/evp.h>

namespace gt {

std::string sha256_hex(std::span<const uint8_t> data) {
    unsigned char digest[32] = {};
    EVP_Digest(data.data(), data.size(), digest, nullptr, EVP_sha256(), nullptr);
    std::string out;
    for (const unsigned char c : digest) {
        out += format("%02x", unsigned(c));
    }
    return out;
}

std::string encoded(const std::string & text) {
    std::string out;
    for (const unsigned char c : text) {
        const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                           (c >= 'a' && c <= 'z') || c == '-' || c == '_' || c == '.' || c == '~';
        out += plain ? std::string(1, char(c)) : format("%%%02X", unsigned(c));
    }
    return out;
}

std::vector<std::string> xml_values(const std::string & xml, const std::string & name) {
    std::vector<std::string> out;
    const std::string        open = "<" + name + ">", close = "</" + name + ">";
    for (size_t at = 0; (at = xml.find(open, at)) != xml.npos;) {
        at += open.size();
        const size_t end = xml.find(close, at);
        if (end == xml.npos) {
            break;
        }
        std::string value = xml.substr(at, end - at);
        for (const auto & [entity, letter] :
             {std::pair{"&quot;", "\""},
              {"&#34;", "\""},
              {"&apos;", "'"},
              {"&lt;", "<"},
              {"&gt;", ">"},
              {"&amp;", "&"}}) {
            for (size_t i = 0; (i = value.find(entity, i)) != value.npos; i++) {
                value.replace(i, std::string(entity).size(), letter);
            }
        }
        out.push_back(std::move(value));
        at = end;
    }
    return out;
}

}  // namespace gt
