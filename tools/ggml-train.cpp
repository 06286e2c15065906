// ggml-train — one program for all verbs: `ggml-train train-gpt ...`, or `train-gpt ...` through a link of
// that name, as busybox does.
//
// Read next: tools/train-gpt.cpp.
#include "ggml-train/base/base.h"
#include "tools/cli/flags.h"
#include "tools/cli/nearest.h"
#include "tools/verbs.h"

#include <cstdio>
#include <cstring>

using namespace gt;

// In the order of the list that `ggml-train` prints.
constexpr Verb kVerbs[] = {
    {"new-model", "makes a model file: shape, initial weights, tokenizer",
     "--preset NAME -o FILE [flags]", new_model_main},
    {"prepare-data", "tokenizes text for train-gpt", "-m MODEL TEXT... [-o FILE] [flags]",
     prepare_data_main},
    {"train-gpt", "trains a GPT on text or chats", "-m MODEL TEXT... [flags]", train_gpt_main},
    {"train-vit", "trains a ViT on labelled pictures", "-m MODEL --data PICTURES [flags]",
     train_vit_main},
    {"generate", "samples text from a model", "-m MODEL -p TEXT [flags]", generate_main},
    {"evaluate", "measures a model on text or chats", "-m MODEL FILE... [flags]", evaluate_main},
    {"classify", "classifies pictures", "-m MODEL PICTURE... [flags]", classify_main},
    {"export", "writes a trained model as a GGUF for llama.cpp",
     "CHECKPOINT|RUN|MODEL|--nodes HOSTS -o FILE [flags]", export_main},
    {"inspect", "prints what a file of a run holds", "FILE... [flags]", inspect_main},
    {"hub", "runs the hub of a run, and makes hosts.txt", "[flags]", hub_main},
    {"plan", "estimates step time and traffic of a run", "-m MODEL [--nodes hosts.txt] [flags]",
     plan_main},
    {"selftest", "checks GPU results against the CPU", "--cuda | --device DEVICE [flags]",
     selftest_main},
};

static const Verb * find_verb(const std::string & name) {
    for (const Verb & verb : kVerbs) {
        if (name == verb.name) {
            return &verb;
        }
    }
    return nullptr;
}

// Whether no other package and no shell has a program of this name; then an installation has a link.
static bool is_distinct(const Verb & verb) {
    return std::strchr(verb.name, '-') != nullptr;
}

static void print_verbs() {
    std::printf("ggml-train %s — trains GPT and ViT models on ggml\n\n", kVersion);
    std::printf("usage: ggml-train PROGRAM [flags]\n\n");
    for (const Verb & verb : kVerbs) {
        std::printf("  %-13s %s\n", verb.name, verb.purpose);
    }
    std::printf("\nggml-train PROGRAM --help lists the flags of a program.\n");
}

static int run_verb(const Verb & verb, const std::string & program, int argc, char ** argv) {
    return run_tool(program, [&] {
        Flags flags(program, verb.purpose, verb.usage);
        return verb.main(flags, argc, argv);
    });
}

static void print_man() {
    std::fputs(man_head("ggml-train", "trains GPT and ViT models on ggml").c_str(), stdout);
    std::printf(".SH SYNOPSIS\n.B ggml\\-train\n.I PROGRAM\n[flags]\n.SH PROGRAMS\n");
    for (const Verb & verb : kVerbs) {
        std::printf(
            ".TP\n.B %s\n%s; see %s%s(1)\n", verb.name, verb.purpose,
            is_distinct(verb) ? "" : "ggml-train-", verb.name
        );
    }
}

// The rows of `case $program in` that set $flags and $values, the same for bash and zsh.
static void print_completion_rows() {
    std::string all;
    for (const Verb & verb : kVerbs) {
        all += std::string(all.empty() ? "" : " ") + verb.name;
    }
    std::printf("    case $program in\n        ggml-train) values=\"%s\" ;;\n", all.c_str());
    for (const Verb & verb : kVerbs) {
        char   word[] = "--completion";
        char * argv[] = {word, word};
        run_verb(verb, verb.name, 2, argv);
    }
    std::printf("    esac\n");
}

// A script that completes flags, and the values of flags that have a choice; files otherwise.
static void print_completion(bool zsh) {
    std::string links = "ggml-train";
    for (const Verb & verb : kVerbs) {
        links += is_distinct(verb) ? std::string(" ") + verb.name : "";
    }
    if (zsh) {
        std::printf("#compdef %s\n", links.c_str());
        std::fputs(
            R"(_ggml_train() {
    local cur=$words[CURRENT] prev=$words[CURRENT-1] program=${words[1]:t} flags= values=
    if [[ $program = ggml-train && $CURRENT -gt 2 ]]; then
        program=$words[2]
    fi
)",
            stdout
        );
        print_completion_rows();
        std::fputs(
            R"(    if [[ $cur == -* ]]; then
        compadd -- ${=flags}
    elif [[ -n $values ]]; then
        compadd -- ${=values}
    else
        _files
    fi
}
_ggml_train "$@"
)",
            stdout
        );
        return;
    }
    std::fputs(
        R"(_ggml_train() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local program=${COMP_WORDS[0]##*/} flags= values=
    COMPREPLY=()
    if [ "$program" = ggml-train ] && [ "$COMP_CWORD" -gt 1 ]; then
        program=${COMP_WORDS[1]}
    fi
)",
        stdout
    );
    print_completion_rows();
    std::printf(
        R"(    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$cur"))
    elif [ -n "$values" ]; then
        COMPREPLY=($(compgen -W "$values" -- "$cur"))
    fi
}
complete -o default -F _ggml_train %s
)",
        links.c_str()
    );
}

static int unknown_verb(const std::string & name) {
    std::vector<std::string> known;
    for (const Verb & verb : kVerbs) {
        known.push_back(verb.name);
    }
    const std::string best = nearest(name, known);
    std::fprintf(
        stderr, "ggml-train: unknown program \"%s\"%s\n(ggml-train lists the programs)\n",
        name.c_str(), best.empty() ? "" : ("; did you mean " + best + "?").c_str()
    );
    return 2;
}

int main(int argc, char ** argv) {
    const char * slash = argc > 0 ? std::strrchr(argv[0], '/') : nullptr;
    const char * name  = slash ? slash + 1 : argc > 0 ? argv[0] : "";
    if (const Verb * verb = find_verb(name)) {
        return run_verb(*verb, name, argc, argv);
    }
    const std::string word = argc > 1 ? argv[1] : "--help";
    if (const Verb * verb = find_verb(word)) {
        return run_verb(*verb, "ggml-train " + word, argc - 1, argv + 1);
    }
    if (word == "--version") {
        std::printf("ggml-train %s\n", kVersion);
    } else if (word == "--man") {
        print_man();
    } else if (word == "--completion") {
        print_completion(argc > 2 && std::strcmp(argv[2], "zsh") == 0);
    } else if (word == "--help" || word == "-h" || word == "help") {
        print_verbs();
    } else {
        return unknown_verb(word);
    }
    return 0;
}
