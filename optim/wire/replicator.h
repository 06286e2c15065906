// optim/wire/replicator.h — interface: what a host sends each round, and how received bytes are merged.
//
// A replicator splits the momentum of a tensor into a small message that travels and a remainder that
// stays. It uses no network, clock or thread: equal input gives equal output on every host. It works on
// units (math/chunk.h). Each unit has its own bytes in the message, so units may run on any thread or
// rank without changing a bit.
// demo: arXiv 2411.19870. random, striding, slicing: arXiv 2502.06728. Read next: repl-demo.cpp.
#pragma once

#include "optim/math/chunk.h"
#include "optim/math/fold.h"
#include "optim/wire/values.h"

namespace gt {

// What depends on the round alone. Row replicators: the rows that travel, per tensor, ascending.
struct Plan {
    uint64_t                          round = 0;
    std::vector<std::vector<int64_t>> rows;
};

class Replicator {
public:
    virtual ~Replicator() = default;

    // Rounds count from 0, one per message: the same on every host.
    virtual Plan plan(uint64_t round) const = 0;

    // Bytes of a unit in the message; does not depend on its values.
    virtual int64_t bytes(const Plan & plan, const Unit & unit) const = 0;

    // Folds the gradient into the unit's momentum, removes the part to be sent and writes it to `out`
    // (null: no round this step, only fold). The momentum is in the replicator's own basis: DCT
    // coefficients for demo, elements otherwise. Afterwards the momentum is, bit for bit, the folded
    // one minus what give_back would add.
    virtual void extract(
        const Plan & plan, const Unit & unit, const Fold & fold, float * momentum, uint8_t * out
    ) const = 0;

    // Adds to the momentum what extract subtracted for these bytes. REQUIRES: they passed `check`.
    virtual void give_back(
        const Plan & plan, const Unit & unit, const uint8_t * bytes, float * momentum
    ) const = 0;

    // Returns why the bytes are invalid, or null; adds the sum of squares of the values to `norm2`.
    [[nodiscard]] virtual const char *
    check(const Plan & plan, const Unit & unit, const uint8_t * bytes, double & norm2) const = 0;

    // Writes the weighted mean of the pieces to `update`, in elements, whatever the basis.
    // REQUIRES: each piece passed `check`; pieces in commit order, so all hosts sum in one order.
    virtual void merge(
        const Plan & plan, const Unit & unit, std::span<const Piece> pieces, float * update
    ) const = 0;

    // The mean of a round that hosts have averaged in shares (shares.h), of a unit or a slice of one: in the
    // type mean_wire. write_mean appends it to `out`; check_mean returns why the bytes at the beginning of
    // `in` are invalid, or null, and moves `in` behind them; read_mean writes it in elements.
    virtual void write_mean(
        const Plan & plan, const Unit & unit, std::span<const Piece> pieces, Bytes & out
    ) const = 0;
    [[nodiscard]] virtual const char *
    check_mean(const Plan & plan, const Unit & unit, std::span<const uint8_t> & in) const = 0;
    virtual void read_mean(
        const Plan & plan, const Unit & unit, const uint8_t * bytes, float * update
    ) const = 0;
};

// False for a message of ours that had NaN or Inf: all hosts refused it, so nothing is given back.
inline bool is_valid(
    const Replicator & replicator, const Plan & plan, const Unit & unit, const uint8_t * bytes
) {
    double norm2 = 0.0;
    return replicator.check(plan, unit, bytes, norm2) == nullptr;
}

}  // namespace gt
