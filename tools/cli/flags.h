// tools/cli/flags.h — one table of flags drives parsing, --help and what checkpoints store.
//
//   struct MyFlags {
//       std::string model;
//       int64_t     steps = 1000;
//       template <class Visit>
//       void visit(Visit && visit) {
//           visit("model,m", model, "model to train (GGUF)");
//           visit("steps", steps, "number of weight updates");
//       }
//   };
//   int main(int argc, char ** argv) {
//       return run_tool("my-tool", [&] {
//           MyFlags my;
//           Flags   flags("my-tool", "does something", "-m FILE [flags]");
//           my.visit(flags);
//           flags.parse(argc, argv);
//           return 0;
//       });
//   }
//
// Numbers may end in k, M, G, T (powers of 1000) or Ki, Mi, Gi. --x=1 and --x 1 are the same; a bool is
// --x, --no-x, or --x 0|1|true|false; a list is given by repeating its flag, any other flag has one value.
// --help, --help all, --version, --man and --completion are built in. Option structs of other folders need
// only such a template, not this header.
//
// A name may list more spellings: "steps-per-round,every". One or two letters ("context,c", "hf-repo,hf")
// are the short form; the others are older spellings, accepted everywhere but not shown. Checkpoints and
// the settings at a hub store a flag under its oldest spelling, the last one listed: so they can be read
// by every version.
#pragma once

#include "ggml-train/base/base.h"

#include <limits>
#include <map>
#include <variant>

namespace gt {

// Wrong usage: run_tool adds a hint and exits with 2.
class UsageError : public Error {
public:
    using Error::Error;
};

class Flags {
public:
    using Values = std::vector<std::pair<std::string, std::string>>;

    // usage: follows the program's name in the first line of --help.
    Flags(std::string program, std::string purpose, std::string usage);

    // A table without a program, to read or write the fields of a struct as text.
    Flags() = default;

    // Starts a group of --help.
    void group(const std::string & title) { group_ = title; }

    // One row: names, field with its default in it, help (empty: only stored, not shown). choices: the
    // values that a string may have; for a bool the two texts that stand for false and true. least, most:
    // the range of a number, which is not negative unless the row says so.
    // REQUIRES: field outlives this.
    template <class T>
    void operator()(
        const std::string &      names,
        T &                      field,
        const std::string &      help,
        std::vector<std::string> choices = {},
        double                   least   = 0.0,
        double                   most    = kNoLimit
    ) {
        add(
            {.names   = names,
             .field   = &field,
             .help    = help,
             .choices = std::move(choices),
             .least   = least,
             .most    = most}
        );
    }

    // Arguments without a flag. Without this call none are allowed.
    void positional(
        const std::string & name, std::vector<std::string> & values, const std::string & help
    );

    // A flag of similar programs, or an older spelling, that would mislead here: refused with this
    // advice on the command line. `set` still takes the older spelling.
    void refuse(const std::string & name, const std::string & advice) { refused_[name] = advice; }

    // A value of a flag with choices sets other flags, too, as if `words` were typed behind it.
    void expand(const std::string & name, const std::string & value, const std::string & words) {
        expansions_[{name, value}] = words;
    }

    // The flags that --help shows; the others need --help all. Without this call it shows all.
    void shown_first(std::vector<std::string> names) { first_ = std::move(names); }

    // Reads the command line. --help and --version print and end the program (through run_tool).
    void parse(int argc, const char * const * argv);

    // UsageError unless the flag was given.
    void require(const std::string & name) const;

    bool given(const std::string & name) const;

    // Sets a flag from a stored value; an unknown name is an Error.
    void set(const std::string & name, const std::string & text);

    // Stored names and values of all flags; `set` restores them exactly.
    Values values() const;

    // At most 80 columns wide.
    std::string help(bool all = true) const;

    // The page for man, in roff.
    std::string man() const;

    // This program's rows of the script for bash or zsh; see tools/ggml-train.cpp.
    std::string completion() const;

private:
    static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

    using Field = std::variant<
        bool *,
        int *,
        int64_t *,
        uint64_t *,
        float *,
        double *,
        std::string *,
        std::vector<std::string> *>;

    struct Flag {
        std::string              names;  // as they are given to operator(), first the one shown
        Field                    field;
        std::string              help;
        std::vector<std::string> choices;
        double                   least, most;
        std::string              group{}, default_text{};
        std::string              given_text{}, given_by{};  // the flag that it was expanded from
        bool                     given = false;

        bool        has_name(const std::string & name) const;
        std::string name() const { return names.substr(0, names.find(',')); }
        std::string letter() const;
        std::string stored_name() const;
        bool        is_bool() const { return std::holds_alternative<bool *>(field); }
        bool        is_list() const;
        void        assign(const std::string & text) const;  // to the field
        void        check_range(const std::string & text) const;
        std::string text() const;  // of the field
        std::string choices_text(const char * between) const;
        std::string left_text() const;  // of --help
        std::string right_text() const;
    };

    void         add(Flag flag);
    const Flag * find(const std::string & name) const;
    Flag &       expect(const std::string & word, const std::string & name);
    bool         is_first(const Flag & flag) const;
    std::string  about(const std::string & word, const std::string & next) const;

    std::string                program_, purpose_, usage_, group_;
    std::vector<Flag>          flags_;
    std::string                positional_name_, positional_help_;
    std::vector<std::string> * positional_ = nullptr;

    std::map<std::string, std::string> refused_;  // by name: advice
    std::vector<std::string>           first_;    // names

    std::map<std::pair<std::string, std::string>, std::string> expansions_;  // by name and value
    std::string by_;  // the expansion that parse reads
};

// The beginning of a page for man.
std::string man_head(const std::string & page, const std::string & purpose);

// Runs a program's body, which returns the exit code. An Error becomes `name: message` and exit code 1,
// wrong usage 2.
int run_tool(const std::string & name, const std::function<int()> & body);

}  // namespace gt
