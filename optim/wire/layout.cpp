#include "optim/wire/layout.h"

#include <algorithm>

namespace gt {

Layout::Layout(
    const Units &               units,
    const UpdateHead &          head,
    uint64_t                    every,
    std::unique_ptr<Replicator> replicator
)
    : units_(units), head_(head), every_(every), replicator_(std::move(replicator)) {}

std::vector<int64_t> Layout::offsets(const Plan & plan) const {
    std::vector<int64_t> offsets{kHeadBytes};
    for (const Unit & unit : units_.all()) {
        offsets.push_back(offsets.back() + replicator_->bytes(plan, unit));
    }
    return offsets;
}

Part Layout::part(uint64_t step) const {
    Part part{
        .plan    = plan(step),
        .offsets = std::vector<int64_t>(units_.all().size(), 0),
        .size    = kHeadBytes};
    for (const int i : units_.owned()) {
        part.offsets[i] = part.size;
        part.size += replicator_->bytes(part.plan, units_.all()[i]);
    }
    return part;
}

Bytes Layout::blank(const Part & part, uint64_t step, float lr) const {
    UpdateHead head = head_;
    head.kind       = units_.owns_all() ? UpdateKind::update : UpdateKind::part;
    head.step       = step;
    head.lr         = lr;
    head.n_content  = static_cast<uint64_t>(part.size - kHeadBytes);
    if (!head.is_part()) {
        return blank_update(head);
    }
    std::vector<PartRows> rows;
    for (const ParamView & param : units_.params()) {
        rows.push_back({param.row_begin, param.row_end, 0});
    }
    for (const int i : units_.owned()) {
        rows[units_.all()[i].tensor].n_bytes += replicator_->bytes(part.plan, units_.all()[i]);
    }
    return blank_update(head, rows);
}

Bytes Layout::part_of(const Part & part, uint64_t step, Bytes update) const {
    std::string why;
    const auto  head = read_head(update, why);
    if (!head || head->layout != head_.layout) {
        throw Error(
            "the message in flight belongs to another model or other settings; resume with those "
            "of its run"
        );
    }
    if (head->is_part() || units_.owns_all()) {
        return update;
    }
    const std::vector<int64_t> from = offsets(part.plan);
    GT_CHECK(update.size() == static_cast<size_t>(from.back()), "the layout determines the size");
    Bytes ours = blank(part, step, head->lr);
    for (const int i : units_.owned()) {
        std::copy_n(update.data() + from[i], from[i + 1] - from[i], ours.data() + part.offsets[i]);
    }
    return ours;
}

}  // namespace gt
