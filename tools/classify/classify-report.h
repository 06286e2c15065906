// tools/classify/classify-report.h — what classify prints: answers per picture, and how often they are right.
#pragma once

#include "models/classifier/classifier.h"

namespace gt {

// "cat.jpg: cat 97.1 %, dog 2.0 %", or one JSON object. top: how many classes.
std::string answer_text(
    const std::string &              picture,
    std::span<const float>           logits,
    const std::vector<std::string> & names,
    int64_t                          top,
    bool                             json
);

// Accuracy, loss and the confusion matrix (of many classes: the most frequent confusions), or one
// JSON object.
std::string report_text(
    const std::string &              data,
    const Evaluation &               evaluation,
    const std::vector<std::string> & names,
    bool                             json
);

}  // namespace gt
