#include "tools/classify/classify-report.h"

#include "ggml-train/base/json.h"
#include "ggml-train/base/plural.h"

#include <algorithm>
#include <numeric>

namespace gt {

namespace {

template <class List, class Text>
std::string joined(const List & list, const char * between, Text && text) {
    std::string out;
    for (const auto & entry : list) {
        out += (out.empty() ? "" : between) + text(entry);
    }
    return out;
}

template <class T>
Json array_of(const std::vector<T> & values) {
    Json out = Json::array();
    for (const T & value : values) {
        out.push(value);
    }
    return out;
}

std::string matrix_text(const Confusion & matrix, const std::vector<std::string> & names) {
    std::string text = format("\nconfusion: a row per class, a column per answer\n%-16s", "");
    for (const std::string & name : names) {
        text += format("%7s", name.substr(0, 6).c_str());
    }
    for (size_t i = 0; i < names.size(); ++i) {
        text += format("\n%-16s", names[i].substr(0, 15).c_str());
        for (const int64_t n : matrix[i]) {
            text += n ? format("%7lld", static_cast<long long>(n)) : "      .";
        }
    }
    return text + "\n";
}

std::string confusions_text(const Confusion & matrix, const std::vector<std::string> & names) {
    const auto pairs = most_confused(matrix, 20);
    return "\nmost frequent confusions\n" + joined(pairs, "", [&](const Confused & p) {
               return format(
                   "%7lld  %s taken for %s\n", static_cast<long long>(p.n), names[p.is].c_str(),
                   names[p.answer].c_str()
               );
           });
}

}  // namespace

std::string answer_text(
    const std::string &              picture,
    std::span<const float>           logits,
    const std::vector<std::string> & names,
    int64_t                          top,
    bool                             json
) {
    const std::vector<float> shares = softmax(logits);
    std::vector<size_t>      order(shares.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return shares[a] > shares[b];
    });
    order.resize(std::min(order.size(), static_cast<size_t>(std::max<int64_t>(1, top))));
    if (json) {
        Json answers = Json::array();
        for (const size_t k : order) {
            answers.push(Json::object().set("class", names[k]).set("share", shares[k]));
        }
        return Json::object().set("picture", picture).set("answers", answers).text();
    }
    return picture + ": " + joined(order, ", ", [&](size_t k) {
               return format("%s %.1f %%", names[k].c_str(), 100.0 * shares[k]);
           });
}

std::string report_text(
    const std::string &              data,
    const Evaluation &               evaluation,
    const std::vector<std::string> & names,
    bool                             json
) {
    const Confusion matrix = confusion_of(evaluation, names.size());
    if (json) {
        Json rows = Json::array();
        for (const std::vector<int64_t> & row : matrix) {
            rows.push(array_of(row));
        }
        return Json::object()
            .set("data", data)
            .set("pictures", evaluation.answers.size())
            .set("accuracy", static_cast<float>(evaluation.accuracy))
            .set("loss", static_cast<float>(evaluation.loss))
            .set("classes", array_of(names))
            .set("confusion", rows)
            .text();
    }
    return format(
               "%s: %s, accuracy %.2f %%, loss %.4f\n", data.c_str(),
               plural(static_cast<int64_t>(evaluation.answers.size()), "picture").c_str(),
               100.0 * evaluation.accuracy, evaluation.loss
           ) +
           (names.size() <= 20 ? matrix_text(matrix, names) : confusions_text(matrix, names));
}

}  // namespace gt
