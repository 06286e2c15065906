// The queue of batches and the threads that fill it: see image-loader.h.
#include "models/vision/image-loader.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace gt {

// Repeated pictures are half a batch or more apart: pairs of neighbors are mixed.
int64_t train_item(const ImageData & data, const LoaderOptions & options, uint64_t step, int i) {
    const int64_t  n        = int64_t(data.train().size());
    const int      each     = options.batch / options.augment.repeats;  // pictures per step
    const uint64_t position = step * uint64_t(each) + uint64_t(i % each);
    const uint64_t walk     = position / uint64_t(n);
    const uint64_t key      = random_bits(options.seed, digest64(options.host), walk, 0x77616c6b);
    return data.train()[size_t(shuffled_index(key, int64_t(position % uint64_t(n)), n))];
}

struct ImageLoader::Impl {
    // One batch. Workers take its samples in groups, in order: of mixed pictures two neighbors, else one.
    // The batch has its full size until at() cuts it to the samples asked for.
    struct Slot {
        ImageBatch batch;
        int        n_taken = 0;  // groups that a worker has started
        int        n_done  = 0;
    };

    const ImageData & data;
    LoaderOptions     options;
    int               group    = 1;  // samples per group
    int               n_groups = 0;  // per batch that are wanted: those of the last at()
    size_t            sample   = 0;  // floats per sample

    std::vector<std::thread> threads;
    std::mutex               mutex;
    std::condition_variable  work, ready;
    std::vector<Slot>        slots;           // step s: slots[s % size]
    uint64_t                 first      = 0;  // the step returned last, or the next one
    uint64_t                 generation = 0;  // number of restarts
    int                      n_busy     = 0;
    bool                     stop       = false;
    std::exception_ptr       error;
    std::chrono::nanoseconds waited{0};

    Impl(const ImageData & d, const LoaderOptions & o, uint64_t start)
        : data(d), options(o), first(start) {
        GT_CHECK(options.batch > 0, "a batch has samples");
        if ((options.val ? data.val() : data.train()).empty()) {
            throw Error(options.val ? "no pictures to validate on" : "no pictures to train on");
        }
        GT_CHECK(options.batch % options.augment.repeats == 0, "repeats divide the batch");
        sample   = data.spec().n_values();
        group    = !options.val && is_mixed(options.augment) ? 2 : 1;
        n_groups = groups_of(options.batch);
        slots.resize(size_t(std::max(1, options.n_ahead)) + 1);
        for (Slot & slot : slots) {
            reset(slot);
        }
    }

    int    groups_of(int n) const { return (n + group - 1) / group; }
    Slot & slot_of(uint64_t step) { return slots[step % slots.size()]; }

    void resize(ImageBatch & batch, int n) const {
        batch.images.resize(sample * size_t(n));
        batch.labels.resize(size_t(n));
        batch.mix_labels.resize(size_t(n));
        batch.items.resize(size_t(n));
    }

    void reset(Slot & slot) const {
        slot.n_taken = slot.n_done = 0;
        resize(slot.batch, options.batch);
    }

    // Nobody writes to the slot, and the groups wanted are complete.
    bool is_ready(const Slot & slot) const {
        return slot.n_taken >= n_groups && slot.n_done == slot.n_taken;
    }

    // Writes sample i of `step` to `out`; returns its item number.
    int64_t make_train(uint64_t step, int i, Picture & scratch, std::span<float> out) const {
        const auto &  list  = data.train();
        const int64_t item  = train_item(data, options, step, i);
        const auto    start = std::lower_bound(list.begin(), list.end(), item) - list.begin();
        for (size_t k = 0; k < list.size(); ++k) {
            const int64_t next = list[(size_t(start) + k) % list.size()];
            if (const auto view = data.load(next, scratch)) {
                const uint64_t key = sample_key(options.seed, step, options.host, uint64_t(i));
                augment(*view, data.spec(), options.augment, key, out);
                return next;
            }
        }
        throw Error("no training picture can be decoded");
    }

    // The same for the validation set; -1: no picture.
    int64_t make_val(uint64_t step, int i, Picture & scratch, std::span<float> out) const {
        const auto &   list     = data.val();
        const uint64_t position = step * uint64_t(options.batch) + uint64_t(i);
        std::fill(out.begin(), out.end(), 0.0f);
        if (position >= list.size()) {
            return -1;
        }
        // shuffled, so that the first batches alone cover all classes
        const int64_t k    = shuffled_index(0, int64_t(position), int64_t(list.size()));
        const int64_t item = list[size_t(k)];
        const auto    view = data.load(item, scratch);
        if (!view) {
            return -1;
        }
        center_view(*view, data.spec(), out);
        return item;
    }

    void make_one(uint64_t step, int i, Picture & scratch, ImageBatch & batch) const {
        const size_t  at  = size_t(i);
        const auto    out = std::span(batch.images).subspan(at * sample, sample);
        const int64_t item =
            options.val ? make_val(step, i, scratch, out) : make_train(step, i, scratch, out);
        batch.items[at]  = item;
        batch.labels[at] = batch.mix_labels[at] = item < 0 ? -1 : data.item(item).label;
    }

    Mix mix_at(uint64_t step) const {
        return options.val ? Mix{}
                           : mix_of(options.augment, data.spec(), options.seed, step, options.host);
    }

    // Samples i and i + 1, each with a share of the other; the last one of an odd batch stays alone.
    void make_pair(uint64_t step, int i, Picture & scratch, ImageBatch & batch) const {
        thread_local std::vector<float> planes;
        const int                       n = std::min(2, options.batch - i);
        planes.resize(2 * sample);
        int64_t item[2] = {};
        for (int k = 0; k < n; ++k) {
            item[k] = make_train(
                step, i + k, scratch, std::span(planes).subspan(size_t(k) * sample, sample)
            );
        }
        const Mix mix = mix_at(step);
        for (int k = 0; k < n; ++k) {
            const size_t at    = size_t(i + k);
            const int    other = n == 2 ? 1 - k : k;
            const auto   one   = [&](int which) {
                return std::span<const float>(planes).subspan(size_t(which) * sample, sample);
            };
            mix_pictures(
                mix, data.spec(), one(k), one(other),
                std::span(batch.images).subspan(at * sample, sample)
            );
            batch.items[at]      = item[k];
            batch.labels[at]     = data.item(item[k]).label;
            batch.mix_labels[at] = data.item(item[other]).label;
        }
    }

    // The oldest step with a wanted group that nobody has started; false if there is none.
    bool find_work(uint64_t & step) {
        for (uint64_t s = first; s < first + slots.size(); ++s) {
            if (slot_of(s).n_taken < n_groups) {
                step = s;
                return true;
            }
        }
        return false;
    }

    void loop() {
        Picture          scratch;
        std::unique_lock lock(mutex);
        for (;;) {
            uint64_t step = 0;
            work.wait(lock, [&] { return stop || (!error && find_work(step)); });
            if (stop) {
                return;
            }
            Slot &         slot  = slot_of(step);
            const int      g     = slot.n_taken++;
            const uint64_t began = generation;
            ++n_busy;
            lock.unlock();
            std::exception_ptr failed;
            try {
                if (group == 2) {
                    make_pair(step, 2 * g, scratch, slot.batch);
                } else {
                    make_one(step, g, scratch, slot.batch);
                }
            } catch (...) {
                failed = std::current_exception();
            }
            lock.lock();
            --n_busy;
            if (failed && !error) {
                error = failed;
            }
            if (began == generation) {
                ++slot.n_done;
            }
            if (error || n_busy == 0 || is_ready(slot)) {
                ready.notify_all();
            }
        }
    }
};

ImageLoader::ImageLoader(const ImageData & data, const LoaderOptions & options, uint64_t first)
    : impl_(std::make_unique<Impl>(data, options, first)) {
    for (int i = 0; i < std::max(1, options.n_threads); ++i) {
        impl_->threads.emplace_back([impl = impl_.get()] { impl->loop(); });
    }
}

ImageLoader::~ImageLoader() {
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->stop = true;
    }
    impl_->work.notify_all();
    for (std::thread & thread : impl_->threads) {
        thread.join();
    }
}

const ImageBatch & ImageLoader::at(uint64_t step, int n) {
    Impl & impl = *impl_;
    n           = n > 0 ? n : impl.options.batch;
    GT_CHECK(n <= impl.options.batch, "at most the samples of a batch");
    std::unique_lock lock(impl.mutex);
    const auto       asked = std::chrono::steady_clock::now();
    const bool       next  = step == impl.first + 1 && impl.is_ready(impl.slot_of(impl.first));
    impl.n_groups          = impl.groups_of(n);
    Impl::Slot & slot      = impl.slot_of(step);
    if (next) {
        impl.reset(impl.slot_of(impl.first));  // the caller no longer uses it
        impl.first = step;
    } else if (step != impl.first) {
        // restart there, once no worker writes to the old batches
        for (Impl::Slot & old : impl.slots) {
            old.n_taken = impl.groups_of(impl.options.batch);
        }
        ++impl.generation;
        impl.ready.wait(lock, [&] { return impl.n_busy == 0; });
        for (Impl::Slot & old : impl.slots) {
            impl.reset(old);
        }
        impl.first = step;
    } else if (slot.batch.labels.size() < size_t(n)) {
        impl.reset(slot);  // the same step, with more samples than before
    }
    impl.work.notify_all();
    impl.ready.wait(lock, [&] { return impl.error || impl.is_ready(slot); });
    impl.waited += std::chrono::steady_clock::now() - asked;
    if (impl.error) {
        std::rethrow_exception(impl.error);
    }
    impl.resize(slot.batch, n);
    slot.batch.mix = impl.mix_at(step).share;
    return slot.batch;
}

int64_t ImageLoader::n_batches() const {
    const auto & list = impl_->options.val ? impl_->data.val() : impl_->data.train();
    return (int64_t(list.size()) + impl_->options.batch - 1) / impl_->options.batch;
}

std::chrono::nanoseconds ImageLoader::waited() const {
    const std::lock_guard lock(impl_->mutex);
    return impl_->waited;
}

}  // namespace gt
