// models/classifier/page-parts.h — parts of the HTML page at the end of a run: the confusion matrix, and the
// curves of the run's log. No scripts, no other files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gt {

extern const char * const kPageStyle;  // colors for light and dark, narrow and wide windows

std::string html_text(const std::string & text);  // with <, >, & and quotes escaped

using Confusion = std::vector<std::vector<int64_t>>;  // [true class][answer]

// Pictures of class `is` that were taken for class `answer`.
struct Confused {
    int64_t n;
    size_t  is, answer;
};

// The most frequent ones first, at most `most`.
std::vector<Confused> most_confused(const Confusion & matrix, size_t most);

// A table; of more than 40 classes, the pairs that are confused most often.
std::string confusion_html(const Confusion & matrix, const std::vector<std::string> & classes);

// Loss and accuracy over the steps, from a metrics.jsonl; empty if it has none.
std::string curves_html(const std::string & metrics);

}  // namespace gt
