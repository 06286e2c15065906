// What a table of flags says about itself: --help, --man and --completion.
#include "tools/cli/flags.h"

#include <algorithm>
#include <sstream>

namespace gt {

std::string Flags::Flag::choices_text(const char * between) const {
    std::string text;
    for (const std::string & choice : choices) {
        text += (text.empty() ? "" : between) + choice;
    }
    return text;
}

// Two columns of at most 80 characters.
static std::string help_row(const std::string & left, const std::string & right) {
    constexpr size_t   kLeft = 28, kWidth = 80;
    std::string        text = "  " + left, line(kLeft + 1, ' ');
    std::istringstream words(right);
    if (text.size() < kLeft) {
        text.resize(kLeft, ' ');
        line = text + " ";
        text.clear();
    } else {
        text += "\n";
    }
    size_t begin = line.size();
    for (std::string word; words >> word;) {
        if (line.size() > begin && line.size() + 1 + word.size() > kWidth) {
            text += line + "\n";
            line.assign(kLeft + 1, ' ');
            begin = line.size();
        }
        line += (line.size() > begin ? " " : "") + word;
    }
    return text + line + "\n";
}

// "-m, --model TEXT"; without a letter as far indented
std::string Flags::Flag::left_text() const {
    const bool is_text = std::holds_alternative<std::string *>(field) || is_list();
    return (letter().empty() ? "    --" : "-" + letter() + ", --") + name() +
           (is_bool() ? ""
            : is_text ? " TEXT"
                      : " N");
}

// "model to train [default x]"
std::string Flags::Flag::right_text() const {
    std::string extra = is_bool() ? "" : choices_text(", ");
    if (is_bool()) {
        extra = default_text == "true" ? "default on; --no-" + name() + " turns it off" : "";
    } else if (!default_text.empty() && default_text != "0") {
        extra += (extra.empty() ? "default " : "; default ") +
                 (default_text == "\n" ? "\\n" : default_text);
    }
    return help + (extra.empty() ? "" : " [" + extra + "]");
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
        if (flag.help.empty()) {
            continue;
        }
        if (!all && !is_first(flag)) {
            ++n_more;
            continue;
        }
        if (group == nullptr || *group != flag.group) {
            group = &flag.group;
            text += "\n" + (group->empty() ? "Flags" : *group) + ":\n";
        }
        text += help_row(flag.left_text(), flag.right_text());
    }
    text += "\n" + help_row("-h, --help", first_.empty() ? "this text" : "the usual flags");
    if (n_more > 0) {
        text += help_row("    --help all", format("all flags: %zu more", n_more));
    }
    return text + help_row("    --version", "version");
}

// Text as roff prints it literally.
static std::string roff(const std::string & text) {
    std::string result;
    for (const char c : text) {
        result += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
    }
    return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

std::string man_head(const std::string & page, const std::string & purpose) {
    return format(
        ".TH \"%s\" 1 \"\" \"ggml-train %s\" \"ggml-train\"\n.SH NAME\n%s \\- %s\n", page.c_str(),
        kVersion, roff(page).c_str(), roff(purpose).c_str()
    );
}

std::string Flags::man() const {
    std::string page = program_;
    std::replace(page.begin(), page.end(), ' ', '-');
    std::string text = man_head(page, purpose_);
    text += ".SH SYNOPSIS\n.B " + roff(program_) + "\n" + roff(usage_) + "\n";
    if (positional_ != nullptr) {
        text += ".SH ARGUMENTS\n.TP\n.I " + roff(positional_name_) + "\n" + roff(positional_help_);
        text += "\n";
    }
    const std::string * group = nullptr;
    for (const Flag & flag : flags_) {
        if (flag.help.empty()) {
            continue;
        }
        if (group == nullptr || *group != flag.group) {
            group = &flag.group;
            text += ".SH \"" + (group->empty() ? "FLAGS" : roff(*group)) + "\"\n";
        }
        const std::string left = flag.left_text();
        text += ".TP\n.B " + roff(left.substr(left.find('-'))) + "\n" + roff(flag.right_text());
        text += "\n";
    }
    return text + ".SH \"SEE ALSO\"\n.BR ggml\\-train (1)\n";
}

std::string Flags::completion() const {
    std::string name = program_.substr(program_.rfind(' ') + 1), names = "--help --version", values;
    for (const Flag & flag : flags_) {
        names += flag.help.empty() ? "" : " --" + flag.name();
        if (!flag.is_bool() && !flag.choices.empty()) {
            values += "                --" + flag.name() + ") values=\"" + flag.choices_text(" ") +
                      "\" ;;\n";
        }
    }
    return "        " + name + ")\n            flags=\"" + names +
           "\"\n            case $prev in\n" + values +
           "                --help) values=all ;;\n            esac ;;\n";
}

}  // namespace gt
