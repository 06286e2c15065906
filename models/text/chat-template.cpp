#include "models/text/chat-template.h"

#include "ggml-train/gguf/gguf-read.h"

#include <jinja/caps.h>
#include <jinja/lexer.h>
#include <jinja/parser.h>
#include <jinja/runtime.h>

namespace gt {

static constexpr const char * kKey = "tokenizer.chat_template";

struct ChatTemplate::Impl {
    std::string    source;
    jinja::program program;
    bool           takes_system = true;
};

bool has_chat_template(const gguf_context * keys) {
    const int64_t at = gguf_find_key(keys, kKey);
    return at >= 0 && gguf_get_kv_type(keys, at) == GGUF_TYPE_STRING;
}

ChatTemplate::ChatTemplate(
    const gguf_context * keys, const Tokenizer & tokenizer, const std::string & where
)
    : tokenizer_(tokenizer), impl_(std::make_unique<Impl>()) {
    if (!has_chat_template(keys)) {
        throw Error(
            where + ": has no chat template (" + kKey +
            "); take the model's instruct version, or "
            "add one: new-model --from " +
            where + " --chat-template FILE -o OUT"
        );
    }
    try {
        jinja::lexer lexer;
        impl_->program = jinja::parse_from_tokens(
            lexer.tokenize(gguf_get_val_str(keys, gguf_find_key(keys, kKey)))
        );
        impl_->source       = gguf_get_val_str(keys, gguf_find_key(keys, kKey));
        impl_->takes_system = jinja::caps_get(impl_->program).supports_system_role;
    } catch (const std::exception & error) {
        throw Error(where + ": llama.cpp cannot read its chat template: " + error.what());
    }
}

ChatTemplate::~ChatTemplate() = default;

// As llama.cpp does for templates without system prompts: it is put before the next message.
static std::vector<ChatMessage> without_system(std::vector<ChatMessage> messages) {
    if (messages.size() > 1 && messages[0].role == "system") {
        messages[1].content = messages[0].content + "\n" + messages[1].content;
        messages.erase(messages.begin());
    }
    return messages;
}

ChatTemplate::Text ChatTemplate::run(const Chat & chat, int marked, bool prompt) const {
    std::vector<ChatMessage> messages = chat.messages;
    if (!impl_->takes_system && !messages.empty() && messages[0].role == "system") {
        messages = without_system(std::move(messages));
        --marked;
    }
    auto list = jinja::mk_val<jinja::value_array>();
    for (size_t i = 0; i < messages.size(); ++i) {
        auto message = jinja::mk_val<jinja::value_object>();
        auto content = jinja::mk_val<jinja::value_string>(messages[i].content);
        if (static_cast<int>(i) == marked) {
            content->mark_input();
        }
        message->insert("role", jinja::mk_val<jinja::value_string>(messages[i].role));
        message->insert("content", content);
        list->push_back(message);
    }
    const auto text_of = [&](int32_t token) {
        return jinja::mk_val<jinja::value_string>(token < 0 ? "" : tokenizer_.piece(token));
    };
    jinja::context context(impl_->source);
    // Some templates write today's date. A run must have the same tokens tomorrow: this is the date that
    // Llama 3 assumes when it knows none, at 11:00 UTC.
    context.current_time = 1721991600;
    context.set_val("date_string", jinja::mk_val<jinja::value_string>("26 Jul 2024"));
    context.set_val("messages", list);
    context.set_val("bos_token", text_of(tokenizer_.bos()));
    context.set_val("eos_token", text_of(tokenizer_.eos()));
    context.set_val("enable_thinking", jinja::mk_val<jinja::value_bool>(true));
    context.set_val("add_generation_prompt", jinja::mk_val<jinja::value_bool>(prompt));
    jinja::value_string parts;
    try {
        parts =
            jinja::runtime::gather_string_parts(jinja::runtime(context).execute(impl_->program));
    } catch (const std::exception & error) {
        throw Error(chat.where + ": the model's chat template refuses this chat: " + error.what());
    }
    Text result;
    bool found = false;
    for (const jinja::string_part & part : parts->val_str.parts) {
        if (part.is_input && !part.val.empty()) {
            result.begin = found ? result.begin : result.text.size();
            result.end   = result.text.size() + part.val.size();
            found        = true;
        }
        result.text += part.val;
    }
    // llama.cpp adds the first token itself
    const std::string bos = tokenizer_.add_bos() ? tokenizer_.piece(tokenizer_.bos()) : "";
    if (!bos.empty() && result.text.starts_with(bos)) {
        result.text.erase(0, bos.size());
        result.begin -= found ? bos.size() : 0;
        result.end -= found ? bos.size() : 0;
    }
    return result;
}

ChatTemplate::Text ChatTemplate::render(const Chat & chat, int marked) const {
    return run(chat, marked, false);
}

std::string ChatTemplate::prompt(const Chat & chat) const {
    return run(chat, -1, true).text;
}

}  // namespace gt
