// The cache of decoded pictures: see image-cache.h for the format.
#include "models/vision/image-cache.h"

#include "ggml-train/base/file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace gt {

namespace {

struct CacheHead {
    char     magic[8];
    uint64_t key, n, zero, n_bytes, table_digest, head_digest, end;
};

struct Entry {
    uint64_t offset, digest;
    uint32_t width, height;
};

static_assert(sizeof(CacheHead) == 64 && sizeof(Entry) == 24);

constexpr char kMagic[] = "GTPICS01";

// Closes and, unless kept, removes the temporary file.
struct Aside {
    std::string path;
    int         fd   = -1;
    bool        kept = false;

    ~Aside() {
        if (fd >= 0) {
            ::close(fd);
        }
        if (fd >= 0 && !kept) {
            ::unlink(path.c_str());
        }
    }
};

}  // namespace

static uint64_t head_digest(const CacheHead & head) {
    return digest64({reinterpret_cast<const uint8_t *>(&head), 48});
}

static uint64_t table_digest(std::span<const Entry> table) {
    return digest64({reinterpret_cast<const uint8_t *>(table.data()), table.size_bytes()});
}

static const CacheHead & head_of(std::span<const uint8_t> file) {
    return *reinterpret_cast<const CacheHead *>(file.data());
}

// REQUIRES: why_invalid(file) is empty.
static std::span<const Entry> table_of(std::span<const uint8_t> file) {
    return {reinterpret_cast<const Entry *>(file.data() + sizeof(CacheHead)), head_of(file).n};
}

// Empty if head and table are complete and undamaged; else the reason.
static std::string why_invalid(std::span<const uint8_t> file) {
    if (file.size() < 8 || std::memcmp(file.data(), kMagic, 8) != 0) {
        return "not a cache of images";
    }
    if (file.size() < sizeof(CacheHead)) {
        return "cut off within its header";
    }
    const CacheHead & head = head_of(file);
    if (head.head_digest != head_digest(head)) {
        return "its header is damaged";
    }
    if (head.n_bytes != file.size() || head.n > (file.size() - sizeof(CacheHead)) / sizeof(Entry)) {
        return format(
            "has %zu bytes, %llu were written: cut off or half-copied", file.size(),
            static_cast<unsigned long long>(head.n_bytes)
        );
    }
    return head.table_digest == table_digest(table_of(file)) ? "" : "its table is damaged";
}

static bool write_at(int fd, const void * data, size_t n, uint64_t offset) {
    const char * from = static_cast<const char *>(data);
    while (n > 0) {
        const ssize_t done = ::pwrite(fd, from, n, off_t(offset));
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return false;
        }
        from += done;
        n -= size_t(done);
        offset += uint64_t(done);
    }
    return true;
}

// Offset of each picture. Sizes are known from the headers, so threads can write in parallel.
static std::vector<Entry>
lay_out(const ImageSource & source, const ImageSpec & spec, uint64_t & n_bytes) {
    std::vector<Entry> table(source.items.size());
    n_bytes = sizeof(CacheHead) + table.size() * sizeof(Entry);
    for (size_t i = 0; i < table.size(); ++i) {
        int width = 0, height = 0;
        stored_size(source.items[i].width, source.items[i].height, spec.stored, width, height);
        table[i] = {n_bytes, 0, uint32_t(width), uint32_t(height)};
        n_bytes += uint64_t(width) * uint64_t(height) * uint64_t(spec.channels);
    }
    return table;
}

// Decodes and writes all pictures; false if a write failed.
static bool fill(
    int                  fd,
    const ImageSource &  source,
    const ImageSpec &    spec,
    int                  n_threads,
    std::vector<Entry> & table
) {
    std::atomic<size_t> next   = 0;
    std::atomic<bool>   failed = false;
    Workers(std::max(1, n_threads)).run([&](int, int) {
        Picture     decoded, resized;
        std::string why;
        for (size_t i = next++; i < table.size() && !failed; i = next++) {
            const auto  whole = source.read(int64_t(i), spec.channels, decoded, why);
            PictureView view;
            if (whole) {
                view = store_picture(*whole, spec.stored, resized);
            }
            if (!whole || uint32_t(view.width) != table[i].width ||
                uint32_t(view.height) != table[i].height) {
                table[i].width = table[i].height = 0;
                continue;
            }
            table[i].digest = digest64({view.pixels, view.n_bytes()});
            if (!write_at(fd, view.pixels, view.n_bytes(), table[i].offset)) {
                failed = true;
            }
        }
    });
    return !failed;
}

std::unique_ptr<ImageCache> ImageCache::open(
    const std::string &  path,
    const ImageSource &  source,
    const ImageSpec &    spec,
    const ImageOptions & options,
    std::string &        note
) {
    const uint64_t key = random_bits(
        source.digest ^ source.times, uint64_t(spec.stored), uint64_t(spec.channels),
        source.items.size()
    );
    const int64_t n = int64_t(source.items.size());
    if (auto cache = map(path, key, n, spec.channels)) {
        note = "cache " + path;
        return cache;
    }

    uint64_t           n_bytes = 0;
    std::vector<Entry> table   = lay_out(source, spec, n_bytes);
    std::error_code    ignored;
    const fs::path     folder = fs::absolute(path).parent_path();
    if (int64_t(n_bytes) > options.cache_bytes) {
        note = format(
            "not cached: %.1f GB, the limit is %.1f", double(n_bytes) / 1e9,
            double(options.cache_bytes) / 1e9
        );
        return nullptr;
    }
    const auto space = fs::space(folder, ignored);
    if (!ignored && space.available < n_bytes + n_bytes / 10) {
        note = format("not cached: %.1f GB do not fit on disk", double(n_bytes) / 1e9);
        return nullptr;
    }

    Aside aside{path + ".new-" + std::to_string(::getpid())};
    aside.fd = ::open(aside.path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (aside.fd < 0 || ::ftruncate(aside.fd, off_t(n_bytes)) != 0 ||
        !fill(aside.fd, source, spec, options.n_threads, table)) {
        note = "not cached: " + aside.path + ": " + std::strerror(errno);
        return nullptr;
    }
    CacheHead head = {{}, key, uint64_t(n), 0, n_bytes, table_digest(table), 0, 0};
    std::memcpy(head.magic, kMagic, 8);
    head.head_digest = head_digest(head);
    if (!write_at(aside.fd, table.data(), table.size() * sizeof(Entry), sizeof(CacheHead)) ||
        !write_at(aside.fd, &head, sizeof(head), 0) || ::fsync(aside.fd) != 0 ||
        ::rename(aside.path.c_str(), path.c_str()) != 0) {
        note = "not cached: " + path + ": " + std::strerror(errno);
        return nullptr;
    }
    aside.kept = true;
    note       = "cache " + path;
    return map(path, key, n, spec.channels);
}

std::unique_ptr<ImageCache>
ImageCache::map(const std::string & path, uint64_t key, int64_t n, int channels) {
    const int   fd     = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status = {};
    if (fd < 0) {
        return nullptr;
    }
    void *         mapped = MAP_FAILED;
    const uint64_t least  = sizeof(CacheHead) + uint64_t(n) * sizeof(Entry);
    if (::fstat(fd, &status) == 0 && uint64_t(status.st_size) >= least) {
        mapped = ::mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_SHARED, fd, 0);
    }
    ::close(fd);
    if (mapped == MAP_FAILED) {
        return nullptr;
    }
    std::unique_ptr<ImageCache> cache(new ImageCache);
    cache->data_     = static_cast<const uint8_t *>(mapped);
    cache->n_bytes_  = status.st_size;
    cache->n_        = n;
    cache->channels_ = channels;

    const std::span<const uint8_t> file = {cache->data_, size_t(status.st_size)};
    if (!why_invalid(file).empty() || head_of(file).key != key || head_of(file).n != uint64_t(n)) {
        return nullptr;
    }
    return cache;
}

ImageCacheInfo read_image_cache_info(const std::string & path) {
    const MappedFile  file(path);
    const std::string why = why_invalid(file.bytes());
    if (!why.empty()) {
        throw Error(path + ": " + why + "; remove it, train-vit writes it again");
    }
    const CacheHead & head = head_of(file.bytes());
    ImageCacheInfo info = {.key = head.key, .n_pictures = int64_t(head.n), .n_bytes = head.n_bytes};
    for (const Entry & entry : table_of(file.bytes())) {
        if (entry.width == 0) {
            ++info.n_broken;
            continue;
        }
        const bool first = info.max_width == 0;
        info.min_width   = first ? entry.width : std::min(info.min_width, entry.width);
        info.min_height  = first ? entry.height : std::min(info.min_height, entry.height);
        info.max_width   = std::max(info.max_width, entry.width);
        info.max_height  = std::max(info.max_height, entry.height);
    }
    return info;
}

ImageCache::~ImageCache() {
    if (data_ != nullptr) {
        ::munmap(const_cast<uint8_t *>(data_), size_t(n_bytes_));
    }
}

std::optional<PictureView> ImageCache::get(int64_t i) const {
    GT_CHECK(i >= 0 && i < n_, "a picture of this cache");
    const Entry &     entry = reinterpret_cast<const Entry *>(data_ + sizeof(CacheHead))[i];
    const PictureView view = {int(entry.width), int(entry.height), channels_, data_ + entry.offset};
    if (entry.width == 0 || entry.width > 65535 || entry.height > 65535 ||
        entry.offset > uint64_t(n_bytes_) || view.n_bytes() > uint64_t(n_bytes_) - entry.offset ||
        digest64({view.pixels, view.n_bytes()}) != entry.digest) {
        return {};
    }
    return view;
}

std::vector<int64_t> ImageCache::broken() const {
    const auto *         table = reinterpret_cast<const Entry *>(data_ + sizeof(CacheHead));
    std::vector<int64_t> list;
    for (int64_t i = 0; i < n_; ++i) {
        if (table[i].width == 0) {
            list.push_back(i);
        }
    }
    return list;
}

}  // namespace gt
