# tests/e2e/e2e.inc.sh — shared by the e2e-*.sh: `source e2e.inc.sh NAME BIN_DIR WORK_DIR` changes into an
# empty folder $work and sets $bin and $free_port; makes text.txt; defines the functions below.
name=$1
bin=$(cd "$2" && pwd)
free_port=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/free_port.py  # prints one
work=$3/$name
rm -rf "$work"
mkdir -p "$work"
work=$(cd "$work" && pwd)
cd "$work"
export XDG_CACHE_HOME="$work/cache" XDG_CONFIG_HOME="$work/config"
export VK_ICD_FILENAMES=/nowhere.json VK_DRIVER_FILES=/nowhere.json  # --device auto shall load no Vulkan driver

fail() { echo "$name: $*" >&2; exit 1; }

# expect CODE TEXT COMMAND...: checks the exit code, and that the output contains TEXT
expect() {
    local code=$1 text=$2 got=0
    shift 2
    "$@" >out.txt 2>&1 || got=$?
    [ "$got" = "$code" ] || { cat out.txt; fail "$* ended with $got, expected $code"; }
    grep -qF -- "$text" out.txt || { cat out.txt; fail "$* did not print: $text"; }
}

# tiny ARCH FILE OPTION...: makes a tiny model
tiny() {
    local arch=$1 file=$2
    shift 2
    "$bin/new-model" --arch "$arch" $(unless_given "$*" "--layers 2" "--width 32" "--heads 2" "--context 32") -o "$file" "$@" >/dev/null
}

# unless_given ARGUMENTS FLAG_AND_VALUE...: those that the arguments do not have
unless_given() {
    local given=" $1 "
    shift
    for flag in "$@"; do
        [[ $given == *" ${flag% *} "* ]] || echo "$flag"
    done
}

# train OPTION...: train-gpt, small and on one thread; start OPTION...: the same in the background, as $pid
train() { "$bin/train-gpt" $(small "$@") "$@"; }
start() {
    "$bin/train-gpt" $(small "$@") "$@" >out.txt 2>&1 &
    pid=$!
}
small() { unless_given "$*" "--threads 1" "--batch 4" "--sample-tokens 8"; }

# losses FOLDER: the columns that must be equal in two runs: step, tokens, loss, lr, norm, validation loss
losses() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i }
             { print $at["step"], $at["tokens"], $at["loss"], $at["lr"], $at["grad_norm"], $at["val_loss"] }' "$1/metrics.csv"
}

# close A B PART ROWS DIFFER: losses of B within PART of those of A, of at least ROWS steps, at least DIFFER not equal
close() {
    paste -d, "$1/metrics.csv" "$2/metrics.csv" | awk -F, -v part="$3" -v least="$4" -v other="$5" \
        -v n="$(head -1 "$1/metrics.csv" | tr , '\n' | grep -nx loss | cut -d: -f1)" '
        NR > 1 && $n != "" { a = $n; b = $(NF / 2 + n); ++rows; if (a != b) ++differ; if (b < (1 - part) * a || b > (1 + part) * a) bad = 1 }
        END { exit bad || rows < least || differ < other }'
}

# tiny_images OPTION...: vit.gguf, and 24 pictures of 3 classes to train it on, in this folder
tiny_images() {
    python3 - <<'PY'
import random, struct
random.seed(1)
for name, n in ("train", 24), ("t10k", 8):
    open(f"{name}-images-idx3-ubyte", "wb").write(struct.pack(">4I", 2051, n, 8, 8) + random.randbytes(64 * n))
    open(f"{name}-labels-idx1-ubyte", "wb").write(struct.pack(">2I", 2049, n) + bytes(i % 3 for i in range(n)))
PY
    "$bin/new-model" --arch vit --layers 3 --width 32 --heads 2 --image 8 $(unless_given "$*" "--patch 4") --channels 1 --classes 3 \
        -o vit.gguf "$@" >/dev/null
}

# wait_for_step FOLDER N PID: waits until the run has done N steps or has ended
wait_for_step() {
    while kill -0 "$3" 2>/dev/null && ! grep -q "^{\"step\":$2," "$1/metrics.jsonl" 2>/dev/null; do
        sleep 0.01
    done
}

# wait_for_lines FOLDER N PID: waits until the metrics have N lines (with other hosts a step may be missing) or it has ended
wait_for_lines() {
    while kill -0 "$3" 2>/dev/null && [ "$(cat "$1/metrics.jsonl" 2>/dev/null | wc -l)" -lt "$2" ]; do
        sleep 0.05
    done
}

# text.txt: words of different lengths, the same in every run
seed=1
for ((i = 0; i < 6000; ++i)); do
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    words=(the lord said unto moses and he went up into mount sinai "with him" "." ",")
    printf '%s ' "${words[$((seed / 65536 % 14))]}"
    ((i % 15)) || echo
done >text.txt
