// ggml-train/shard/ranks.h — exchange of values between the ranks of a host, on top of LocalGroup.
//
// Ranks are threads of one process: each passes the address of its value to the others and waits until
// they have read it. All functions are collective: every rank calls them, in the same order.
#pragma once

#include "ggml-train/local-group.h"

#include <optional>
#include <type_traits>

namespace gt {

// The values of all ranks, in rank order.
template <class T>
std::vector<T> from_all(LocalGroup & ranks, const T & mine) {
    std::vector<T> values;
    for (int r = 0; r < ranks.size(); ++r) {
        const T * at = &mine;
        ranks.broadcast({reinterpret_cast<uint8_t *>(&at), sizeof(at)}, r);
        values.push_back(*at);
    }
    ranks.barrier();  // other ranks may still read `mine`
    return values;
}

// Runs fn on rank 0 once all ranks have arrived; all ranks get its result.
template <class Fn>
auto from_first(LocalGroup & ranks, const Fn & fn) -> std::decay_t<decltype(fn())> {
    using T = std::decay_t<decltype(fn())>;
    ranks.barrier();
    std::optional<T> made;
    const T *        at = nullptr;
    if (ranks.rank() == 0) {
        made = fn();
        at   = &*made;
    }
    ranks.broadcast({reinterpret_cast<uint8_t *>(&at), sizeof(at)}, 0);
    T value = *at;
    ranks.barrier();
    return value;
}

// The same without a result. Meanwhile rank 0 may access the memory of any rank.
template <class Fn>
void on_first(LocalGroup & ranks, const Fn & fn) {
    ranks.barrier();
    if (ranks.rank() == 0) {
        fn();
    }
    ranks.barrier();
}

}  // namespace gt
