// models/vit.h — ViT: patches, class token or mean, erf GELU, a linear classifier. arXiv 2010.11929.
#pragma once

#include "models/blocks.h"

namespace gt {

class Vit : public Transformer {
public:
    using Transformer::Transformer;

    ggml_tensor * embed(Ops & ops, const Inputs & in) override;
    ggml_tensor * block(Ops & ops, const Inputs & in, int i, ggml_tensor * x) override;
    Head          head(Ops & ops, const Inputs & in, ggml_tensor * x) override;
};

}  // namespace gt
