#!/usr/bin/env bash
# Models made by other programs: unusual files train as the plain one does, or are refused with a reason, whole
# and with an adapter.   usage: e2e-others.sh BIN_DIR WORK_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/gguf-venv.inc.sh" "$2"
source "$here/e2e.inc.sh" e2e-others "$1" "$2"
odd() { "$python_gguf" "$here/odd_gguf.py" "$@" 2>python.txt || { cat python.txt; fail "odd_gguf.py failed"; }; }
tiny llama source.gguf --context 128
odd source.gguf .
tiny gemma3 gemma3.gguf --layers 4 --context 128
odd gemma3.gguf . runs/windows-per-layer uneven-windows

# libllama's tokens and logits, whole and with an adapter
GT_MODELS=runs "$bin/logits-tests" "[others]" >logits.txt 2>&1 || { cat logits.txt; fail "other logits than libllama's"; }
[ "$(grep -c "logits differ by" logits.txt)" = 11 ] || { cat logits.txt; fail "not all files were compared"; }

# first_loss MODEL FLAG...: of a step that changes nothing
first_loss() {
    local model=$1
    shift
    rm -rf run
    train -m "$model.gguf" text.txt --steps 1 --lr 1e-30 --val-fraction 0 --sample-tokens 1 --out run --export x.gguf "$@" >out.txt 2>&1 ||
        { cat out.txt; fail "$model.gguf $*: did not train"; }
    losses run | awk 'NR == 2 { print $3 }'
}
want=$(first_loss runs/plain)
for lora in "" "--lora 2"; do
    # weights of mixed-types are rounded
    for model in wide-keys padded runs/mixed-types; do
        got=$(first_loss "$model" $lora)
        awk -v got="$got" -v want="$want" 'BEGIN { d = got - want; exit !(d < 2e-4 && d > -2e-4) }' ||
            fail "$model.gguf $lora: loss $got, of the plain model $want"
    done
    refused() { expect 1 "$2" train -m "$1.gguf" text.txt --steps 1 --out refused $lora; }
    refused other-biases "other-biases.gguf: tensor blk.1.attn_q.bias is not part of a llama model as we train it"
    refused scales "scales.gguf: tensor blk.0.attn_q.scale is not part of a llama model as we train it"
    refused other-values "other-values.gguf: this llama model has values of another size than keys, which we do not train"
    refused unequal-layers "llama.attention.head_count_kv differs between layers; we train models of equal layers"
    refused uneven-windows "this gemma3 model has windows of attention in an order without a period, which we do not train"
    refused experts "experts.gguf: this llama model has experts, which we do not train"
    refused split "split.gguf: is one file of a split model; join them with llama-gguf-split --merge"
done
# a run describes its model to other hosts without the tensors
tiny qwen2 runs/qwen2.gguf
for model in biases fused qwen2; do
    "$bin/hub" --new --nodes "$model.txt" --name anna --store "file://$work/$model-store" >/dev/null
    train -m runs/$model.gguf text.txt --nodes $model.txt --name anna --steps 2 --out host --export host.gguf --fresh >out.txt 2>&1 ||
        { cat out.txt; fail "$model.gguf: no run with other hosts"; }
    expect 0 "" "$bin/export" --nodes $model.txt -o fetched.gguf --force
    cmp fetched.gguf host.gguf || fail "$model.gguf: another model was fetched from the run"
    rm host.gguf
done
# norms in F16: llama.cpp cannot run the file; a whole model is trained from it, an adapter after a conversion
[ "$(first_loss half-norms)" = "$want" ] || fail "half-norms.gguf: loss $(first_loss half-norms), of the plain model $want"
reason="half-norms.gguf: tensor blk.0.attn_norm.weight is f16, and llama.cpp runs norms and biases in F32 only; convert the file with export half-norms.gguf"
expect 1 "$reason" train -m half-norms.gguf text.txt --steps 1 --out refused --lora 2
expect 1 "$reason" "$bin/evaluate" -m half-norms.gguf text.txt
expect 1 "$reason" "$bin/generate" -m half-norms.gguf -p the
"$bin/export" half-norms.gguf --type f16 -o converted.gguf >/dev/null
first_loss converted --lora 2 >/dev/null
echo "e2e-others: passed"
