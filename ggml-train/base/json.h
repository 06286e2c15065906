// ggml-train/base/json.h — JSON values: built field by field, written on one line, parsed.
//
//   Json record = Json::object();
//   record.set("step", step).set("loss", loss).set("hosts", Json::array().push("anna").push("ben"));
//   std::fputs((record.text() + "\n").c_str(), file);
//
// Wraps nlohmann::ordered_json, which only json.cpp includes: it is slow to compile.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gt {

class Json {
public:
    Json();               // null
    Json(double number);  // NaN and Inf become null
    Json(float number);   // nine significant digits: enough to restore every bit
    Json(std::string_view text);
    Json(const std::string & text) : Json(std::string_view(text)) {}
    Json(const char * text) : Json(std::string_view(text)) {}
    template <std::integral T>
    Json(T number) : Json(kind_of<T>, static_cast<uint64_t>(number)) {}
    static Json object();
    static Json array();

    Json(const Json & other);
    Json(Json && other) noexcept;
    Json & operator=(Json other) noexcept;
    ~Json();

    // Nothing if the text is not exactly one valid JSON value.
    static std::optional<Json> parse(std::string_view text);

    Json & set(std::string_view key, const Json & value);  // REQUIRES: an object
    Json & push(const Json & value);                       // REQUIRES: an array

    // The value on one line, fields in the order in which they were set. Always valid UTF-8: invalid bytes
    // become U+FFFD, control characters are escaped, all other text is kept.
    std::string text() const;

    // A field of an object; nothing if it is missing or of another type.
    bool                             is_object() const;
    std::optional<double>            number(std::string_view key) const;
    std::optional<std::string>       string(std::string_view key) const;
    std::optional<std::vector<Json>> array(std::string_view key) const;
    std::optional<Json>              field(std::string_view key) const;  // of any type
    std::vector<std::string>         keys() const;

    // The value itself; nothing if it is of another type.
    std::optional<double>      number() const;
    std::optional<std::string> string() const;
    bool                       is_true() const;

private:
    enum class Integer { boolean, with_sign, without_sign };
    template <class T>
    static constexpr Integer kind_of = std::is_same_v<T, bool> ? Integer::boolean
                                       : std::is_signed_v<T>   ? Integer::with_sign
                                                               : Integer::without_sign;
    Json(Integer kind, uint64_t bits);

    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gt
