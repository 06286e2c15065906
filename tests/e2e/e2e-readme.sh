#!/usr/bin/env bash
# Runs every ```sh block of every page (README.md, CONTRIBUTING.md, the READMEs of folders), in order, in an
# empty folder per page with books/, instruct.gguf and chats.jsonl in it; checks that every file and link the pages name exists.
# usage: e2e-readme.sh BIN_DIR WORK_DIR
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
source "$(dirname "$0")/e2e.inc.sh" e2e-readme "$1" "$2"
export PATH="$bin:$PATH"
pages=$(cd "$source_dir" && find README.md CONTRIBUTING.md ggml-train models optim comm tools tests -name '*.md' | sort)

# run_page PAGE FOLDER: the page's commands; 26 epochs of images and 300 steps take minutes, so 26 and 20 steps do
run_page() {
    mkdir -p "$2/books" "$2/build"
    cp text.txt "$2/books/"
    cp instruct.gguf chats.jsonl "$2/"
    ln -s "$bin" "$2/build/bin"
    {
        echo 'train-vit() { command train-vit "${@/--epochs/--steps}"; }'
        awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' "$source_dir/$1" |
            sed "s/:7077/:$("$free_port")/; s/--steps 300/--steps 20/"
    } >"$2/commands.sh"
    [ "$(wc -l <"$2/commands.sh")" -gt 1 ] || return 0
    (cd "$2" && bash -euxo pipefail commands.sh) >"$2/out.txt" 2>&1 || { tail -20 "$2/out.txt"; fail "a command of $1 failed"; }
    echo "e2e-readme: the commands of $1 work"
}

echo "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}\x~{% endfor %}" >template.jinja
tiny llama instruct.gguf --context 64 --chat-template template.jinja
for ((i = 0; i < 40; ++i)); do
    echo '{"prompt": "Where is the ant?", "completion": "Under stone '$i'."}'
done >chats.jsonl
for page in $pages; do
    run_page "$page" "${page//\//-}"
done
for made in small.gguf small-trained.gguf small-q8_0.gguf fashion-trained.gguf hosts.txt; do
    [ -s README.md/$made ] || fail "the commands of README.md did not make $made"
done
for host in ben cleo; do
    cmp README.md/anna-trained.gguf README.md/$host-trained.gguf || fail "anna and $host of README.md differ"
done
grep -q "fetching the model from the run" README.md/out.txt || fail "cleo did not take the model from the run"
! cmp -s README.md/anna-trained.gguf README.md/small-trained.gguf || fail "two hosts trained the model of one"
[ -s tools-fine-tune.md/mine-lora.gguf ] && [ -s tools-fine-tune.md/mine.gguf ] || fail "the commands of tools/fine-tune.md did not make mine-lora.gguf and mine.gguf"
[ -s tools-README.md/tiny-f16.gguf ] || fail "the commands of tools/README.md did not make tiny-f16.gguf"

# files in `code` from the top folder (a name with * is a pattern), links from the page's folder
for page in $pages; do
    while read -r file; do
        compgen -G "$source_dir/$file" >/dev/null || compgen -G "$source_dir/$(dirname "$page")/$file" >/dev/null ||
            fail "$page names $file, which does not exist"
    done < <(grep -oE '`(tools|tests|ggml-train|models|optim|comm|text|vision|wire|rounds|hub|train)/[a-z0-9./_*-]+`' "$source_dir/$page" | tr -d '`' | sort -u)
    while read -r link; do
        [ -e "$source_dir/$(dirname "$page")/$link" ] || fail "$page links to $link, which does not exist"
    done < <(grep -oE '\]\([^):#]+\)' "$source_dir/$page" | sed 's/^](//; s/)$//' | sort -u)
done
for program in "$bin"/{new-model,prepare-data,train-gpt,train-vit,generate,evaluate,classify,export,hub,plan,selftest}; do
    "$program" --help >/dev/null || fail "$program --help"
done
echo "e2e-readme: passed"
