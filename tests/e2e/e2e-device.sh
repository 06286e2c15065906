#!/usr/bin/env bash
# The trainer on fake devices: emulated kernels, separate memory, a stand-in for NCCL. With ggml's ops
# (--portable) the results equal those of the CPU bit for bit; with our kernels losses agree to rounding
# and runs are reproducible. Also ViT, a CPU host in the same run, resuming, out of memory, half precision.   usage: e2e-device.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-device "$1" "$2"
tiny gpt2 s.gguf
export GT_NCCL_LIB=$bin/libgt-fake-nccl.so
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
run="-m s.gguf --data text.txt --eval-batches 1 --micro 2 --steps 3 --log-every 1 --save-every 1"
demo="$run --replicator demo"
smooth="$run --replicator none --rule adamw"  # takes no signs of noise

# a training step, timed
expect 0 "tokens/s): all right" "$bin/selftest" --device fake

# two devices over NCCL, ggml's ops: losses and weights of two CPU ranks
train $demo --ranks 2 --portable --out cpu --export cpu.gguf >out.txt 2>&1 || { cat out.txt; fail "CPU ranks failed"; }
train $demo --device fake:0,fake:1 --portable --out fake --export fake.gguf >out.txt 2>&1 || { cat out.txt; fail "two devices failed"; }
cmp cpu.gguf fake.gguf || fail "two devices and two CPU ranks end with different weights"
diff <(losses cpu) <(losses fake) || fail "two devices and two CPU ranks have different losses"

# our kernels, whole and block by block: the losses of the CPU's
train $smooth --ranks 2 --out fused --export x.gguf >/dev/null
for shard in optimizer full; do
    train $smooth --device fake:0,fake:1 --compute f32 --shard $shard --out $shard --export x.gguf >out.txt 2>&1 || { cat out.txt; fail "$shard: our kernels failed"; }
    grep -q "device ops" out.txt || fail "our kernels were not used"
    close fused $shard 1e-5 3 0 || fail "$shard: losses of our kernels differ from the CPU's"
done

# resuming from the last checkpoint but one gives the same bits, the state of the optimizer included
for replicator in demo loco; do
    mkdir $replicator-run && cd $replicator-run
    again="-m ../s.gguf --data ../text.txt --eval-batches 1 --micro 2 --steps 3 --log-every 1 --save-every 1 --replicator $replicator"
    train $again --device fake:0,fake:1 --out ours --export first.gguf >/dev/null
    rm ours/checkpoint-0000000003.gguf
    expect 0 "resuming after step 2" train $again --device fake:0,fake:1 --out ours --export again.gguf
    cmp first.gguf again.gguf || fail "$replicator: a resumed run on devices ends differently"
    cd ..
done

# what would train on GPUs that are not there, alone with AdamW and between hosts with Muon
"$bin/plan" -m s.gguf --compute 1 --moments q8 >out.txt
for who in "alone" "with other hosts"; do
    [ "$(grep -c "^a GPU of [124]* GB trains it $who with --micro [0-9]* (" out.txt)" = 2 ] || { cat out.txt; fail "plan does not say what GPUs train $who"; }
done

# state in host memory: the same bits, less on the device
train $demo --device fake:0,fake:1 --optimizer-on-host --out on-host --export on-host.gguf >out.txt
grep -q "on the host" out.txt || { cat out.txt; fail "the summary does not say where the optimizer's state is"; }
cmp demo-run/first.gguf on-host.gguf || fail "with its state in host memory the optimizer has other bits"

# a host with a device and one without agree on every bit (the run itself compares digests)
for replicator in demo loco; do
    mkdir with-$replicator && cd with-$replicator
    mkdir anna ben
    "$bin/hub" --new --nodes hosts.txt --name anna --store "file://$PWD/store" >/dev/null
    echo "ben -" >>hosts.txt
    together="--data ../text.txt --nodes hosts.txt"
    train -m ../s.gguf $together --name anna --out anna/run --export anna/x.gguf --batch 4 --steps 4 --min-hosts 2 \
        --replicator $replicator --rule sgd --chunk 32x32 >anna/out.txt 2>&1 &
    anna=$!
    until grep -q "^run " anna/out.txt 2>/dev/null || ! kill -0 $anna 2>/dev/null; do sleep 0.1; done
    "$bin/train-gpt" -m ../s.gguf $together --name ben --out ben/run --export ben/x.gguf --device fake --threads 1 \
        --sample-tokens 8 >ben/out.txt 2>&1 || { tail -5 */out.txt; fail "$replicator: the host with a device failed"; }
    wait $anna || { tail -5 */out.txt; fail "$replicator: the host without a device failed"; }
    cmp anna/x.gguf ben/x.gguf || fail "$replicator: hosts with and without a device differ"
    cd ..
done

# local steps; and an optimizer without kernels, which works on host copies of device memory
small="-m s.gguf --data text.txt --eval-batches 1 --steps 10 --log-every 1"
for optim in "--replicator diloco --every 5" "--replicator demo --momentum-subtract 0.5 --rule sgd"; do
    train $small $optim --portable --out d-cpu --export d-cpu.gguf >/dev/null
    train $small $optim --device fake --portable --out d-fake --export d-fake.gguf >/dev/null
    cmp d-cpu.gguf d-fake.gguf || fail "$optim: a device and the CPU end with different weights"
    rm -r d-cpu d-fake
done

# weights sharded over the devices, block by block
train $small --shard full --ranks 2 --portable --out s-cpu --export s-cpu.gguf >/dev/null
train $small --shard full --device fake:0,fake:1 --portable --out s-fake --export s-fake.gguf >/dev/null
cmp s-cpu.gguf s-fake.gguf || fail "two devices and two CPU ranks with sharded weights differ"

# an adapter for a quantized model: the losses of the CPU, whose weights are not rounded to F16; then resumed
tiny llama l.gguf --heads 2 --kv-heads 1
"$bin/export" l.gguf --type q8_0 -o base.gguf >/dev/null
lora="-m base.gguf --lora 4 --data text.txt --eval-batches 1 --steps 6 --log-every 1 --save-every 3 --rule adamw --lr 1e-2"
train $lora --out a-cpu --export a-cpu.gguf >/dev/null
train $lora --portable --out a-portable --export x.gguf >/dev/null
train $lora --device fake --compute f32 --out a-fake --export a-fake.gguf >out.txt 2>&1 || { cat out.txt; fail "an adapter on a device failed"; }
grep -q "(copied to the device)" out.txt || { cat out.txt; fail "the summary does not say where the model is"; }
close a-cpu a-portable 1e-5 6 0 || { paste <(losses a-cpu) <(losses a-portable); fail "an adapter in ggml's ops has other losses"; }
close a-cpu a-fake 1e-3 6 0 || { paste <(losses a-cpu) <(losses a-fake); fail "an adapter on a device has other losses"; }
rm a-fake/checkpoint-0000000006.gguf
expect 0 "resuming after step 3" train $lora --device fake --compute f32 --out a-fake --export again.gguf
cmp a-fake.gguf again.gguf || fail "a resumed adapter on a device ends differently"
expect 1 "--lora-dropout works with the fused ops of the CPU" train $lora --lora-dropout 0.1 --device fake --out no

# f16 follows F32, every loss within 1 %; bf16, which is chosen for devices that have it, over 200 steps and within 0.5 %
train $small --device fake --compute f32 --out f32 --export h.gguf >/dev/null
train $small --device fake --compute f16 --out f16 --export h.gguf >/dev/null
close f32 f16 0.01 10 5 || fail "f16: losses do not follow F32, or are F32"
long="-m s.gguf --data text.txt --eval-batches 1 --eval-every 200 --steps 200 --batch 2 --log-every 1 --replicator none --rule adamw --lr 1e-3"
train $long --out long-f32 --export h.gguf >/dev/null
train $long --device fake:2 --out long-bf16 --export h.gguf >out.txt
grep -q "^compute .* bf16" out.txt || { cat out.txt; fail "bf16 was not chosen"; }
close long-f32 long-bf16 0.005 200 150 || fail "bf16: losses do not follow F32 over 200 steps, or are F32"
expect 1 "--compute bf16: the fused ops of the CPU are F32" train $small --compute bf16 --out no

# images, whole and block by block
tiny_images
vit() {
    "$bin/train-vit" -m vit.gguf --data . --eval-batches 1 --steps 3 --batch 4 --micro 1 --log-every 1 --threads 1 --mixup 0.2 \
        --stochastic-depth 0.2 --smoothing 0.1 "$@" >out.txt 2>&1 || { cat out.txt; fail "train-vit $* failed"; }
}
vit --ranks 2 --out v-cpu
vit --device fake:0,fake:1 --compute f32 --out v-whole
vit --device fake:0,fake:1 --compute f32 --shard full --out v-parts
for parts in v-whole v-parts; do
    close v-cpu $parts 1e-5 3 0 || fail "$parts: losses of images differ from the CPU's"
done

# errors are one line
expect 1 "out of memory" train $small --device fake:0:1,fake:1:1 --shard none --batch 32 --micro 16 --out no
expect 1 "--device cuda: " train $small --device cuda:0,cuda:1 --out no
[ "$(wc -l <out.txt)" = 1 ] || { cat out.txt; fail "no GPU: more than one line"; }
expect 1 "no such backend, only cpu" train $small --device gpu --out no
expect 1 "--ranks 3 with 2 devices" train $small --device fake:0,fake:1 --ranks 3 --out no
echo "e2e-device: passed"
