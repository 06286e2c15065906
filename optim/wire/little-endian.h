// optim/wire/little-endian.h — numbers at fixed offsets of an update.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace gt {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

template <class T>
void put(uint8_t * at, T value) {
    std::memcpy(at, &value, sizeof(T));
}

template <class T>
T get(const uint8_t * at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
}

}  // namespace gt
