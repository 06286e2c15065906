// Chats as samples: packing, truncation, order, validation set.
#include "models/text/chat-data.h"
#include "models/text/measures.h"
#include "tests/catch.h"
#include "tests/scratch.h"

#include <algorithm>
#include <set>

using namespace gt;

namespace {

const Tokenizer & bytes() {
    static const Tokenizer tokenizer(byte_vocabulary().get(), "bytes");
    return tokenizer;
}

// A chat of n tokens first, first + 1, ...; the last n_counted count.
ChatTokens made_chat(int32_t first, size_t n, size_t n_counted) {
    ChatTokens chat;
    for (size_t i = 0; i < n; ++i) {
        chat.tokens.push_back(first + static_cast<int32_t>(i));
        chat.counts.push_back(i + n_counted >= n);
    }
    return chat;
}

ChatSet chats_of(size_t n) {
    ChatSet set;
    for (size_t i = 0; i < n; ++i) {
        set.train.push_back(made_chat(static_cast<int32_t>(100 * (i + 1)), 3 + i % 9, 2));
    }
    return set;
}

}  // namespace

TEST_CASE("chats_share_samples_and_each_is_whole_in_one_of_them") {
    const ChatSet     set = chats_of(50);
    const ChatSamples samples(set.train, 16);
    int64_t           n_tokens = 0;
    for (const ChatTokens & chat : set.train) {
        n_tokens += static_cast<int64_t>(chat.tokens.size()) - 1;
    }
    CHECK(samples.size() <= n_tokens / 16 + 3);
    Batch batch;
    for (int64_t i = 0; i < samples.size(); ++i) {
        samples.add(i, batch);
    }
    REQUIRE(batch.n_samples == samples.size());
    REQUIRE(batch.tokens.size() == static_cast<size_t>(16 * samples.size()));
    std::multiset<int32_t> found;
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
        if (batch.tokens[i] == 0) {
            CHECK(batch.labels[i] == -1);
            continue;
        }
        const size_t       which = static_cast<size_t>(batch.tokens[i]) / 100 - 1;
        const ChatTokens & chat  = set.train[which];
        const auto         t     = static_cast<size_t>(batch.positions[i]);
        CHECK(batch.tokens[i] == chat.tokens[t]);
        CHECK(batch.labels[i] == (chat.counts[t + 1] ? chat.tokens[t + 1] : -1));
        CHECK((t == 0 || (i % 16 != 0 && batch.tokens[i - 1] == chat.tokens[t - 1])));
        found.insert(batch.tokens[i]);
    }
    CHECK(found.size() == static_cast<size_t>(n_tokens));
    CHECK(std::set<int32_t>(found.begin(), found.end()).size() == found.size());
}

TEST_CASE("long_chats_are_truncated_and_counted_and_left_out_if_nothing_counts") {
    const std::vector<ChatTokens> chats = {
        made_chat(100, 9, 4),   // takes 8 places
        made_chat(200, 12, 6),  // begins to count before the cut
        made_chat(300, 12, 2),  // only beyond it
    };
    const ChatSamples samples(chats, 8);
    CHECK(samples.size() == 2);
    CHECK(samples.n_truncated() == 2);
    CHECK(samples.n_left_out() == 1);
    Batch batch;
    samples.add(0, batch);
    CHECK(batch.n_labels() == 3);

    ChatSet none;
    none.train.push_back(chats[2]);
    CHECK_THAT(
        error_of([&] { ChatData(none, bytes(), {.T = 8, .batch = 1}); }),
        ContainsSubstring(
            "no chat has a reply of the assistant in its first 8 tokens; use a longer --context"
        )
    );
}

TEST_CASE("an_epoch_uses_every_sample_once_in_an_order_of_seed_and_host") {
    const ChatSet set = chats_of(40);
    const auto    run = [&](uint64_t seed, const std::string & host, std::vector<uint64_t> steps) {
        ChatData             data(set, bytes(), {.seed = seed, .host = host, .T = 16, .batch = 3});
        std::vector<int32_t> firsts;
        for (const uint64_t step : steps) {
            const Batch batch = data.train(step, 3);
            for (size_t i = 0; i < 3; ++i) {
                firsts.push_back(batch.tokens[16 * i]);
            }
        }
        return firsts;
    };
    const auto n = static_cast<uint64_t>(ChatSamples(set.train, 16).size());
    REQUIRE(n % 3 == 0);
    std::vector<uint64_t> steps(2 * n / 3);
    for (size_t i = 0; i < steps.size(); ++i) {
        steps[i] = i;
    }
    const auto all  = run(1, "anna", steps);
    const auto half = all.begin() + static_cast<long>(n);
    CHECK(std::set<int32_t>(all.begin(), half).size() == n);
    CHECK(std::set<int32_t>(half, all.end()).size() == n);
    CHECK_FALSE(std::equal(all.begin(), half, half));
    CHECK(run(2, "anna", steps) != all);
    CHECK(run(1, "ben", steps) != all);
    // a resumed run, and fewer samples of a slow host
    CHECK(
        run(1, "anna", {7, 2}) ==
        std::vector<int32_t>{all[21], all[22], all[23], all[6], all[7], all[8]}
    );
    ChatData data(set, bytes(), {.seed = 1, .host = "anna", .T = 16, .batch = 3});
    CHECK(data.train(2, 1).tokens[0] == all[6]);
}

TEST_CASE("the_content_of_a_chat_decides_whether_it_validates") {
    const Scratch dir;
    std::string   lines;
    for (int i = 0; i < 200; ++i) {
        lines += format("{\"prompt\":\"q%d\",\"completion\":\"a%d\"}\n", i, i);
    }
    write_text(dir / "c.jsonl", lines);
    gguf_context_ptr keys = byte_vocabulary();
    gguf_set_val_str(
        keys.get(), "tokenizer.chat_template",
        "{% for m in messages %}{{ m.content }}\\x~{% endfor %}"
    );
    const Tokenizer    tokenizer(keys.get(), "m");
    const ChatTemplate chat_template(keys.get(), tokenizer, "m");
    const auto         read = [&](double val) {
        return read_chat_set(list_text_files({dir / "c.jsonl"}), chat_template, tokenizer, val);
    };
    const ChatSet set = read(0.2);
    CHECK(set.train.size() + set.val.size() == 200);
    CHECK(set.val.size() > 20);
    CHECK(set.val.size() < 60);
    CHECK(read(0.2).digest == set.digest);
    CHECK(read(0.0).val.empty());
    CHECK(read(0.0).first.messages[0].content == "q0");
    write_text(dir / "c.jsonl", lines + "{\"prompt\":\"q\",\"completion\":\"aa\"}\n");
    const ChatSet more = read(0.2);
    CHECK(more.digest != set.digest);
    CHECK(more.train.size() + more.val.size() == 201);
    CHECK(more.val.size() - set.val.size() <= 1);
}

TEST_CASE("special_tokens_have_a_loss_but_no_bytes") {
    Batch          batch{.n_samples = 1, .labels = {'a', 'b', 256, -1}};
    const TextLoss sum = text_loss(std::log(2.0), {batch, batch}, bytes());
    CHECK(sum.n_tokens == 6);
    CHECK(sum.n_bytes == 4);
    CHECK(sum.perplexity() == Approx(2.0));
    CHECK(sum.bits_per_byte() == Approx(1.5));
}
