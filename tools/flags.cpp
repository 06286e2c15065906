#include "tools/flags.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <utility>

namespace gt {

// Ends the program without a complaint: after --help and --version.
struct Leave {};

int run_tool(const std::string & name, const std::function<void()> & body) {
    try {
        body();
        return 0;
    } catch (const Leave &) {
        return 0;
    } catch (const UsageError & error) {
        std::fprintf(
            stderr, "%s: %s\n(%s --help lists all flags)\n", name.c_str(), error.what(),
            name.c_str()
        );
        return 2;
    } catch (const std::bad_alloc &) {
        std::fprintf(
            stderr, "%s: out of memory; choose a smaller model, batch or context\n", name.c_str()
        );
    } catch (const std::exception & error) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    }
    return 1;
}

Flags::Flags(std::string program, std::string purpose, std::string usage)
    : program_(std::move(program)), purpose_(std::move(purpose)), usage_(std::move(usage)) {}

void Flags::group(const std::string & title) {
    group_ = title;
}

void Flags::add(Flag flag) {
    if (const size_t comma = flag.name.find(','); comma != std::string::npos) {
        flag.letter = flag.name.substr(comma + 1);
        flag.name.resize(comma);
    }
    GT_CHECK(find(flag.name) == nullptr, ("flag added twice: " + flag.name).c_str());
    flag.default_text = flag.get();
    flags_.push_back(std::move(flag));
}

void Flags::positional(
    const std::string & name, std::vector<std::string> & values, const std::string & help
) {
    positional_name_ = name;
    positional_help_ = help;
    positional_      = &values;
}

Flags::Flag * Flags::find(const std::string & name) {
    return const_cast<Flag *>(std::as_const(*this).find(name));
}

const Flags::Flag * Flags::find(const std::string & name) const {
    for (const Flag & flag : flags_) {
        if (flag.name == name || (!flag.letter.empty() && flag.letter == name)) {
            return &flag;
        }
    }
    return nullptr;
}

// Letters to insert, drop or change to get from a to b.
static size_t edit_distance(const std::string & a, const std::string & b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a.size(); ++i) {
        size_t diagonal = row[0];
        row[0]          = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal            = row[j];
            row[j]              = std::min({change, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

std::string Flags::nearest(const std::string & name) const {
    std::string best;
    size_t      best_distance = std::max<size_t>(2, name.size() / 3) + 1;
    for (const Flag & flag : flags_) {
        const bool   begins   = !name.empty() && flag.name.compare(0, name.size(), name) == 0;
        const size_t distance = begins ? 1 : edit_distance(name, flag.name);
        if (distance < best_distance) {
            best          = flag.name;
            best_distance = distance;
        }
    }
    return best;
}

void Flags::assign(Flag & flag, const std::string & text) {
    if (!flag.choices.empty() &&
        std::find(flag.choices.begin(), flag.choices.end(), text) == flag.choices.end()) {
        std::string all;
        for (const std::string & choice : flag.choices) {
            all += (all.empty() ? "" : ", ") + choice;
        }
        throw UsageError("--" + flag.name + " " + text + ": expected one of " + all);
    }
    flag.set(text);
    flag.given = true;
}

void Flags::parse(int argc, const char * const * argv) {
    bool only_values = false;  // after "--"
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (only_values || word.empty() || word[0] != '-' || word == "-") {
            if (positional_ == nullptr) {
                throw UsageError("\"" + word + "\" belongs to no flag");
            }
            positional_->push_back(word);
            continue;
        }
        if (word == "--") {
            only_values = true;
            continue;
        }
        if (word == "--help" || word == "-h") {
            std::fputs(help().c_str(), stdout);
            throw Leave();
        }
        if (word == "--version") {
            std::printf("%s (ggml-train) %s\n", program_.c_str(), kVersion);
            throw Leave();
        }
        std::string  name  = word.substr(word[1] == '-' ? 2 : 1), text;
        const size_t equal = name.find('=');
        if (equal != std::string::npos) {
            text = name.substr(equal + 1);
            name.resize(equal);
        }
        Flag * flag = find(name);
        if (flag == nullptr && name.compare(0, 3, "no-") == 0) {
            flag = find(name.substr(3));
            if (flag != nullptr && flag->kind == Kind::boolean && equal == std::string::npos) {
                assign(*flag, "false");
                continue;
            }
            flag = nullptr;
        }
        if (flag == nullptr) {
            const std::string best = nearest(name);
            throw UsageError(
                "unknown flag " + word + (best.empty() ? "" : "; did you mean --" + best + "?")
            );
        }
        if (equal == std::string::npos) {
            if (flag->kind == Kind::boolean) {
                text = "true";
            } else if (++i < argc) {
                text = argv[i];
            } else {
                throw UsageError(word + " needs a value");
            }
        }
        assign(*flag, text);
    }
}

void Flags::require(const std::string & name) const {
    if (!given(name)) {
        throw UsageError("--" + name + " is missing: " + find(name)->help);
    }
}

bool Flags::given(const std::string & name) const {
    const Flag * flag = find(name);
    GT_CHECK(flag != nullptr, ("no such flag: " + name).c_str());
    return flag->given;
}

void Flags::set(const std::string & name, const std::string & text) {
    Flag * flag = find(name);
    if (flag == nullptr) {
        throw Error("unknown setting \"" + name + "\"; was it written by another version?");
    }
    if (flag->kind == Kind::list) {  // a list is replaced, item by item
        flag->set("");
        for (size_t begin = 0; begin < text.size();) {
            const size_t end = std::min(text.find('\n', begin), text.size());
            flag->set(text.substr(begin, end - begin));
            begin = end + 1;
        }
        return;
    }
    flag->set(text);
}

Flags::Values Flags::values() const {
    Values values;
    for (const Flag & flag : flags_) {
        values.emplace_back(flag.name, flag.get());
    }
    return values;
}

std::string Flags::help() const {
    std::string text = program_ + " — " + purpose_ + "\n\nusage: " + program_ + " " + usage_ + "\n";
    if (positional_ != nullptr) {
        text += format("\n  %-26s %s\n", positional_name_.c_str(), positional_help_.c_str());
    }
    static const char * const kMeta[] = {"", " N", " TEXT", " TEXT", " TIME"};
    const std::string *       group   = nullptr;
    for (const Flag & flag : flags_) {
        if (group == nullptr || *group != flag.group) {
            group = &flag.group;
            text += "\n" + (group->empty() ? "Flags" : *group) + ":\n";
        }
        const std::string left = (flag.letter.empty() ? "    --" : "-" + flag.letter + ", --") +
                                 flag.name + kMeta[static_cast<int>(flag.kind)];
        text += format("  %-26s %s", left.c_str(), flag.help.c_str());
        std::string extra;
        for (const std::string & choice : flag.choices) {
            extra += (extra.empty() ? "" : "|") + choice;
        }
        const bool unset = flag.default_text.empty() || flag.default_text == "0";
        if (!unset && flag.kind != Kind::boolean) {
            extra += (extra.empty() ? "default " : "; default ") +
                     (flag.default_text == "\n" ? "\\n" : flag.default_text);
        } else if (flag.kind == Kind::boolean && flag.default_text == "true") {
            extra = "default on; --no-" + flag.name + " turns it off";
        }
        text += extra.empty() ? "\n" : " [" + extra + "]\n";
    }
    return text + "\n" +
           format(
               "  %-26s %s\n  %-26s %s\n", "-h, --help", "this text", "    --version", "version"
           );
}

}  // namespace gt
