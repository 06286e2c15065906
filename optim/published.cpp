// optim/published.cpp — the settings of publications, to repeat their results: --published NAME.
#include "optim/optim.h"

namespace gt {

const std::vector<Publication> & publications() {
    static const char * const demo =
        "--replicator demo --top-k 32 --rule sgd --wire fp32 --momentum-decay 0.999";
    static const char * const demo_2 =
        "--replicator demo --top-k 32 --rule sgd --wire fp32 --momentum-subtract 0.2 "
        "--momentum-decay 0.995";
    static const std::vector<Publication> rows = {
        {"demo", demo},      // arXiv 2411.19870
        {"demo-2", demo_2},  // its second version
        {"flexdemo", demo},  // arXiv 2502.06728: between hosts of several ranks
        {"diloco", "--replicator diloco --wire fp32 --overlap 0"},  // arXiv 2311.08105
        // arXiv 2505.23725
        {"muloco", "--replicator diloco --rule muon --wire q4 --outer-momentum 0.6 --overlap 0"},
        // arXiv 2508.15706
        {"sparseloco", "--replicator sparseloco --top-k 64 --overlap 0"},
    };
    return rows;
}

}  // namespace gt
