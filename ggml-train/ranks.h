// ggml-train/ranks.h — what the ranks of a host tell one another beyond the verbs of LocalGroup.
//
// Ranks are threads of one process: each shows the others where a value of its own lies, and waits
// until they have looked. All of these are collective: every rank calls them, in the same order.
#pragma once

#include "ggml-train/exchange.h"

#include <optional>
#include <type_traits>

namespace gt {

// What each rank has, in rank order.
template <class T>
std::vector<T> from_all(LocalGroup & ranks, const T & mine) {
    std::vector<T> values;
    for (int r = 0; r < ranks.size(); ++r) {
        const T * at = &mine;
        ranks.broadcast({reinterpret_cast<uint8_t *>(&at), sizeof(at)}, r);
        values.push_back(*at);
    }
    ranks.barrier();  // until then, what is ours must stay where it is
    return values;
}

// Runs fn on rank 0, once all ranks have come here; all receive its result.
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

// The same without a result: rank 0 may meanwhile touch what belongs to any rank.
template <class Fn>
void on_first(LocalGroup & ranks, const Fn & fn) {
    ranks.barrier();
    if (ranks.rank() == 0) {
        fn();
    }
    ranks.barrier();
}

}  // namespace gt
