#include "tools/cli/flags.h"

#include "tools/cli/flag-values.h"
#include "tools/cli/nearest.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <sstream>

namespace gt {

// Ends the program with success, after --help and --version.
struct Leave {};

int run_tool(const std::string & name, const std::function<int()> & body) {
    try {
        return body();
    } catch (const Leave &) {
        return 0;
    } catch (const UsageError & error) {
        std::fprintf(
            stderr, "%s: %s\n(%s --help all lists all flags)\n", name.c_str(), error.what(),
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

static std::vector<std::string> split(const std::string & text, char at) {
    std::vector<std::string> items;
    std::istringstream       in(text);
    for (std::string item; std::getline(in, item, at);) {
        items.push_back(item);
    }
    return items;
}

// --- one flag ----------------------------------------------------------------------------------------

bool Flags::Flag::has_name(const std::string & name) const {
    const std::vector<std::string> all = split(names, ',');
    return std::find(all.begin(), all.end(), name) != all.end();
}

std::string Flags::Flag::letter() const {
    for (const std::string & other : split(names, ',')) {
        if (other.size() <= 2 && other != name()) {
            return other;
        }
    }
    return "";
}

std::string Flags::Flag::stored_name() const {
    const std::vector<std::string> all = split(names, ',');
    return all.back().size() > 1 ? all.back() : all.front();
}

void Flags::Flag::assign(const std::string & text) const {
    const auto choice = std::find(choices.begin(), choices.end(), text);
    if (is_bool() && choice != choices.end()) {
        *std::get<bool *>(field) = choice != choices.begin();
        return;
    }
    if (!is_bool() && !choices.empty() && choice == choices.end()) {
        throw UsageError("--" + name() + " " + text + ": expected one of " + choices_text(", "));
    }
    std::visit([&](auto * at) { parse_value(name(), text, *at); }, field);
    check_range(text);
}

void Flags::Flag::check_range(const std::string & text) const {
    const double value = std::visit(
        [&](const auto * at) {
            using T = std::remove_cvref_t<decltype(*at)>;
            if constexpr (std::is_arithmetic_v<T>) {
                return static_cast<double>(*at);
            } else {
                return least;
            }
        },
        field
    );
    if (value < least || value > most) {
        throw UsageError(
            "--" + name() + " " + text + ": expected " +
            (most < kNoLimit ? format("a number from %g to %g", least, most)
                             : format("a number of at least %g", least))
        );
    }
}

bool Flags::Flag::is_list() const {
    return std::holds_alternative<std::vector<std::string> *>(field);
}

std::string Flags::Flag::text() const {
    if (is_bool() && !choices.empty()) {
        return choices[*std::get<bool *>(field) ? 1 : 0];
    }
    return std::visit([](const auto * at) { return value_text(*at); }, field);
}

// --- the table -----------------------------------------------------------------------------------------

Flags::Flags(std::string program, std::string purpose, std::string usage)
    : program_(std::move(program)), purpose_(std::move(purpose)), usage_(std::move(usage)) {}

void Flags::add(Flag flag) {
    for (const std::string & name : split(flag.names, ',')) {
        GT_CHECK(find(name) == nullptr, ("flag added twice: " + name).c_str());
    }
    flag.group        = group_;
    flag.default_text = flag.text();
    flags_.push_back(std::move(flag));
}

void Flags::positional(
    const std::string & name, std::vector<std::string> & values, const std::string & help
) {
    positional_name_ = name;
    positional_help_ = help;
    positional_      = &values;
}

const Flags::Flag * Flags::find(const std::string & name) const {
    const auto it = std::find_if(flags_.begin(), flags_.end(), [&](const Flag & flag) {
        return flag.has_name(name);
    });
    return it == flags_.end() ? nullptr : &*it;
}

// The flag of this name; word: as it was typed.
Flags::Flag & Flags::expect(const std::string & word, const std::string & name) {
    if (const auto it = refused_.find(name); it != refused_.end()) {
        throw UsageError(word + ": " + it->second);
    }
    if (const Flag * flag = find(name)) {
        return const_cast<Flag &>(*flag);
    }
    std::vector<std::string> known = {"help", "version"};
    for (const Flag & flag : flags_) {
        known.push_back(flag.name());
    }
    const std::string best = nearest(name, known);
    throw UsageError(
        "unknown flag " + word + (best.empty() ? "" : "; did you mean --" + best + "?")
    );
}

// The answer to a flag that every program has; "" for other flags.
std::string Flags::about(const std::string & word, const std::string & next) const {
    if (word == "--help" || word == "-h") {
        return help(next == "all" || first_.empty());
    }
    return word == "--version"      ? program_ + " (ggml-train) " + kVersion + "\n"
           : word == "--man"        ? man()
           : word == "--completion" ? completion()
                                    : "";
}

void Flags::parse(int argc, const char * const * argv) {
    bool only_values = false;  // after "--"
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        // arguments without a flag
        if (only_values || word.empty() || word[0] != '-' || word == "-") {
            if (positional_ == nullptr) {
                throw UsageError("unexpected argument \"" + word + "\"");
            }
            positional_->push_back(word);
            continue;
        }
        if (word == "--") {
            only_values = true;
            continue;
        }
        if (const std::string text = about(word, i + 1 < argc ? argv[i + 1] : ""); !text.empty()) {
            std::fputs(text.c_str(), stdout);
            throw Leave();
        }
        // --name, --name=text, --no-name
        std::string  name  = word.substr(word[1] == '-' ? 2 : 1), text;
        const size_t equal = name.find('=');
        const bool   typed = equal != std::string::npos;
        if (typed) {
            text = name.substr(equal + 1);
            name.resize(equal);
        }
        const Flag * negated =
            name.starts_with("no-") && !find(name) ? find(name.substr(3)) : nullptr;
        if (negated && negated->is_bool() && !typed) {
            name = name.substr(3);
            text = "false";
        }
        Flag & flag = expect(word, name);
        // the value, in the next word if it was not typed in this one
        const std::string next = i + 1 < argc ? argv[i + 1] : "";
        if (!typed && text.empty() && flag.is_bool()) {
            const bool is_value = next == "0" || next == "1" || next == "true" || next == "false";
            text                = is_value ? argv[++i] : "true";
        } else if (!typed && text.empty()) {
            if (++i >= argc) {
                throw UsageError(word + " needs a value");
            }
            text = argv[i];
        }
        if (flag.given && !flag.is_list() && flag.given_text != text) {
            throw UsageError(
                "--" + flag.name() + " is given twice: " + flag.given_text + flag.given_by +
                " and " + text + by_
            );
        }
        flag.assign(text);
        flag.given      = true;
        flag.given_text = text;
        flag.given_by   = by_;
        if (const auto it = expansions_.find({flag.name(), text}); it != expansions_.end()) {
            const std::vector<std::string> words = split(it->second, ' ');
            std::vector<const char *>      all   = {program_.c_str()};
            for (const std::string & each : words) {
                all.push_back(each.c_str());
            }
            by_ = " (by --" + flag.name() + " " + text + ")";
            parse(static_cast<int>(all.size()), all.data());
            by_.clear();
        }
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
    const Flag * flag = find(name);
    if (flag == nullptr) {
        throw Error("unknown setting \"" + name + "\"; was it written by another version?");
    }
    if (std::holds_alternative<std::vector<std::string> *>(flag->field)) {
        flag->assign("");
        for (const std::string & item : split(text, '\n')) {
            flag->assign(item);
        }
        return;
    }
    flag->assign(text);
}

Flags::Values Flags::values() const {
    Values values;
    for (const Flag & flag : flags_) {
        values.emplace_back(flag.stored_name(), flag.text());
    }
    return values;
}

}  // namespace gt
