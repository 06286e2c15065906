#include "models/text/chat-source.h"

#include "ggml-train/base/json.h"

#include <algorithm>
#include <array>

namespace gt {

namespace {

// The field names of a form with a list of messages.
struct ListForm {
    const char * list;
    const char * role;
    const char * content;
};
constexpr ListForm kLists[] = {
    {"messages", "role", "content"},
    {"conversations", "from", "value"},
    {"conversations", "role", "content"},
};

// The field names of a form with one question.
struct PairForm {
    const char * question;
    const char * more;  // follows the question, or null
    const char * answer;
};
constexpr PairForm kPairs[] = {
    {"instruction", "input", "output"},
    {"prompt", nullptr, "completion"},
};

constexpr const char * kForms =
    "messages, conversations, instruction and output, or prompt and completion";

std::string known_role(const std::string & role, const std::string & where) {
    struct Role {
        const char * name;
        const char * as;
    };
    constexpr Role kRoles[] = {{"system", "system"},       {"developer", "system"},
                               {"user", "user"},           {"human", "user"},
                               {"assistant", "assistant"}, {"gpt", "assistant"},
                               {"bot", "assistant"},       {"model", "assistant"}};
    const auto *   found = std::find_if(std::begin(kRoles), std::end(kRoles), [&](const Role & r) {
        return role == r.name;
    });
    if (found == std::end(kRoles)) {
        std::string names;
        for (const Role & known : kRoles) {
            names += (names.empty() ? "" : ", ") + std::string(known.name);
        }
        throw Error(where + ": role \"" + role + "\" is unknown; rename it to one of " + names);
    }
    return found->as;
}

void read_list(
    const std::vector<Json> & items, const ListForm & form, const std::string & where, Chat & chat
) {
    for (size_t i = 0; i < items.size(); ++i) {
        const auto role = items[i].string(form.role), content = items[i].string(form.content);
        if (!role || !content) {
            throw Error(
                where + format(
                            ": %s[%zu] needs text in \"%s\" and \"%s\"", form.list, i, form.role,
                            form.content
                        )
            );
        }
        chat.messages.push_back({known_role(*role, where), *content});
    }
}

// Null if the object has no list of messages, or its messages have other fields.
const ListForm * find_list(const Json & json) {
    for (const ListForm & form : kLists) {
        const auto items = json.array(form.list);
        if (items && (items->empty() || (*items)[0].string(form.role))) {
            return &form;
        }
    }
    return nullptr;
}

const PairForm * find_pair(const Json & json) {
    for (const PairForm & form : kPairs) {
        if (json.string(form.question) && json.string(form.answer)) {
            return &form;
        }
    }
    return nullptr;
}

}  // namespace

Chat parse_chat(const std::string & line, const std::string & where) {
    const auto json = Json::parse(line);
    if (!json || !json->is_object()) {
        throw Error(
            where + ": is not a JSON object, or is cut off; repair or remove the line (every line "
                    "is one chat)"
        );
    }
    Chat chat{.where = where};
    if (const ListForm * form = find_list(*json)) {
        read_list(*json->array(form->list), *form, where, chat);
    } else if (const PairForm * pair = find_pair(*json)) {
        const std::string more = pair->more ? json->string(pair->more).value_or("") : "";
        const std::string ask  = *json->string(pair->question);
        if (const auto system = json->string("system"); system && !system->empty()) {
            chat.messages.push_back({"system", *system});
        }
        chat.messages.push_back({"user", more.empty() ? ask : ask + "\n\n" + more});
        chat.messages.push_back({"assistant", *json->string(pair->answer)});
    } else {
        throw Error(where + ": is not a chat; expected the fields " + kForms);
    }
    const auto replies = [](const ChatMessage & m) { return m.role == "assistant"; };
    if (std::none_of(chat.messages.begin(), chat.messages.end(), replies)) {
        throw Error(
            where + ": has no assistant turn, so there is nothing to learn; add one, or remove the "
                    "line"
        );
    }
    return chat;
}

// A reader of whole lines.
static TextReader line_reader(const std::vector<TextFile> & files) {
    return TextReader(files, "", 0.0);
}

bool are_chats(const std::vector<TextFile> & files, const std::string & field) {
    if (files.empty() || !files[0].is_jsonl) {
        return false;
    }
    TextReader reader = line_reader({files[0]});
    TextPart   part;
    const auto json = reader.next(part) ? Json::parse(part.text) : std::nullopt;
    return json && !json->string(field) && (find_list(*json) || find_pair(*json));
}

std::vector<Chat> read_chats(const std::vector<TextFile> & files) {
    for (const TextFile & file : files) {
        if (!file.is_jsonl) {
            throw Error(
                file.path + " is not .jsonl, but " + files[0].path +
                " has chats; train on text and chats one after the other"
            );
        }
    }
    TextReader        reader = line_reader(files);
    std::vector<Chat> chats;
    TextPart          part;
    std::string       line;
    while (reader.next(part)) {
        line = part.begins ? part.text : line + part.text;
        if (part.ends) {
            chats.push_back(parse_chat(line, reader.where()));
        }
    }
    return chats;
}

}  // namespace gt
