// comm/store/s3-settings.h — address and keys of a bucket, from URL, environment and credentials file.
#pragma once

#include "comm/store/store.h"

namespace gt {

struct S3Settings {
    std::string    endpoint, bucket, prefix;  // prefix is empty or ends in '/'
    std::string    region, access_key, secret_key, session_token;
    S3StoreOptions options;
};

// Empty options are taken from s3://bucket/prefix?endpoint=URL&region=NAME, then from the usual AWS
// variables, then from the credentials file (AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials,
// profile AWS_PROFILE or default). Throws Error with what to do.
S3Settings s3_settings(const S3StoreOptions & options);

}  // namespace gt
