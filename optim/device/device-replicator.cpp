#include "optim/device/device-replicator.h"

#include "optim/device/dct-program.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace gt {

DeviceReplicator::DeviceReplicator(const Units & units, Device & device)
    : units_(units), device_(device), tensors_(units.shapes().size()), at_(units.all().size()),
      n_bytes_(units.all().size()) {}

int64_t DeviceReplicator::size(int tensor) const {
    return static_cast<int64_t>(units_.params()[tensor].weight.size());
}

void DeviceReplicator::begin(const Replicator & replicator, Wire wire, const Plan & plan) {
    for (Tensor & tensor : tensors_) {
        tensor.units.clear();
    }
    bytes_ = 0;
    for (const int i : units_.owned()) {
        const Unit &  unit   = units_.all()[i];
        Tensor &      tensor = tensors_[unit.tensor];
        const int64_t n      = replicator.bytes(plan, unit);
        if (tensor.units.empty()) {
            tensor.at = bytes_;
        }
        if (n > 0) {
            tensor.units.push_back(i);
        }
        at_[i]      = bytes_;
        n_bytes_[i] = n;
        bytes_ += n;
    }
    prepare(wire, plan);
}

void DeviceReplicator::receive(const std::function<std::vector<Piece>(int unit)> & pieces) {
    means_ = nullptr;
    // of all messages: the bytes of our units
    std::vector<Bytes> contents;
    std::vector<Piece> terms;  // weight and scale
    for (const int i : units_.owned()) {
        terms = pieces(i);
        contents.resize(terms.size());
        for (size_t m = 0; m < terms.size(); ++m) {
            const uint8_t * from = terms[m].bytes;
            contents[m].insert(contents[m].end(), from, from + n_bytes_[i]);
        }
    }
    Bytes staging;
    total_ = 0.0;
    for (size_t m = 0; m < terms.size(); ++m) {
        staging.insert(staging.end(), contents[m].begin(), contents[m].end());
        total_ += terms[m].weight;
    }
    const uint8_t *              bytes = messages_.put(staging.data(), staging.size());
    std::vector<cuda::DemoPiece> table;
    for (const Tensor & tensor : tensors_) {
        for (size_t m = 0; m < terms.size(); ++m) {
            const auto at = static_cast<int64_t>(m) * bytes_ + tensor.at;
            table.push_back({bytes + at, terms[m].weight, terms[m].scale});
        }
    }
    n_      = static_cast<int>(terms.size());
    pieces_ = table_.put(table);
}

void DeviceReplicator::receive(const Inbox & inbox) {
    if (inbox.in_shares()) {
        means_ = &inbox;
    } else {
        receive([&](int unit) { return inbox.pieces(unit); });
    }
}

void DeviceReplicator::merge(int tensor, float * update) {
    if (!means_) {
        merge_pieces(tensor, update);
        return;
    }
    std::vector<float> mean(static_cast<size_t>(size(tensor)), 0.0f);
    units_.run(tensors_[tensor].units, [&](int i, float *) {
        means_->merge(i, mean.data() + units_.offset(units_.all()[i]));
    });
    device_.write(update, mean.data(), mean.size() * sizeof(float));
}

namespace {

class RowsOnDevice : public DeviceReplicator {
public:
    using DeviceReplicator::DeviceReplicator;

    bool in_elements() const override { return true; }

    void extract(int tensor, const Fold & fold, float * state, uint8_t * message) override {
        if (fold.grad) {
            device_.kernels().fold(nullptr, size(tensor), fold.decay, fold.alpha, fold.grad, state);
        }
        if (message && rows_[tensor].n_groups > 0) {
            device_.kernels().rows_extract(
                nullptr, rows_[tensor], state, message + tensors_[tensor].at
            );
        }
    }

    void give_back(int unit, const uint8_t * message, float * state) override {
        const int  t     = units_.all()[unit].tensor;
        const auto found = std::find(tensors_[t].units.begin(), tensors_[t].units.end(), unit);
        const auto k     = found - tensors_[t].units.begin();
        cuda::Rows rows  = rows_[t];
        rows.units += k;
        rows.n_units  = 1;
        rows.first    = firsts_[unit];
        rows.n_groups = n_groups_[unit];
        if (rows.n_groups > 0) {
            device_.kernels().rows_give_back(nullptr, rows, message + tensors_[t].at, state);
        }
    }

    void merge_pieces(int tensor, float * update) override {
        const cuda::Rows & rows = rows_[tensor];
        if (n_sent_[tensor] < size(tensor)) {
            device_.kernels().set_zero(
                nullptr, update, static_cast<size_t>(size(tensor)) * sizeof(float)
            );
        }
        if (rows.n_groups > 0) {
            device_.kernels().rows_merge(
                nullptr, rows, pieces(tensor), n_pieces(), total(), update
            );
        }
    }

protected:
    void prepare(Wire wire, const Plan & plan) override {
        std::vector<int32_t>       places;
        std::vector<int64_t>       at;  // of each unit's places; -1: all of it travels
        std::vector<cuda::RowUnit> table;
        rows_.assign(tensors_.size(), {.wire = static_cast<int32_t>(wire)});
        n_sent_.assign(tensors_.size(), 0);
        firsts_.assign(units_.all().size(), 0);
        n_groups_.assign(units_.all().size(), 0);
        for (size_t t = 0; t < tensors_.size(); ++t) {
            rows_[t].n_units = static_cast<int32_t>(tensors_[t].units.size());
            for (const int i : tensors_[t].units) {
                const std::vector<int32_t> rows = rows_of(units_.all()[i], plan);
                const Unit &               unit = units_.all()[i];
                const auto                 n    = static_cast<int64_t>(rows.size());
                const bool                 all  = n == unit.end - unit.begin;
                at.push_back(all ? -1 : static_cast<int64_t>(places.size()));
                places.insert(places.end(), rows.begin(), all ? rows.begin() : rows.end());
                table.push_back(add_unit(i, n, dense_group(wire)));
            }
        }
        const int32_t * on_device = places.empty() ? nullptr : places_.put(places);
        for (size_t u = 0; u < table.size(); ++u) {
            table[u].places = at[u] < 0 ? nullptr : on_device + at[u];
        }
        const cuda::RowUnit * next = table.empty() ? nullptr : table_.put(table);
        for (cuda::Rows & rows : rows_) {
            rows.units = next;
            next += rows.n_units;
        }
    }

private:
    // The unit's rows that travel, counted from its first.
    static std::vector<int32_t> rows_of(const Unit & unit, const Plan & plan) {
        const std::vector<int64_t> & rows  = plan.rows[unit.tensor];
        const auto                   begin = std::lower_bound(rows.begin(), rows.end(), unit.begin);
        const auto                   end   = std::lower_bound(begin, rows.end(), unit.end);
        std::vector<int32_t>         result;
        std::transform(begin, end, std::back_inserter(result), [&](int64_t row) {
            return static_cast<int32_t>(row - unit.begin);
        });
        return result;
    }

    // Appends n_rows of a unit to those of its tensor.
    cuda::RowUnit add_unit(int i, int64_t n_rows, int64_t group) {
        const Unit &        unit  = units_.all()[i];
        const TensorShape & shape = units_.shapes()[unit.tensor];
        cuda::Rows &        rows  = rows_[unit.tensor];
        const int64_t       n = n_rows * shape.cols, row = shape.is_vector ? n : shape.cols;
        firsts_[i]   = rows.n_groups;
        n_groups_[i] = n / row * ((row + group - 1) / group);
        rows.n_groups += n_groups_[i];
        n_sent_[unit.tensor] += n;
        return {
            .offset = units_.offset(unit),
            .n      = n,
            .row    = row,
            .run    = shape.cols,
            .bytes  = at_[i] - tensors_[unit.tensor].at,
            .first  = firsts_[i]};
    }

    Room                    table_{device_, "a round's rows"}, places_{device_, "a round's rows"};
    std::vector<cuda::Rows> rows_;               // by tensor
    std::vector<int64_t>    n_sent_;             // by tensor: elements
    std::vector<int64_t>    firsts_, n_groups_;  // by unit
};

class ChunksOnDevice : public DeviceReplicator {
public:
    ChunksOnDevice(
        const Units &                             units,
        Device &                                  device,
        const ChunkTarget &                       target,
        const std::function<int64_t(int64_t n)> & n_values,
        Wire                                      wire,
        bool                                      dct
    )
        : DeviceReplicator(units, device), dct_(dct) {
        // tables are uploaded once per chunk geometry
        std::map<std::pair<int64_t, int64_t>, const uint8_t *> tables;
        for (size_t t = 0; t < tensors_.size(); ++t) {
            const ChunkGrid  grid = chunk_grid(units.shapes()[t], target);
            const DemoPlan   plan(grid, n_values(grid.chunk_size()), wire, dct);
            const uint8_t *& table = tables[{grid.side_rows, grid.side_cols}];
            if (table == nullptr && dct) {
                auto * memory =
                    static_cast<uint8_t *>(device.alloc(plan.tables().size(), "DCT tables"));
                device.write(memory, plan.tables().data(), plan.tables().size());
                table = memory;
            }
            chunks_.push_back(plan.chunks(table, size(static_cast<int>(t)) / grid.chunk_size()));
        }
    }

    bool in_elements() const override { return false; }

    void extract(int tensor, const Fold & fold, float * state, uint8_t * message) override {
        if (chunks_[tensor].n_chunks > 0) {
            device_.kernels().demo_extract(
                nullptr, chunks_[tensor], {fold.grad, fold.decay, fold.alpha}, state,
                message ? message + tensors_[tensor].at : nullptr
            );
        }
    }

    void give_back(int unit, const uint8_t * message, float * state) override {
        const Unit &     u      = units_.all()[unit];
        cuda::DemoChunks chunks = chunks_[u.tensor];
        chunks.n_chunks         = units_.size(u) / (int64_t{chunks.rows} * chunks.cols);
        device_.kernels().demo_give_back(
            nullptr, chunks, message + at_[unit], state + units_.offset(u)
        );
    }

    void merge_pieces(int tensor, float * update) override {
        cuda::DemoChunks chunks = chunks_[tensor];
        chunks.total            = dct_ ? 0.0 : total();
        device_.kernels().demo_merge(nullptr, chunks, pieces(tensor), n_pieces(), update);
    }

protected:
    void prepare(Wire, const Plan &) override {}

private:
    bool                          dct_;
    std::vector<cuda::DemoChunks> chunks_;  // by tensor
};

}  // namespace

std::unique_ptr<DeviceReplicator> make_rows_on_device(const Units & units, Device & device) {
    return std::make_unique<RowsOnDevice>(units, device);
}

std::unique_ptr<DeviceReplicator> make_chunks_on_device(
    const Units &                             units,
    Device &                                  device,
    const ChunkTarget &                       chunk,
    const std::function<int64_t(int64_t n)> & n_values,
    Wire                                      wire,
    bool                                      dct
) {
    return std::make_unique<ChunksOnDevice>(units, device, chunk, n_values, wire, dct);
}

}  // namespace gt
