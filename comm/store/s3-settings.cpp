// comm/store/s3-settings.cpp — see s3-settings.h.
#include "comm/store/s3-settings.h"

#include <cstdlib>
#include <fstream>
#include <map>

namespace gt {

static std::string variable(const char * name) {
    const char * value = std::getenv(name);
    return value ? value : "";
}

static std::string first_of(std::initializer_list<std::string> texts) {
    for (const std::string & text : texts) {
        if (!text.empty()) {
            return text;
        }
    }
    return "";
}

static std::string trimmed(const std::string & text) {
    const size_t first = text.find_first_not_of(" \t\r");
    const size_t last  = text.find_last_not_of(" \t\r");
    return first == text.npos ? "" : text.substr(first, last - first + 1);
}

// name = value under [profile].
static std::map<std::string, std::string> credentials() {
    const std::string home = variable("HOME");
    const std::string path = first_of(
        {variable("AWS_SHARED_CREDENTIALS_FILE"), home.empty() ? "" : home + "/.aws/credentials"}
    );
    const std::string                  wanted = first_of({variable("AWS_PROFILE"), "default"});
    std::map<std::string, std::string> out;
    std::ifstream                      in(path);
    std::string                        line, profile;
    while (std::getline(in, line)) {
        line               = trimmed(line);
        const size_t equal = line.find('=');
        if (line.starts_with("[") && line.ends_with("]")) {
            profile = trimmed(line.substr(1, line.size() - 2));
        } else if (profile == wanted && equal != line.npos && line[0] != '#') {
            out[trimmed(line.substr(0, equal))] = trimmed(line.substr(equal + 1));
        }
    }
    return out;
}

// The part after '?' of the URL: endpoint=...&region=...
static std::map<std::string, std::string> query_of(const std::string & text) {
    std::map<std::string, std::string> out;
    for (size_t at = 0; at < text.size();) {
        const size_t      end   = std::min(text.find('&', at), text.size());
        const std::string pair  = text.substr(at, end - at);
        const size_t      equal = pair.find('=');
        if (equal == pair.npos) {
            throw Error("store s3: '" + pair + "' in the URL is not name=value");
        }
        out[pair.substr(0, equal)] = pair.substr(equal + 1);
        at                         = end + 1;
    }
    for (const auto & [name, value] : out) {
        if (name != "endpoint" && name != "region") {
            throw Error(
                "store s3: '" + name + "' in the URL is unknown; use endpoint= and region="
            );
        }
    }
    return out;
}

S3Settings s3_settings(const S3StoreOptions & options) {
    if (!options.url.starts_with("s3://")) {
        throw Error("store " + options.url + ": must begin with s3://");
    }
    S3Settings   s;
    const size_t mark  = options.url.find('?');
    auto         query = query_of(mark == options.url.npos ? "" : options.url.substr(mark + 1));
    std::string  path  = options.url.substr(5, mark == options.url.npos ? mark : mark - 5);
    while (path.ends_with("/")) {
        path.pop_back();
    }
    const size_t slash = path.find('/');
    s.options          = options;
    s.bucket           = path.substr(0, slash);
    s.prefix           = slash == path.npos ? "" : path.substr(slash + 1) + "/";
    if (!valid_key(s.bucket) || (!s.prefix.empty() && !valid_key(path))) {
        throw Error(
            "store " + options.url + ": use s3://bucket/prefix with letters, digits and ._~-"
        );
    }
    s.region = first_of(
        {query["region"], variable("AWS_REGION"), variable("AWS_DEFAULT_REGION"), "us-east-1"}
    );
    s.endpoint = first_of(
        {query["endpoint"], variable("AWS_ENDPOINT_URL_S3"), variable("AWS_ENDPOINT_URL"),
         "https://s3." + s.region + ".amazonaws.com"}
    );
    while (s.endpoint.ends_with("/")) {
        s.endpoint.pop_back();
    }
    if (!s.endpoint.starts_with("https://") && !s.endpoint.starts_with("http://")) {
        throw Error("store " + options.url + ": the endpoint must begin with https:// or http://");
    }
    s.access_key    = first_of({options.access_key, variable("AWS_ACCESS_KEY_ID")});
    s.secret_key    = first_of({options.secret_key, variable("AWS_SECRET_ACCESS_KEY")});
    s.session_token = variable("AWS_SESSION_TOKEN");
    if (s.access_key.empty() || s.secret_key.empty()) {
        auto file       = credentials();
        s.access_key    = file["aws_access_key_id"];
        s.secret_key    = file["aws_secret_access_key"];
        s.session_token = file["aws_session_token"];
    }
    if (s.access_key.empty() || s.secret_key.empty()) {
        throw Error(
            "store " + options.url +
            ": no keys; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "write them to ~/.aws/credentials"
        );
    }
    return s;
}

}  // namespace gt
