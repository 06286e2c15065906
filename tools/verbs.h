// tools/verbs.h — the programs of ggml-train. `ggml-train NAME` runs one; so does a link of that name to
// ggml-train.
#pragma once

namespace gt {

class Flags;

struct Verb {
    const char * name;
    const char * purpose;
    const char * usage;  // follows the name in the first line of --help
    // Adds its flags, parses, works; returns the exit code. argv[0] is not read.
    int (*main)(Flags & flags, int argc, char ** argv);
};

int classify_main(Flags & flags, int argc, char ** argv);
int evaluate_main(Flags & flags, int argc, char ** argv);
int export_main(Flags & flags, int argc, char ** argv);
int generate_main(Flags & flags, int argc, char ** argv);
int hub_main(Flags & flags, int argc, char ** argv);
int inspect_main(Flags & flags, int argc, char ** argv);
int new_model_main(Flags & flags, int argc, char ** argv);
int plan_main(Flags & flags, int argc, char ** argv);
int prepare_data_main(Flags & flags, int argc, char ** argv);
int selftest_main(Flags & flags, int argc, char ** argv);
int train_gpt_main(Flags & flags, int argc, char ** argv);
int train_vit_main(Flags & flags, int argc, char ** argv);

}  // namespace gt
