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
        {"demo", "arXiv 2411.19870", demo},
        {"demo-2", "its second version", demo_2},
        {"flexdemo", "arXiv 2502.06728; with several ranks", demo},
        {"diloco", "arXiv 2311.08105", "--replicator diloco --wire fp32 --overlap 0"},
        {"muloco", "arXiv 2505.23725",
         "--replicator diloco --rule muon --wire q4 --outer-momentum 0.6 --overlap 0"},
        {"sparseloco", "arXiv 2508.15706", "--replicator sparseloco --top-k 64 --overlap 0"},
    };
    return rows;
}

}  // namespace gt
