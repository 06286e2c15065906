#include "models/convert/safetensors.h"

#include "ggml-train/base/json.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gt {

static_assert(std::endian::native == std::endian::little, "values are copied as they are");

namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeader   = 100'000'000;  // as Hugging Face's reader has it
constexpr size_t   kMaxDims     = 8;

uint64_t type_bytes(const std::string & type) {
    return type == "F32" ? 4 : type == "F16" || type == "BF16" ? 2 : 0;
}

uint64_t load_u64(const uint8_t * from) {
    uint64_t value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
}

// A whole number of at most 2^53.
std::optional<uint64_t> whole(const Json & json) {
    const auto number = json.number();
    if (!number || !(*number >= 0.0 && *number <= 0x1p53)) {
        return std::nullopt;
    }
    const auto value = static_cast<uint64_t>(*number);
    return static_cast<double>(value) == *number ? std::optional(value) : std::nullopt;
}

std::optional<std::vector<uint64_t>> wholes(const Json & json, const char * key) {
    const auto elements = json.array(key);
    if (!elements) {
        return std::nullopt;
    }
    std::vector<uint64_t> values;
    for (const Json & element : *elements) {
        const auto value = whole(element);
        if (!value) {
            return std::nullopt;
        }
        values.push_back(*value);
    }
    return values;
}

// One entry of the header; `n_data` bytes of values begin at `data`.
SafeTensor
parse_entry(const Json & entry, uint64_t data, uint64_t n_data, const std::string & where) {
    SafeTensor tensor;
    const auto type = entry.string("dtype");
    if (!type) {
        throw Error(where + " has no dtype");
    }
    tensor.type         = *type;
    const uint64_t each = type_bytes(tensor.type);
    if (each == 0) {
        throw Error(
            where + " is of type " + tensor.type +
            "; only F32, F16 and BF16 are read: save the model in one of them"
        );
    }
    const auto shape = wholes(entry, "shape");
    if (!shape || shape->size() > kMaxDims) {
        throw Error(where + " has no valid shape");
    }
    uint64_t n_bytes = each;
    for (const uint64_t n : *shape) {
        if (n != 0 && n_bytes > n_data / n) {
            throw Error(where + ": its shape needs more bytes than the file has; is it cut off?");
        }
        n_bytes *= n;
        tensor.shape.push_back(static_cast<int64_t>(n));
    }
    const auto offsets = wholes(entry, "data_offsets");
    if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
        throw Error(where + " has no valid data_offsets");
    }
    if ((*offsets)[1] > n_data) {
        throw Error(format(
            "%s ends at byte %llu of %llu; the file is cut off, copy it again", where.c_str(),
            static_cast<unsigned long long>((*offsets)[1]), static_cast<unsigned long long>(n_data)
        ));
    }
    if ((*offsets)[1] - (*offsets)[0] != n_bytes) {
        throw Error(where + ": data_offsets do not fit its shape and dtype");
    }
    tensor.begin = data + (*offsets)[0];
    tensor.end   = data + (*offsets)[1];
    return tensor;
}

void check_cover(
    const SafetensorsHead & head, uint64_t begin, uint64_t end, const std::string & where
) {
    std::vector<std::pair<uint64_t, uint64_t>> parts;
    for (const auto & [name, tensor] : head.tensors) {
        parts.emplace_back(tensor.begin, tensor.end);
    }
    std::sort(parts.begin(), parts.end());
    for (const auto & [from, to] : parts) {
        if (from != begin) {
            throw Error(
                where + (from < begin ? ": two tensors overlap" : ": bytes belong to no tensor") +
                "; the file is damaged, copy it again"
            );
        }
        begin = to;
    }
    if (begin != end) {
        throw Error(
            where + ": bytes at the end belong to no tensor; the file is damaged, copy it again"
        );
    }
}

}  // namespace

int64_t SafeTensor::n_elements() const {
    return static_cast<int64_t>((end - begin) / type_bytes(type));
}

std::string SafeTensor::shape_text() const {
    std::string text = "[";
    for (const int64_t n : shape) {
        text += (text.size() > 1 ? ", " : "") + std::to_string(n);
    }
    return text + "]";
}

SafetensorsHead parse_safetensors(std::span<const uint8_t> file, const std::string & where) {
    if (file.size() < kLengthBytes) {
        throw Error(where + ": too short for a safetensors file");
    }
    const uint64_t n_header = load_u64(file.data()), most = file.size() - kLengthBytes;
    if (n_header > std::min(most, kMaxHeader)) {
        throw Error(format(
            "%s: its header would have %llu bytes, the file has %llu; not a safetensors file, or "
            "cut "
            "off",
            where.c_str(), static_cast<unsigned long long>(n_header),
            static_cast<unsigned long long>(most)
        ));
    }
    const std::string_view text(
        reinterpret_cast<const char *>(file.data()) + kLengthBytes, static_cast<size_t>(n_header)
    );
    const auto header = Json::parse(text);
    if (!header || !header->is_object()) {
        throw Error(
            where + ": its header is not a JSON object; not a safetensors file, or damaged"
        );
    }
    SafetensorsHead head;
    const uint64_t  data = kLengthBytes + n_header;
    for (const std::string & name : header->keys()) {
        const Json entry = *header->field(name);
        if (name == "__metadata__") {
            for (const std::string & key : entry.keys()) {
                head.metadata[key] = entry.string(key).value_or("");
            }
            continue;
        }
        head.tensors[name] =
            parse_entry(entry, data, file.size() - data, where + ": tensor " + name);
    }
    check_cover(head, data, file.size(), where);
    return head;
}

void write_safetensors(
    const std::string &                        path,
    const std::vector<SafeValues> &            tensors,
    const std::map<std::string, std::string> & metadata
) {
    Json header = Json::object(), texts = Json::object();
    for (const auto & [key, value] : metadata) {
        texts.set(key, value);
    }
    header.set("__metadata__", texts);
    uint64_t at = 0;
    for (const SafeValues & tensor : tensors) {
        Json shape = Json::array();
        for (const int64_t n : tensor.shape) {
            shape.push(n);
        }
        const uint64_t end = at + tensor.values.size_bytes();
        header.set(
            tensor.name, Json::object()
                             .set("dtype", "F32")
                             .set("shape", shape)
                             .set("data_offsets", Json::array().push(at).push(end))
        );
        at = end;
    }
    std::string text = header.text();
    text.resize((text.size() + 7) / 8 * 8, ' ');  // values begin aligned
    const uint64_t n_header = text.size();
    AsideFile      file(path);
    file.write(&n_header, sizeof(n_header));
    file.write(text.data(), text.size());
    for (const SafeValues & tensor : tensors) {
        file.write(tensor.values.data(), tensor.values.size_bytes());
    }
    file.commit();
}

}  // namespace gt
