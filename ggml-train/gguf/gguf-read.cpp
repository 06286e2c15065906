#include "ggml-train/gguf/gguf-read.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>

namespace gt {

// ggml gives the reason for refusing a file only in its log; captures its last error.
class LogCapture {
public:
    LogCapture() : lock_(mutex()) {
        ggml_log_get(&callback_, &user_data_);
        ggml_log_set(
            [](ggml_log_level level, const char * text, void * self) {
                if (level == GGML_LOG_LEVEL_ERROR) {
                    static_cast<LogCapture *>(self)->text_ = text;
                }
            },
            this
        );
    }
    ~LogCapture() { ggml_log_set(callback_, user_data_); }

    // "gguf_init_from_file_ptr: failed to read key-value pairs" without function name and newline.
    std::string text() const {
        std::string  text  = text_.substr(0, text_.find_last_not_of('\n') + 1);
        const size_t colon = text.find(": ");
        return colon == std::string::npos ? text : text.substr(colon + 2);
    }

private:
    static std::mutex & mutex() {
        static std::mutex mutex;
        return mutex;
    }
    std::lock_guard<std::mutex> lock_;
    ggml_log_callback           callback_  = nullptr;
    void *                      user_data_ = nullptr;
    std::string                 text_;
};

gguf_context_ptr open_gguf(const std::string & path) {
    std::error_code error;
    const auto      status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) {
        throw Error(path + ": no such file");
    }
    if (std::filesystem::is_directory(status)) {
        throw Error(path + ": is a folder, not a GGUF file");
    }
    const std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path.c_str(), "rb"), std::fclose);
    if (!file) {
        throw Error(path + ": " + std::strerror(errno));
    }
    const uint64_t file_bytes = std::filesystem::file_size(path, error);
    char           magic[4]   = {};
    if (std::fread(magic, 1, 4, file.get()) != 4 || std::memcmp(magic, "GGUF", 4) != 0 ||
        std::fseek(file.get(), 0, SEEK_SET) != 0) {
        throw Error(path + ": not a GGUF file (it does not begin with \"GGUF\")");
    }

    gguf_context_ptr gguf;
    std::string      why;
    {
        const LogCapture log;
        gguf.reset(gguf_init_from_file_ptr(file.get(), {.no_alloc = true, .ctx = nullptr}));
        why = log.text();
    }
    if (!gguf) {
        throw Error(path + ": damaged or cut off GGUF (" + why + "); copy or create it again");
    }
    const uint64_t data_begin = gguf_get_data_offset(gguf.get());
    for (int64_t i = 0; i < gguf_get_n_tensors(gguf.get()); ++i) {
        const uint64_t end = data_begin + gguf_get_tensor_offset(gguf.get(), i) +
                             gguf_get_tensor_size(gguf.get(), i);
        if (end > file_bytes) {
            throw Error(format(
                "%s: cut off: tensor %s ends at byte %llu, the file at %llu; copy or create it "
                "again",
                path.c_str(), gguf_get_tensor_name(gguf.get(), i),
                static_cast<unsigned long long>(end), static_cast<unsigned long long>(file_bytes)
            ));
        }
    }
    return gguf;
}

[[noreturn]] static void
wrong_type(const gguf_context * gguf, int64_t id, const char * wanted, const std::string & where) {
    throw Error(format(
        "%s: key %s is of type %s, expected %s", where.c_str(), gguf_get_key(gguf, id),
        gguf_type_name(gguf_get_kv_type(gguf, id)), wanted
    ));
}

std::optional<int64_t>
find_int(const gguf_context * gguf, const std::string & key, const std::string & where) {
    const int64_t id = gguf_find_key(gguf, key.c_str());
    if (id < 0) {
        return std::nullopt;
    }
    switch (gguf_get_kv_type(gguf, id)) {
        case GGUF_TYPE_UINT8:
            return gguf_get_val_u8(gguf, id);
        case GGUF_TYPE_INT8:
            return gguf_get_val_i8(gguf, id);
        case GGUF_TYPE_UINT16:
            return gguf_get_val_u16(gguf, id);
        case GGUF_TYPE_INT16:
            return gguf_get_val_i16(gguf, id);
        case GGUF_TYPE_UINT32:
            return gguf_get_val_u32(gguf, id);
        case GGUF_TYPE_INT32:
            return gguf_get_val_i32(gguf, id);
        case GGUF_TYPE_UINT64:
            return static_cast<int64_t>(gguf_get_val_u64(gguf, id));
        case GGUF_TYPE_INT64:
            return gguf_get_val_i64(gguf, id);
        case GGUF_TYPE_BOOL:
            return gguf_get_val_bool(gguf, id) ? 1 : 0;
        default:
            wrong_type(gguf, id, "an integer", where);
    }
}

std::optional<double>
find_float(const gguf_context * gguf, const std::string & key, const std::string & where) {
    const int64_t id = gguf_find_key(gguf, key.c_str());
    if (id < 0) {
        return std::nullopt;
    }
    switch (gguf_get_kv_type(gguf, id)) {
        case GGUF_TYPE_FLOAT32:
            return gguf_get_val_f32(gguf, id);
        case GGUF_TYPE_FLOAT64:
            return gguf_get_val_f64(gguf, id);
        default:
            wrong_type(gguf, id, "a float", where);
    }
}

std::optional<std::string>
find_string(const gguf_context * gguf, const std::string & key, const std::string & where) {
    const int64_t id = gguf_find_key(gguf, key.c_str());
    if (id < 0) {
        return std::nullopt;
    }
    if (gguf_get_kv_type(gguf, id) != GGUF_TYPE_STRING) {
        wrong_type(gguf, id, "a string", where);
    }
    return gguf_get_val_str(gguf, id);
}

template <class T>
static std::vector<int64_t> array_of(const gguf_context * gguf, int64_t id) {
    const auto * data = static_cast<const T *>(gguf_get_arr_data(gguf, id));
    return {data, data + gguf_get_arr_n(gguf, id)};
}

std::vector<int64_t>
find_ints(const gguf_context * gguf, const std::string & key, const std::string & where) {
    const int64_t id = gguf_find_key(gguf, key.c_str());
    if (id < 0 || gguf_get_kv_type(gguf, id) != GGUF_TYPE_ARRAY) {
        const auto one = find_int(gguf, key, where);
        return one ? std::vector{*one} : std::vector<int64_t>{};
    }
    switch (gguf_get_arr_type(gguf, id)) {
        case GGUF_TYPE_UINT32:
            return array_of<uint32_t>(gguf, id);
        case GGUF_TYPE_INT32:
            return array_of<int32_t>(gguf, id);
        case GGUF_TYPE_BOOL:
            return array_of<int8_t>(gguf, id);
        default:
            wrong_type(gguf, id, "an array of 32-bit integers", where);
    }
}

std::vector<float>
find_floats(const gguf_context * gguf, const std::string & key, const std::string & where) {
    const int64_t id = gguf_find_key(gguf, key.c_str());
    if (id < 0) {
        return {};
    }
    if (gguf_get_kv_type(gguf, id) != GGUF_TYPE_ARRAY ||
        gguf_get_arr_type(gguf, id) != GGUF_TYPE_FLOAT32) {
        wrong_type(gguf, id, "an array of f32", where);
    }
    const auto * data = static_cast<const float *>(gguf_get_arr_data(gguf, id));
    return {data, data + gguf_get_arr_n(gguf, id)};
}

std::vector<std::string>
find_strings(const gguf_context * gguf, const std::string & key, const std::string & where) {
    const int64_t id = gguf_find_key(gguf, key.c_str());
    if (id < 0) {
        return {};
    }
    if (gguf_get_kv_type(gguf, id) != GGUF_TYPE_ARRAY ||
        gguf_get_arr_type(gguf, id) != GGUF_TYPE_STRING) {
        wrong_type(gguf, id, "an array of strings", where);
    }
    std::vector<std::string> values(gguf_get_arr_n(gguf, id));
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = gguf_get_arr_str(gguf, id, i);
    }
    return values;
}

std::optional<int64_t>
find_array_size(const gguf_context * gguf, const std::string & key, const std::string & where) {
    const int64_t id = gguf_find_key(gguf, key.c_str());
    if (id < 0) {
        return std::nullopt;
    }
    if (gguf_get_kv_type(gguf, id) != GGUF_TYPE_ARRAY) {
        wrong_type(gguf, id, "an array", where);
    }
    return static_cast<int64_t>(gguf_get_arr_n(gguf, id));
}

void keep_keys(gguf_context * gguf, const std::string & prefix) {
    for (int64_t i = gguf_get_n_kv(gguf) - 1; i >= 0; --i) {
        const std::string key = gguf_get_key(gguf, i);
        if (!key.starts_with(prefix)) {
            gguf_remove_key(gguf, key.c_str());
        }
    }
}

static size_t value_bytes(gguf_type type) {
    switch (type) {
        case GGUF_TYPE_UINT16:
        case GGUF_TYPE_INT16:
            return 2;
        case GGUF_TYPE_UINT32:
        case GGUF_TYPE_INT32:
        case GGUF_TYPE_FLOAT32:
            return 4;
        case GGUF_TYPE_UINT64:
        case GGUF_TYPE_INT64:
        case GGUF_TYPE_FLOAT64:
            return 8;
        default:
            return 1;  // 8-bit integers and bool
    }
}

// Digest of one key's value, chained onto `seed`.
static uint64_t digest_value(const gguf_context * keys, int64_t id, uint64_t seed) {
    const gguf_type type = gguf_get_kv_type(keys, id);
    if (type == GGUF_TYPE_STRING) {
        return digest64(gguf_get_val_str(keys, id), seed);
    }
    if (type != GGUF_TYPE_ARRAY) {
        const auto * data = static_cast<const uint8_t *>(gguf_get_val_data(keys, id));
        return digest64({data, value_bytes(type)}, seed);
    }
    const size_t n = gguf_get_arr_n(keys, id);
    if (gguf_get_arr_type(keys, id) == GGUF_TYPE_STRING) {
        for (size_t i = 0; i < n; ++i) {
            seed = digest64(gguf_get_arr_str(keys, id, i), seed);
        }
        return seed;
    }
    const auto * data = static_cast<const uint8_t *>(gguf_get_arr_data(keys, id));
    return digest64({data, n * value_bytes(gguf_get_arr_type(keys, id))}, seed);
}

uint64_t digest_keys(const gguf_context * gguf, const std::string & prefix) {
    std::vector<std::string> names;
    for (int64_t i = 0; i < gguf_get_n_kv(gguf); ++i) {
        const std::string name = gguf_get_key(gguf, i);
        if (name.starts_with(prefix)) {
            names.push_back(name);
        }
    }
    std::sort(names.begin(), names.end());
    uint64_t digest = 0;
    for (const std::string & name : names) {
        digest = digest_value(gguf, gguf_find_key(gguf, name.c_str()), digest64(name, digest));
    }
    return digest;
}

std::string shape_text(const int64_t * ne) {
    int n_dims = 4;
    while (n_dims > 1 && ne[n_dims - 1] == 1) {
        --n_dims;
    }
    std::string text = "[";
    for (int i = 0; i < n_dims; ++i) {
        text += (i > 0 ? ", " : "") + std::to_string(ne[i]);
    }
    return text + "]";
}

}  // namespace gt
