// tools/flags.h — one table of flags drives parsing, --help, the log and the checkpoint.
//
//   struct MyFlags {
//       std::string model;
//       int64_t     steps = 1000;
//       template <class Visit>
//       void visit(Visit && visit) {
//           visit("model,m", model, "model to train (GGUF)");
//           visit("steps", steps, "weight updates");
//       }
//   };
//   int main(int argc, char ** argv) {
//       return run_tool("my-tool", [&] {
//           MyFlags my;
//           Flags   flags("my-tool", "does something", "-m FILE [flags]");
//           my.visit(flags);
//           flags.parse(argc, argv);
//       });
//   }
//
// Numbers may end in k, M, G, T (thousands); times in s, m, h, d. --x=1 and --x 1 are the same; a
// bool is --x or --no-x; a list is given by repeating its flag. --help and --version come by
// themselves. Option structs of other folders need only such a template, not this header.
#pragma once

#include "ggml-train/base.h"

#include <chrono>

namespace gt {

// Wrong usage: run_tool adds a hint and exits with 2.
class UsageError : public Error {
public:
    using Error::Error;
};

class Flags {
public:
    using Values = std::vector<std::pair<std::string, std::string>>;

    // usage: what follows the program's name in the first line of --help.
    Flags(std::string program, std::string purpose, std::string usage);

    // Starts a group of --help.
    void group(const std::string & title);

    // One row: name (",x" adds a short one), field with its default in it, help. choices: what a
    // string may be. REQUIRES: field lives as long as this.
    template <class T>
    void operator()(
        const std::string &      name,
        T &                      field,
        const std::string &      help,
        std::vector<std::string> choices = {}
    ) {
        add(
            {name, "", help, group_, kind_of(field), std::move(choices), false,
             [&field, name](const std::string & text) { from_text(name, text, field); },
             [&field] { return to_text(field); }}
        );
    }

    // Arguments without a flag; absent: none are allowed.
    void positional(
        const std::string & name, std::vector<std::string> & values, const std::string & help
    );

    // Reads the command line. --help and --version print and end the program (through run_tool).
    void parse(int argc, const char * const * argv);

    // UsageError unless the flag was given.
    void require(const std::string & name) const;

    bool given(const std::string & name) const;

    // Sets a flag as if it had been given (from a checkpoint); unknown names are an Error.
    void set(const std::string & name, const std::string & text);

    // All flags with their values as text that `set` reads back exactly.
    Values values() const;

    std::string help() const;

private:
    enum class Kind { boolean, number, text, list, time };
    struct Flag {
        std::string                              name, letter, help, group;
        Kind                                     kind;
        std::vector<std::string>                 choices;
        bool                                     given;
        std::function<void(const std::string &)> set;
        std::function<std::string()>             get;
        std::string                              default_text{};
    };

    static Kind kind_of(const bool &) { return Kind::boolean; }
    static Kind kind_of(const int &) { return Kind::number; }
    static Kind kind_of(const int64_t &) { return Kind::number; }
    static Kind kind_of(const uint64_t &) { return Kind::number; }
    static Kind kind_of(const float &) { return Kind::number; }
    static Kind kind_of(const double &) { return Kind::number; }
    static Kind kind_of(const std::string &) { return Kind::text; }
    static Kind kind_of(const std::vector<std::string> &) { return Kind::list; }
    static Kind kind_of(const std::chrono::seconds &) { return Kind::time; }

    static void from_text(const std::string & name, const std::string & text, bool & field);
    static void from_text(const std::string & name, const std::string & text, int & field);
    static void from_text(const std::string & name, const std::string & text, int64_t & field);
    static void from_text(const std::string & name, const std::string & text, uint64_t & field);
    static void from_text(const std::string & name, const std::string & text, float & field);
    static void from_text(const std::string & name, const std::string & text, double & field);
    static void from_text(const std::string & name, const std::string & text, std::string & field);
    static void
    from_text(const std::string & name, const std::string & text, std::vector<std::string> & field);
    static void
    from_text(const std::string & name, const std::string & text, std::chrono::seconds & field);

    static std::string to_text(bool x);
    static std::string to_text(int x) { return std::to_string(x); }
    static std::string to_text(int64_t x) { return std::to_string(x); }
    static std::string to_text(uint64_t x) { return std::to_string(x); }
    static std::string to_text(float x);
    static std::string to_text(double x);
    static std::string to_text(const std::string & x) { return x; }
    static std::string to_text(const std::vector<std::string> & x);
    static std::string to_text(std::chrono::seconds x);

    void         add(Flag flag);
    Flag *       find(const std::string & name);
    const Flag * find(const std::string & name) const;
    std::string  nearest(const std::string & name) const;
    void         assign(Flag & flag, const std::string & text);

    std::string                program_, purpose_, usage_, group_;
    std::vector<Flag>          flags_;
    std::string                positional_name_, positional_help_;
    std::vector<std::string> * positional_ = nullptr;
};

// Runs a program's body. An Error becomes `name: message` and exit code 1, wrong usage 2.
int run_tool(const std::string & name, const std::function<void()> & body);

}  // namespace gt
