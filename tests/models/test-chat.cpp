// Chats: which tokens count, in the templates of well-known models; what a reader of chats says about bad input.
#include "ggml-train/base/json.h"
#include "models/text/chat-tokens.h"
#include "tests/catch.h"
#include "tests/scratch.h"

#include <algorithm>
#include <filesystem>

using namespace gt;

namespace {

const std::string kTemplates = std::string(GT_LLAMA_CPP_DIR) + "/models/templates/";

const std::string kChatml =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' "
    "}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Mistral 7B Instruct v0.2
const std::string kMistral =
    "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% if m['role'] == "
    "'user' %}"
    "{{ '[INST] ' + m['content'] + ' [/INST]' }}{% elif m['role'] == 'assistant' %}"
    "{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}";

// A vocabulary and a template. names: texts that replace those of the vocabulary's last tokens.
struct Speaker {
    Speaker(
        const std::string &              vocab,
        const std::string &              text,
        const std::vector<std::string> & names = {},
        const std::string &              model = ""
    )
        : keys(find_vocabulary(vocab)) {
        gguf_set_val_str(keys.get(), "general.name", model.c_str());
        const int64_t            at = gguf_find_key(keys.get(), "tokenizer.ggml.tokens");
        const int64_t            n  = static_cast<int64_t>(gguf_get_arr_n(keys.get(), at));
        std::vector<std::string> tokens;
        std::vector<int32_t>     types(static_cast<size_t>(n), 1);
        for (int64_t i = 0; i < n; ++i) {
            tokens.emplace_back(gguf_get_arr_str(keys.get(), at, static_cast<size_t>(i)));
        }
        if (const int64_t t = gguf_find_key(keys.get(), "tokenizer.ggml.token_type"); t >= 0) {
            const auto * old = static_cast<const int32_t *>(gguf_get_arr_data(keys.get(), t));
            types.assign(old, old + n);
        }
        for (size_t i = 0; i < names.size(); ++i) {
            tokens[tokens.size() - 1 - i] = names[i];
            types[types.size() - 1 - i]   = 3;                                        // control
            gguf_set_val_bool(keys.get(), "tokenizer.ggml.add_space_prefix", false);  // as Gemma's
        }
        std::vector<const char *> pointers;
        for (const std::string & token : tokens) {
            pointers.push_back(token.c_str());
        }
        gguf_set_arr_str(keys.get(), "tokenizer.ggml.tokens", pointers.data(), pointers.size());
        gguf_set_arr_data(
            keys.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size()
        );
        gguf_set_val_str(keys.get(), "tokenizer.chat_template", text.c_str());
        tokenizer     = std::make_unique<Tokenizer>(keys.get(), vocab);
        chat_template = std::make_unique<ChatTemplate>(keys.get(), *tokenizer, vocab);
    }

    ChatTokens encode(const Chat & chat) const {
        return encode_chat(chat, *chat_template, *tokenizer);
    }
    std::string marked(const Chat & chat) const {
        return marked_text(encode(chat), *tokenizer, "[[", "]]");
    }
    // The tokens that count, with / between them.
    std::string counted(const Chat & chat) const {
        const ChatTokens encoded = encode(chat);
        std::string      text;
        for (size_t i = 0; i < encoded.tokens.size(); ++i) {
            if (encoded.counts[i]) {
                text += (text.empty() ? "" : "/") + tokenizer->piece(encoded.tokens[i]);
            }
        }
        return text;
    }

    gguf_context_ptr              keys;
    std::unique_ptr<Tokenizer>    tokenizer;
    std::unique_ptr<ChatTemplate> chat_template;
};

Speaker chatml() {
    return Speaker("qwen2", kChatml);
}
Speaker llama3() {
    return Speaker("llama-bpe", read_text(kTemplates + "meta-llama-Llama-3.2-3B-Instruct.jinja"));
}
Speaker mistral() {
    return Speaker("llama-spm", kMistral);
}
Speaker gemma() {
    return Speaker(
        "llama-spm", read_text(kTemplates + "google-gemma-2-2b-it.jinja"),
        {"<end_of_turn>", "<start_of_turn>"}
    );
}

const Chat kOne{{{"user", "Hi"}, {"assistant", "Hello there!"}}, "one"};
const Chat kSystem{
    {{"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Hello there!"}}, "system"};
const Chat kTwo{
    {{"user", "Hi"}, {"assistant", "Hello there!"}, {"user", "Bye"}, {"assistant", "See\nyou."}},
    "two"};
const Chat kOpen{{{"user", "Hi"}, {"assistant", "Hello there!"}, {"user", "Bye"}}, "open"};

}  // namespace

TEST_CASE("the_assistants_tokens_count_with_the_end_of_the_turn_in_every_template") {
    struct Row {
        std::string name;
        Speaker     speaker;
        std::string one, system, two, open;  // the tokens that count
        std::string text;                    // of `two`
    };
    std::vector<Row> rows;
    rows.push_back({
        "chatml",
        chatml(),
        "Hello/ there/!/<|im_end|>",
        "Hello/ there/!/<|im_end|>",
        "Hello/ there/!/<|im_end|>/See/\n/you/./<|im_end|>",
        "Hello/ there/!/<|im_end|>",
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Hello there!<|im_end|>]]\n"
        "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n[[See\nyou.<|im_end|>]]",
    });
    rows.push_back({
        "llama 3",
        llama3(),
        "Hello/ there/!/<|eot_id|>",
        "Hello/ there/!/<|eot_id|>",
        "Hello/ there/!/<|eot_id|>/See/\n/you/./<|eot_id|>",
        "Hello/ there/!/<|eot_id|>",
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
        "December "
        "2023\nToday Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi"
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n[[Hello there!<|eot_id|>]]"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[[See\nyou.<|eot_id|>]]",
    });
    rows.push_back({
        "mistral",
        mistral(),
        " Hello/ there/!/</s>",
        " Hello/ there/!/</s>",
        " Hello/ there/!/</s>/ See/\n/you/./</s>",
        " Hello/ there/!/</s>",
        "<s> [INST] Hi [/INST][[ Hello there!</s>]] [INST] Bye [/INST][[ See\nyou.</s>]]",
    });
    rows.push_back({
        "gemma",
        gemma(),
        "Hello/ there/!/<end_of_turn>",
        "Hello/ there/!/<end_of_turn>",
        "Hello/ there/!/<end_of_turn>/See/\n/you/./<end_of_turn>",
        "Hello/ there/!/<end_of_turn>",
        "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
        "[[Hello there!<end_of_turn>]]\n<start_of_turn>user\nBye<end_of_turn>\n"
        "<start_of_turn>model\n[[See\nyou.<end_of_turn>]]",
    });
    for (const Row & row : rows) {
        INFO(row.name);
        CHECK(row.speaker.counted(kOne) == row.one);
        CHECK(row.speaker.counted(kSystem) == row.system);
        CHECK(row.speaker.counted(kTwo) == row.two);
        CHECK(row.speaker.counted(kOpen) == row.open);
        CHECK(row.speaker.marked(kTwo) == row.text);
        // a system prompt is in the text, also where the template has no place for it
        CHECK_THAT(row.speaker.marked(kSystem), ContainsSubstring("Be brief."));
    }
}

TEST_CASE("a_thinking_models_turn_counts_from_its_prompt") {
    // Qwen 3 writes an empty thought before the last reply, and no thought before earlier ones
    const Speaker     qwen("qwen2", read_text(kTemplates + "Qwen-Qwen3-0.6B.jinja"));
    const std::string text = qwen.marked(kTwo);
    CHECK_THAT(text, ContainsSubstring("<|im_start|>assistant\n[[Hello there!<|im_end|>]]"));
    CHECK_THAT(
        text,
        ContainsSubstring("<|im_start|>assistant\n[[<think>\n\n</think>\n\nSee\nyou.<|im_end|>]]")
    );
    // thoughts of the data are cut out of earlier turns
    Chat thought                = kTwo;
    thought.messages[1].content = "<think>\nA greeting.\n</think>\n\nHello there!";
    CHECK_THAT(
        qwen.marked(thought), ContainsSubstring("<|im_start|>assistant\n[[Hello there!<|im_end|>]]")
    );
}

TEST_CASE("a_template_without_end_of_turn_ends_the_text_instead") {
    const Speaker plain(
        "llama-spm", "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
                     "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
    );
    CHECK(
        plain.marked(kTwo) == "<s> user: Hi\nassistant:[[ Hello there!]]\nuser: Bye\nassistant:[[ "
                              "See\nyou.]]\n[[</s>]]"
    );
}

// The names of their special tokens are plain text in this vocabulary: where a turn ends is not looked at.
TEST_CASE("what_the_assistant_says_counts_in_every_template_of_llama_cpp") {
    const gguf_context_ptr keys = find_vocabulary("llama-bpe");
    const Tokenizer        tokenizer(keys.get(), "llama-bpe");
    int                    n_read = 0, n_both = 0;
    for (const auto & entry : std::filesystem::directory_iterator(kTemplates)) {
        if (entry.path().extension() != ".jinja") {
            continue;
        }
        const std::string name = entry.path().stem().string();
        gguf_set_val_str(keys.get(), "tokenizer.chat_template", read_text(entry.path()).c_str());
        const ChatTemplate chat_template(keys.get(), tokenizer, name);
        const auto         counted = [&](const Chat & chat) {
            const ChatTokens encoded = encode_chat(chat, chat_template, tokenizer);
            std::string      text;
            for (size_t i = 0; i < encoded.tokens.size(); ++i) {
                text += encoded.counts[i] ? tokenizer.piece(encoded.tokens[i]) : "";
            }
            return text;
        };
        INFO(name);
        CHECK_THAT(counted(kOne), ContainsSubstring("Hello there!") && !ContainsSubstring("Hi"));
        CHECK_THAT(
            counted(kSystem), ContainsSubstring("Hello there!") && !ContainsSubstring("brief")
        );
        const std::string two = counted(kTwo);
        CHECK_THAT(two, ContainsSubstring("See\nyou.") && !ContainsSubstring("Bye"));
        n_both += two.find("Hello there!") != std::string::npos;
        ++n_read;
    }
    CHECK(n_read > 50);
    CHECK(n_both >= n_read - 1);  // Nemotron 3 Nano rewrites earlier turns
}

// Phi-3's special tokens take the blanks behind them; libllama knows it by the name of the model.
TEST_CASE("chats_of_phi_3_have_llama_cpps_tokens") {
    const Speaker phi(
        "phi-3", read_text(kTemplates + "microsoft-Phi-3.5-mini-instruct.jinja"), {}, "Phi-3 mini"
    );
    CHECK(
        phi.marked(kTwo) == "<s><|user|> Hi<|end|><|assistant|>[[ Hello there!<|end|>]]<|user|> Bye"
                            "<|end|><|assistant|>[[ See\nyou.<|end|>]]"
    );
}

TEST_CASE("a_template_whose_end_of_turn_is_no_token_is_noticed") {
    CHECK(chatml().encode(kTwo).stops);
    CHECK(Speaker("llama-spm", "{% for m in messages %}{{ m.content }}{% endfor %}")
              .encode(kOne)
              .stops);
    CHECK_FALSE(Speaker("llama-bpe", kChatml).encode(kTwo).stops
    );  // <|im_end|> is plain text there
}

// The token that ends its text is written as the vocabulary spells it.
TEST_CASE("a_model_of_bytes_can_chat") {
    const Speaker bytes(
        "bytes", "{% for m in messages %}{{ m.role + ':' + m.content }}\\x~{% endfor %}"
                 "{% if add_generation_prompt %}assistant:{% endif %}"
    );
    CHECK(bytes.marked(kOne) == "user:Hi\\x~assistant:[[Hello there!\\x~]]");
    CHECK(bytes.encode(kOne).tokens[7] == 256);
    CHECK(bytes.encode(kOne).tokens.back() == 256);
}

TEST_CASE("every_form_of_chat_is_read") {
    const Scratch                              dir;
    const std::string                          pair    = "user:Hi|assistant:Hello|";
    const std::pair<const char *, std::string> lines[] = {
        {R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}]})",
         pair},
        {R"({"id":7,"conversations":[{"from":"human","value":"Hi"},{"from":"gpt","value":"Hello"}]})",
         pair},
        {R"({"conversations":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}]})",
         pair},
        {R"({"instruction":"Hi","input":"","output":"Hello"})", pair},
        {R"({"instruction":"Greet","input":"Ann","output":"Hello"})",
         "user:Greet\n\nAnn|assistant:Hello|"},
        {R"({"system":"S","prompt":"Hi","completion":"Hello"})", "system:S|" + pair},
        {R"({"messages":[{"role":"developer","content":"S"},{"role":"user","content":"é\u00e9"},{"role":"model","content":"\ud83d\ude00"}]})",
         "system:S|user:éé|assistant:😀|"},
    };
    for (const auto & [line, expected] : lines) {
        write_text(dir / "chats.jsonl", "\n" + std::string(line) + "\r\n\n" + line);
        const auto files = list_text_files({dir / "chats.jsonl"});
        CHECK(are_chats(files, "text"));
        const std::vector<Chat> chats = read_chats(files);
        REQUIRE(chats.size() == 2);
        std::string found;
        for (const ChatMessage & message : chats[1].messages) {
            found += message.role + ":" + message.content + "|";
        }
        CHECK(found == expected);
        CHECK(chats[1].where == dir / "chats.jsonl:4");
    }
    // text, and a field that was asked for
    write_text(dir / "text.jsonl", R"({"text":"a","prompt":"b","completion":"c"})");
    CHECK_FALSE(are_chats(list_text_files({dir / "text.jsonl"}), "text"));
    CHECK_FALSE(are_chats(list_text_files({dir / "text.jsonl"}), "prompt"));
    CHECK(are_chats(list_text_files({dir / "text.jsonl"}), "body"));
}

TEST_CASE("bad_chats_are_named_with_place_and_remedy") {
    const Scratch                               dir;
    const std::string                           good    = R"({"prompt":"Hi","completion":"Hello"})"
                                                          "\n";
    const std::pair<const char *, const char *> lines[] = {
        {R"({"prompt":"Hi","compl)",
         ":7: is not a JSON object, or is cut off; repair or remove the line"},
        {R"([1, 2])", ":7: is not a JSON object"},
        {R"({"messages":[{"role":"user","content":"Hi"}]})",
         ":7: has no assistant turn, so there is nothing to learn; add one, or remove the line"},
        {R"({"messages":[]})", ":7: has no assistant turn"},
        {R"({"messages":[{"role":"narrator","content":"Hi"}]})",
         ":7: role \"narrator\" is unknown; rename it to one of system, developer, user, human, "
         "assistant, gpt, bot, model"},
        {R"({"messages":[{"role":"user","content":["Hi"]}]})",
         ":7: messages[0] needs text in \"role\" and \"content\""},
        {R"({"question":"Hi"})", ":7: is not a chat; expected the fields messages, conversations, "
                                 "instruction and output, or prompt and completion"},
    };
    for (const auto & [line, expected] : lines) {
        write_text(dir / "c.jsonl", good + good + good + "\n" + good + good + line + "\n" + good);
        const auto read = [&] { read_chats(list_text_files({dir / "c.jsonl"})); };
        CHECK_THAT(error_of(read), ContainsSubstring(dir / "c.jsonl" + expected));
    }
    write_text(dir / "c.jsonl", good);
    write_text(dir / "t.txt", "text");
    const auto mixed = [&] { read_chats(list_text_files({dir / "c.jsonl", dir / "t.txt"})); };
    CHECK_THAT(
        error_of(mixed),
        ContainsSubstring("t.txt is not .jsonl, but " + (dir / "c.jsonl") + " has chats")
    );
}

TEST_CASE("a_template_that_is_missing_or_refuses_says_so") {
    const gguf_context_ptr keys = find_vocabulary("llama-spm");
    const Tokenizer        tokenizer(keys.get(), "m.gguf");
    CHECK_THAT(
        error_of([&] { ChatTemplate(keys.get(), tokenizer, "m.gguf"); }),
        ContainsSubstring(
            "m.gguf: has no chat template (tokenizer.chat_template); take the model's instruct "
            "version, or add one: new-model --from m.gguf --chat-template FILE"
        )
    );
    gguf_set_val_str(keys.get(), "tokenizer.chat_template", "{% for %}");
    CHECK_THAT(
        error_of([&] { ChatTemplate(keys.get(), tokenizer, "m.gguf"); }),
        ContainsSubstring("m.gguf: llama.cpp cannot read its chat template")
    );
    const Chat twice{{{"user", "a"}, {"user", "b"}, {"assistant", "c"}}, "c.jsonl:3"};
    CHECK_THAT(
        error_of([&] { mistral().encode(twice); }),
        ContainsSubstring("c.jsonl:3: the model's chat template refuses this chat") &&
            ContainsSubstring("roles must alternate")
    );
}

// Whatever a line holds, it is read as it was written, or refused with its place.
TEST_CASE("cut_and_odd_lines_never_pass_as_other_chats") {
    const Speaker            speaker = chatml();
    std::vector<std::string> pieces  = {
         "",
         " ",
         "\n",
         "\t",
         "\r\n",
         "\"",
         "\\",
         "<|im_end|>",
         "<|im_start|>assistant\n",
         "é",
         "e\u0301",
         "\u200d",
         "👩‍👩‍👧",
         "\u202e",
         "日本語",
         "\x7f",
         "</s>",
         "{{ x }}",
         "\x01"};
    int n_read = 0;
    for (uint64_t i = 0; i < 300; ++i) {
        const auto random_text = [&](uint64_t which) {
            std::string text;
            for (uint64_t k = 0; k < random_bits(1, i, which) % 6; ++k) {
                text += pieces[random_bits(2, i, which, k) % pieces.size()];
            }
            return text;
        };
        const std::string ask = random_text(1), reply = random_text(2);
        const Json        json = Json::object().set("prompt", ask).set("completion", reply);
        std::string       line = json.text();
        const Chat        chat = parse_chat(line, "f:1");
        CHECK(chat.messages[0].content == ask);
        CHECK(chat.messages[1].content == reply);

        // what counts is the reply and the end of the turn
        const ChatTokens encoded = speaker.encode(chat);
        std::string      counted;
        for (size_t k = 0; k < encoded.tokens.size(); ++k) {
            counted += encoded.counts[k] ? speaker.tokenizer->piece(encoded.tokens[k]) : "";
        }
        INFO(line);
        CHECK(counted.ends_with(reply + "<|im_end|>"));
        CHECK(counted.size() <= reply.size() + 11);  // a line break before it may share a token

        // every cut is an error
        const size_t at = random_bits(3, i) % line.size();
        CHECK_THAT(
            error_of([&] { parse_chat(line.substr(0, at), "f:1"); }),
            ContainsSubstring("f:1: is not a JSON object")
        );
        // any other byte: refused, or a chat
        line[random_bits(4, i) % line.size()] = static_cast<char>(random_bits(5, i));
        const std::string error = error_of([&] { speaker.encode(parse_chat(line, "f:1")); });
        n_read += error.empty();
        CHECK((error.empty() || error.starts_with("f:1: ")));
    }
    CHECK(n_read > 30);
}
