#include "tools/cli/flags.h"

#include "tools/cli/flag-values.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <sstream>

namespace gt {

// Ends the program with success, after --help and --version.
struct Leave {};

int run_tool(const std::string & name, const std::function<void()> & body) {
    try {
        body();
        return 0;
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

static std::string joined(const std::vector<std::string> & items, const char * between) {
    std::string text;
    for (const std::string & item : items) {
        text += (text.empty() ? "" : between) + item;
    }
    return text;
}

// --- one flag ----------------------------------------------------------------------------------------

bool Flags::Flag::has_name(const std::string & name) const {
    const std::vector<std::string> all = split(names, ',');
    return std::find(all.begin(), all.end(), name) != all.end();
}

std::string Flags::Flag::letter() const {
    for (const std::string & name : split(names, ',')) {
        if (name.size() == 1) {
            return name;
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
        throw UsageError("--" + name() + " " + text + ": expected one of " + joined(choices, ", "));
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

// Two columns of at most 80 characters.
static std::string help_row(const std::string & left, const std::string & right) {
    constexpr size_t kLeft = 28, kWidth = 80;
    std::string      text = "  " + left, line(kLeft + 1, ' ');
    if (text.size() < kLeft) {
        text.resize(kLeft, ' ');
        line = text + " ";
        text.clear();
    } else {
        text += "\n";
    }
    size_t begin = line.size();
    for (const std::string & word : split(right, ' ')) {
        if (line.size() > begin && line.size() + 1 + word.size() > kWidth) {
            text += line + "\n";
            line.assign(kLeft + 1, ' ');
            begin = line.size();
        }
        line += (line.size() > begin ? " " : "") + word;
    }
    return text + line + "\n";
}

// "  -m, --model TEXT          model to train [default x]"
std::string Flags::Flag::help_line() const {
    const bool  is_text = std::holds_alternative<std::string *>(field) || is_list();
    std::string left    = (letter().empty() ? "    --" : "-" + letter() + ", --") + name();
    left += is_bool() ? "" : is_text ? " TEXT" : " N";
    std::string extra = is_bool() ? "" : joined(choices, ", ");
    if (is_bool()) {
        extra = default_text == "true" ? "default on; --no-" + name() + " turns it off" : "";
    } else if (!default_text.empty() && default_text != "0") {
        extra += (extra.empty() ? "default " : "; default ") +
                 (default_text == "\n" ? "\\n" : default_text);
    }
    return help_row(left, help + (extra.empty() ? "" : " [" + extra + "]"));
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
    const auto  try_name      = [&](const std::string & known) {
        const bool   begins   = !name.empty() && known.starts_with(name);
        const size_t distance = begins ? 1 : edit_distance(name, known);
        if (distance < best_distance) {
            best          = known;
            best_distance = distance;
        }
    };
    try_name("help");
    try_name("version");
    for (const Flag & flag : flags_) {
        try_name(flag.name());
    }
    return best;
}

// The flag of this name; word: as it was typed.
Flags::Flag & Flags::expect(const std::string & word, const std::string & name) {
    if (const Flag * flag = find(name)) {
        return const_cast<Flag &>(*flag);
    }
    if (const auto it = refused_.find(name); it != refused_.end()) {
        throw UsageError(word + ": " + it->second);
    }
    const std::string best = nearest(name);
    throw UsageError(
        "unknown flag " + word + (best.empty() ? "" : "; did you mean --" + best + "?")
    );
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
        if (word == "--help" || word == "-h") {
            const bool all = i + 1 < argc && std::string(argv[i + 1]) == "all";
            std::fputs(help(all || first_.empty()).c_str(), stdout);
            throw Leave();
        }
        if (word == "--version") {
            std::printf("%s (ggml-train) %s\n", program_.c_str(), kVersion);
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
                "--" + flag.name() + " is given twice: " + flag.given_text + " and " + text
            );
        }
        flag.assign(text);
        flag.given      = true;
        flag.given_text = text;
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

bool Flags::is_first(const Flag & flag) const {
    return std::any_of(first_.begin(), first_.end(), [&](const std::string & name) {
        return flag.has_name(name);
    });
}

std::string Flags::help(bool all) const {
    std::string text = program_ + " — " + purpose_ + "\n\nusage: " + program_ + " " + usage_ + "\n";
    if (positional_ != nullptr) {
        text += "\n" + help_row(positional_name_, positional_help_);
    }
    const std::string * group  = nullptr;
    size_t              n_more = 0;
    for (const Flag & flag : flags_) {
        if (!all && !is_first(flag)) {
            ++n_more;
            continue;
        }
        if (group == nullptr || *group != flag.group) {
            group = &flag.group;
            text += "\n" + (group->empty() ? "Flags" : *group) + ":\n";
        }
        text += flag.help_line();
    }
    text += "\n" + help_row("-h, --help", first_.empty() ? "this text" : "the usual flags");
    if (n_more > 0) {
        text += help_row("    --help all", format("all flags: %zu more", n_more));
    }
    return text + help_row("    --version", "version");
}

}  // namespace gt
