// optim/device/device-replicator.h — a replicator (wire/replicator.h) in device memory, with the same bits.
//
// Tensor by tensor: a call works on all of this rank's units of a tensor that take part in a round.
#pragma once

#include "ggml-train/cuda/table.h"
#include "optim/device/room.h"
#include "optim/math/units.h"
#include "optim/wire/inbox.h"

#include <functional>

namespace gt {

class DeviceReplicator {
public:
    DeviceReplicator(const Units & units, Device & device);
    virtual ~DeviceReplicator() = default;

    // Selects a round: what is said below of units and bytes means this one. wire: of its messages.
    void begin(const Replicator & replicator, Wire wire, const Plan & plan);

    // This rank's units that take part, and all their bytes in a message.
    const std::vector<int> & units(int tensor) const { return tensors_[tensor].units; }
    int64_t                  bytes() const { return bytes_; }

    // Copies messages to the device, for merge. pieces: of a unit, in commit order. The means of a round in
    // shares are decoded on the host, so that inbox must live until they are merged.
    void receive(const std::function<std::vector<Piece>(int unit)> & pieces);
    void receive(const Inbox & inbox);

    // As Replicator::merge: writes zero where nothing travels.
    void merge(int tensor, float * update);

    // Whether states are laid out as tensors, and not chunk after chunk.
    virtual bool in_elements() const = 0;

    // As Replicator::extract and give_back; the fold covers the whole tensor. Addresses are the device's; states
    // and updates begin with the tensor's shard. message: the bytes of all units.
    virtual void extract(int tensor, const Fold & fold, float * state, uint8_t * message) = 0;
    virtual void give_back(int unit, const uint8_t * message, float * state)              = 0;

protected:
    struct Tensor {
        std::vector<int> units;
        int64_t          at = 0;  // of the first unit's bytes
    };

    // Called by begin, when units and places are known.
    virtual void prepare(Wire wire, const Plan & plan)    = 0;
    virtual void merge_pieces(int tensor, float * update) = 0;

    int64_t                 size(int tensor) const;  // floats of this rank's shard
    const cuda::DemoPiece * pieces(int tensor) const { return pieces_ + int64_t{n_} * tensor; }
    int                     n_pieces() const { return n_; }
    double                  total() const { return total_; }  // of the weights

    const Units &        units_;
    Device &             device_;
    std::vector<Tensor>  tensors_;
    std::vector<int64_t> at_;  // by unit: its bytes in the message

private:
    std::vector<int64_t>    n_bytes_;  // by unit
    int64_t                 bytes_ = 0;
    Room                    messages_{device_, "a round's messages"};
    Room                    table_{device_, "a round's messages"};
    const cuda::DemoPiece * pieces_ = nullptr;  // n_ for each tensor
    int                     n_      = 0;
    const Inbox *           means_  = nullptr;  // of a round in shares
    double                  total_  = 0.0;
};

// Whole rows: repl-rows.cpp.
std::unique_ptr<DeviceReplicator> make_rows_on_device(const Units & units, Device & device);

// The largest of each chunk: repl-demo.cpp. n_values: sent of a chunk of n. dct: coefficients, whose mean is over
// their senders; otherwise elements, whose mean is over all hosts.
std::unique_ptr<DeviceReplicator> make_chunks_on_device(
    const Units &                             units,
    Device &                                  device,
    const ChunkTarget &                       chunk,
    const std::function<int64_t(int64_t n)> & n_values,
    Wire                                      wire,
    bool                                      dct
);

}  // namespace gt
