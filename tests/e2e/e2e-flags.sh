#!/usr/bin/env bash
# What every program says about its flags: help that fits a screen, ranges of all numbers, pages for man,
# completion in a real shell.   usage: e2e-flags.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-flags "$1" "$2"
for verb in $("$bin/ggml-train" | awk '/^  / { print $1 }'); do
    "$bin/$verb" --help >help.txt
    "$bin/$verb" --help all >all.txt
    [ "$(wc -L <help.txt)" -le 80 ] && [ "$(wc -L <all.txt)" -le 80 ] || fail "$verb --help is wider than 80 columns"
    [ "$(wc -l <help.txt)" -le 48 ] || { cat help.txt; fail "$verb --help has $(wc -l <help.txt) lines"; }
    # every number: none takes -7 or nan
    for flag in $(grep -oE '^  +(-[a-z]+, )?--[a-z0-9-]+ N( |$)' all.txt | grep -oE -- '--[a-z0-9-]+'); do
        expect 2 "$flag -7: expected" "$bin/$verb" "$flag" -7
        expect 2 "$flag nan: expected" "$bin/$verb" "$flag" nan
    done
    # a page without a complaint, with every flag in it
    page=$bin/../share/man/man1/ggml-train-$verb.1
    [ -f "$page" ] || page=$bin/../share/man/man1/$verb.1
    MANWIDTH=100 man --warnings -l "$page" >page.txt 2>warnings.txt || fail "man -l $page"
    [ ! -s warnings.txt ] || { cat warnings.txt; fail "man complains about $page"; }
    for flag in $(grep -oE '^  +(-[a-z]+, )?--[a-z0-9-]+' all.txt | grep -oE -- '--[a-z0-9-]+'); do
        [ "$flag" = --help ] || [ "$flag" = --version ] || grep -q -- "$flag" page.txt || fail "the page of $verb lacks $flag"
    done
done
man --warnings -l "$bin/../share/man/man1/ggml-train.1" 2>&1 | grep -q "train-gpt" || fail "the page of ggml-train"

# the list of presets and vocabularies, with their sizes
"$bin/new-model" --list >list.txt
[ "$(wc -L <list.txt)" -le 80 ] || { cat list.txt; fail "new-model --list is wider than 80 columns"; }
grep -qE '^  gpt2-124m +124M  gpt2, 12 x 768, context 1024; ' list.txt && grep -qE '  gpt-2 +50257' list.txt || { cat list.txt; fail "new-model --list"; }

# pictures have no tokens
! "$bin/train-vit" --help all | grep -iE 'token' || fail "train-vit --help speaks of tokens"
# flags of llama.cpp, and one that others use for a rate
expect 2 "--min-lr: the final learning rate is given as a fraction of --lr: --min-lr-ratio" "$bin/train-gpt" --min-lr 1e-5
for program in train-gpt train-vit; do
    expect 2 "with --batch" "$bin/$program" -b 512
    expect 2 "with --micro" "$bin/$program" -ub 512
    expect 0 "cpu:0" "$bin/$program" --list-devices
done

# Tab in a shell: flags, values, programs, files
python3 - "$bin" <<'PY'
import os, pty, select, sys, time
bin_dir = sys.argv[1]
open("picture-of-anna.txt", "w").close()


def complete(shell, setup):
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(PS1="$ ", TERM="dumb", PATH=bin_dir + ":" + os.environ["PATH"])
        os.execvp(shell[0], shell)

    def talk(text, expected, seconds=60):
        os.write(fd, text.encode())
        got, end = "", time.time() + seconds
        while expected not in got:
            if time.time() > end:
                sys.exit(f"e2e-flags: {shell[0]}: {text!r}: expected {expected!r}, got {got!r}")
            if select.select([fd], [], [], 0.2)[0]:
                got += os.read(fd, 4096).decode()
        os.write(fd, b"\x15")  # clears the line

    talk(setup + "; echo re''ady\n", "ready")
    talk("train-gpt --reco\t", "train-gpt --recompute ")
    talk("train-gpt --shard opt\t", "--shard optimizer ")
    talk("ggml-train prep\t", "ggml-train prepare-data ")
    talk("ggml-train hub --inv\t", "hub --invite ")
    talk("train-gpt -m picture-o\t", "picture-of-anna.txt ")
    os.close(fd)


share = bin_dir + "/../share"
complete(["bash", "--norc", "--noprofile", "-i"], f"source {share}/bash-completion/completions/ggml-train")
complete(["zsh", "-f", "-i"], f"fpath=({share}/zsh/site-functions $fpath); autoload -U compinit; compinit -u -D")
PY
echo "e2e-flags: passed"
