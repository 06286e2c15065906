#include "models/classifier/page-parts.h"

#include "ggml-train/base/base.h"
#include "ggml-train/base/json.h"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace gt {

const char * const kPageStyle = R"(<style>
:root { color-scheme: light dark; --back: #fff; --text: #222; --dim: #6f6f6f; --line: #ddd; --bad: #b00; --curve: #06c }
@media (prefers-color-scheme: dark) {
    :root { --back: #121417; --text: #e8eaed; --dim: #a9b1bb; --line: #31363d; --bad: #ff8a80; --curve: #6ea8fe }
}
body { font: 13px sans-serif; background: var(--back); color: var(--text); margin: 24px }
figure.mistake { display: inline-block; vertical-align: top; width: 150px; margin: 8px; overflow-wrap: anywhere }
figcaption b { color: var(--bad) }
small { color: var(--dim) }
figure.chart { display: inline-block; margin: 0 24px 12px 0; max-width: 100% }
figure.chart text { font-size: 12px; fill: var(--text) }
svg { max-width: 100%; height: auto }
.wide { overflow-x: auto }
table { border-collapse: collapse }
td, th { padding: 3px 7px; font-weight: normal; text-align: right; white-space: nowrap }
.matrix td { border: 1px solid var(--line); min-width: 1.6em }
th.turned { height: 90px; vertical-align: bottom; text-align: center; padding: 0 }
th.turned span { display: inline-block; writing-mode: vertical-rl; transform: rotate(180deg); max-height: 88px; overflow: hidden }
@media (max-width: 600px) {
    body { margin: 12px }
    h1 { font-size: 1.4em }
    figure.chart { margin-right: 0 }
    figure.mistake { width: 112px; margin: 5px }
    .matrix { font-size: 11px }
    .matrix td, .matrix th { padding: 2px }
}
</style>
)";

std::string html_text(const std::string & text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '&':
                out += "&amp;";
                break;
            case '"':
                out += "&quot;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

namespace {

constexpr size_t kMaxTable = 40;  // classes
constexpr double kWidth = 460, kHeight = 200, kLeft = 46, kBottom = 24;

struct Point {
    double step = 0, value = 0;
};
using Curve = std::vector<Point>;

// At most n points, each the mean of its neighbors.
Curve thinned(const Curve & curve, size_t n) {
    if (curve.size() <= n) {
        return curve;
    }
    Curve out;
    for (size_t i = 0; i < n; ++i) {
        const size_t begin = i * curve.size() / n, end = (i + 1) * curve.size() / n;
        Point        mean;
        for (size_t k = begin; k < end; ++k) {
            mean.step += curve[k].step / double(end - begin);
            mean.value += curve[k].value / double(end - begin);
        }
        out.push_back(mean);
    }
    return out;
}

// Removes the points before `from`: the steep start would flatten the rest. Not if fewer than two points are left.
void skip_start(Curve & curve, double from) {
    const auto kept =
        std::find_if(curve.begin(), curve.end(), [&](const Point & p) { return p.step >= from; });
    if (curve.end() - kept > 1) {
        curve.erase(curve.begin(), kept);
    }
}

// A round distance of lines that cuts the range into five parts or fewer.
double tick(double range) {
    const double least = std::max(range, 1e-3) / 5;
    const double power = std::pow(10.0, std::floor(std::log10(least)));
    return power * (least <= power ? 1 : least <= 2 * power ? 2 : least <= 5 * power ? 5 : 10);
}

// One diagram; a curve and its color and name each.
struct Line {
    const char * name;
    const char * color;
    Curve        curve;
};
std::string chart(const char * title, std::vector<Line> lines) {
    double last = 1, low = 1e300, high = -1e300;
    for (const Line & line : lines) {
        last = std::max(last, line.curve.empty() ? 0.0 : line.curve.back().step);
    }
    for (Line & line : lines) {
        skip_start(line.curve, last / 20);
        line.curve = thinned(line.curve, 300);
        for (const Point & p : line.curve) {
            low  = std::min(low, p.value);
            high = std::max(high, p.value);
        }
    }
    if (low > high) {
        return "";
    }
    const double each  = tick(high - low);
    low                = each * std::floor(low / each);
    const auto   n     = std::max(1, static_cast<int>(std::ceil((high - low) / each - 1e-9)));
    const double range = n * each;
    const auto   x     = [&](double step) { return kLeft + (kWidth - kLeft - 8) * step / last; };
    const auto   y     = [&](double value) {
        return 8 + (kHeight - kBottom - 16) * (1 - (value - low) / range);
    };
    std::string svg = format(
        "<figure class=\"chart\"><figcaption>%s</figcaption><svg viewBox=\"0 0 %g %g\" "
        "width=\"%g\" "
        "height=\"%g\" role=\"img\" aria-label=\"%s\">",
        title, kWidth, kHeight, kWidth, kHeight, title
    );
    for (int i = 0; i <= n; ++i) {
        const double value = low + each * i;
        svg += format(
            "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" style=\"stroke:var(--line)\"/><text "
            "x=\"%g\" "
            "y=\"%.1f\" text-anchor=\"end\">%.3g</text>",
            kLeft, kWidth - 8, y(value), y(value), kLeft - 5, y(value) + 4, value
        );
    }
    svg += format("<text x=\"%g\" y=\"%g\">0</text>", kLeft, kHeight - 6);
    svg += format(
        "<text x=\"%g\" y=\"%g\" text-anchor=\"end\">step %.0f</text>", kWidth - 8, kHeight - 6,
        last
    );
    double legend = kLeft + 60;
    for (const Line & line : lines) {
        svg += format(
            "<polyline fill=\"none\" stroke-width=\"1.5\" style=\"stroke:%s\" points=\"", line.color
        );
        for (const Point & p : line.curve) {
            svg += format("%.1f,%.1f ", x(p.step), y(p.value));
        }
        svg += format(
            "\"/><text x=\"%g\" y=\"%g\" style=\"fill:%s\">%s</text>", legend, kHeight - 6,
            line.color, line.name
        );
        legend += 110;
    }
    return svg + "</svg></figure>\n";
}

std::string confused_html(const Confusion & matrix, const std::vector<std::string> & classes) {
    std::string html = "<h2>Most frequent confusions</h2>\n<table>";
    for (const Confused & pair : most_confused(matrix, 40)) {
        html += format("<tr><td>%lld</td><th>", static_cast<long long>(pair.n)) +
                html_text(classes[pair.is]) + "</th><td>taken for</td><th>" +
                html_text(classes[pair.answer]) + "</th></tr>\n";
    }
    return html + "</table>\n";
}

}  // namespace

std::vector<Confused> most_confused(const Confusion & matrix, size_t most) {
    std::vector<Confused> pairs;
    for (size_t i = 0; i < matrix.size(); ++i) {
        for (size_t k = 0; k < matrix.size(); ++k) {
            if (i != k && matrix[i][k] > 0) {
                pairs.push_back({matrix[i][k], i, k});
            }
        }
    }
    std::stable_sort(pairs.begin(), pairs.end(), [](const Confused & a, const Confused & b) {
        return a.n > b.n;
    });
    pairs.resize(std::min(most, pairs.size()));
    return pairs;
}

std::string confusion_html(const Confusion & matrix, const std::vector<std::string> & classes) {
    if (classes.size() > kMaxTable) {
        return confused_html(matrix, classes);
    }
    std::string html = "<h2>Confusion</h2>\n<p>A row per class, a column per answer.</p>\n"
                       "<div class=\"wide\"><table class=\"matrix\"><tr><th></th>";
    for (const std::string & name : classes) {
        html += "<th class=\"turned\"><span>" + html_text(name) + "</span></th>";
    }
    html += "<th class=\"turned\"><span>accuracy</span></th></tr>\n";
    for (size_t i = 0; i < matrix.size(); ++i) {
        int64_t all = 0;
        for (const int64_t n : matrix[i]) {
            all += n;
        }
        html += "<tr><th>" + html_text(classes[i]) + "</th>";
        for (size_t k = 0; k < matrix[i].size(); ++k) {
            const double share = double(matrix[i][k]) / double(std::max<int64_t>(1, all));
            html += format(
                "<td style=\"background:rgba(%s,%.2f)\">", i == k ? "40,130,70" : "200,40,40",
                matrix[i][k] > 0 ? 0.08 + 0.7 * share : 0.0
            );
            html += matrix[i][k] > 0 ? std::to_string(matrix[i][k]) : "";
            html += "</td>";
        }
        const double right = 100.0 * double(matrix[i][i]) / double(std::max<int64_t>(1, all));
        html += format("<td>%.1f %%</td></tr>\n", right);
    }
    return html + "</table></div>\n";
}

std::string curves_html(const std::string & metrics) {
    Curve         loss, validation, accuracy;
    std::ifstream file(metrics);
    for (std::string line; std::getline(file, line);) {
        const auto json = Json::parse(line);
        const auto step = json ? json->number("step") : std::nullopt;
        if (!step) {
            continue;
        }
        const auto add = [&](const char * key, double factor, Curve & curve) {
            if (const auto value = json->number(key)) {
                curve.push_back({*step, factor * *value});
            }
        };
        add("loss", 1.0, loss);
        add("val_loss", 1.0, validation);
        add("accuracy", 100.0, accuracy);
    }
    return chart(
               "Loss",
               {{"training", "var(--dim)", loss}, {"validation", "var(--curve)", validation}}
           ) +
           chart("Accuracy, %", {{"validation", "var(--curve)", accuracy}});
}

}  // namespace gt
