#include "ggml-train/base/json.h"

#include "ggml-train/base/base.h"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace gt {

using nlohmann::ordered_json;

struct Json::Impl {
    ordered_json value;
};

// The double that prints as the nine significant digits of a float.
static double nine_digits(float number) {
    return std::isfinite(number) ? std::strtod(format("%.9g", number).c_str(), nullptr) : number;
}

Json::Json() : impl_(std::make_unique<Impl>()) {}
Json::Json(double number) : impl_(new Impl{number}) {}
Json::Json(float number) : impl_(new Impl{nine_digits(number)}) {}
Json::Json(std::string_view text) : impl_(new Impl{text}) {}
Json::Json(Integer kind, uint64_t bits) : Json() {
    switch (kind) {
        case Integer::boolean:
            impl_->value = bits != 0;
            break;
        case Integer::with_sign:
            impl_->value = static_cast<int64_t>(bits);
            break;
        case Integer::without_sign:
            impl_->value = bits;
            break;
    }
}

Json Json::object() {
    Json json;
    json.impl_->value = ordered_json::object();
    return json;
}

Json Json::array() {
    Json json;
    json.impl_->value = ordered_json::array();
    return json;
}

Json::Json(const Json & other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
Json::Json(Json && other) noexcept = default;
Json::~Json()                      = default;

Json & Json::operator=(Json other) noexcept {
    impl_.swap(other.impl_);
    return *this;
}

std::optional<Json> Json::parse(std::string_view text) {
    Json json;
    json.impl_->value = ordered_json::parse(text, nullptr, /*allow_exceptions*/ false);
    return json.impl_->value.is_discarded() ? std::nullopt : std::optional(std::move(json));
}

Json & Json::set(std::string_view key, const Json & value) {
    GT_CHECK(impl_->value.is_object(), "only an object has fields");
    impl_->value[std::string(key)] = value.impl_->value;
    return *this;
}

Json & Json::push(const Json & value) {
    GT_CHECK(impl_->value.is_array(), "only an array has elements");
    impl_->value.push_back(value.impl_->value);
    return *this;
}

std::string Json::text() const {
    return impl_->value.dump(
        -1, ' ', /*ensure_ascii*/ false, ordered_json::error_handler_t::replace
    );
}

bool Json::is_object() const {
    return impl_->value.is_object();
}

// The field, or null if there is none.
static const ordered_json * find(const ordered_json & json, std::string_view key) {
    if (!json.is_object()) {
        return nullptr;
    }
    const auto found = json.find(std::string(key));
    return found == json.end() ? nullptr : &*found;
}

std::optional<double> Json::number(std::string_view key) const {
    const ordered_json * field = find(impl_->value, key);
    return field && field->is_number() ? std::optional(field->get<double>()) : std::nullopt;
}

std::optional<std::string> Json::string(std::string_view key) const {
    const ordered_json * field = find(impl_->value, key);
    return field && field->is_string() ? std::optional(field->get<std::string>()) : std::nullopt;
}

std::optional<std::vector<Json>> Json::array(std::string_view key) const {
    const ordered_json * field = find(impl_->value, key);
    if (!field || !field->is_array()) {
        return std::nullopt;
    }
    std::vector<Json> elements(field->size());
    for (size_t i = 0; i < elements.size(); ++i) {
        elements[i].impl_->value = (*field)[i];
    }
    return elements;
}

std::optional<Json> Json::field(std::string_view key) const {
    const ordered_json * field = find(impl_->value, key);
    if (!field) {
        return std::nullopt;
    }
    Json json;
    json.impl_->value = *field;
    return json;
}

std::optional<double> Json::number() const {
    return impl_->value.is_number() ? std::optional(impl_->value.get<double>()) : std::nullopt;
}

std::optional<std::string> Json::string() const {
    return impl_->value.is_string() ? std::optional(impl_->value.get<std::string>()) : std::nullopt;
}

bool Json::is_true() const {
    return impl_->value.is_boolean() && impl_->value.get<bool>();
}

std::vector<std::string> Json::keys() const {
    std::vector<std::string> keys;
    for (const auto & [key, value] : impl_->value.items()) {
        keys.push_back(key);
    }
    return keys;
}

}  // namespace gt
