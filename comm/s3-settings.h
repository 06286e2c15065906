// comm/s3-settings.h — where the bucket is and with which keys: URL, environment, credentials file.
#pragma once

#include "comm/store.h"

namespace gt {

struct S3Settings {
    std::string    endpoint, bucket, prefix;  // prefix is empty or ends in '/'
    std::string    region, access_key, secret_key, session_token;
    S3StoreOptions options;
};

// From the options; what is empty there from s3://bucket/prefix?endpoint=URL&region=NAME, then from
// the usual AWS variables, then from the credentials file (AWS_SHARED_CREDENTIALS_FILE or
// ~/.aws/credentials, profile AWS_PROFILE or default). Throws Error with the next move.
S3Settings s3_settings(const S3StoreOptions & options);

}  // namespace gt
