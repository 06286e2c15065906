#!/usr/bin/env bash
# The trainer on ggml's Vulkan backend, here Mesa's lavapipe: the losses of the CPU's portable form, half
# precision, resuming, a CPU host in the same run, weights in several buffers.   usage: e2e-vulkan.sh BIN_DIR WORK_DIR
# Without a Vulkan device it ends with 77, or with 1 if GT_REQUIRE_VULKAN is set.
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-vulkan "$1" "$2"
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
unset VK_ICD_FILENAMES VK_DRIVER_FILES  # set for the other e2e tests
export MESA_SHADER_CACHE_DIR=$work/../shader-cache  # lavapipe compiles for half a minute the first time
export GGML_VK_VISIBLE_DEVICES=${GGML_VK_VISIBLE_DEVICES-0}  # ggml leaves out devices that are CPUs
if ! "$bin/train-gpt" --list-devices | grep "vulkan:0  .* free of .*, ggml's ops, --compute f32|bf16|f16"; then
    echo "no Vulkan device: install a driver (Debian: mesa-vulkan-drivers)" >&2
    [ -z "${GT_REQUIRE_VULKAN:-}" ] && exit 77
    exit 1
fi
tiny gpt2 s.gguf
run="-m s.gguf --data text.txt --eval-batches 1 --log-every 1 --save-every 1"
smooth="$run --steps 4 --micro 2 --rule adamw"  # takes no signs of noise

# a machine without a driver says so in one line
without=(env -u GGML_VK_VISIBLE_DEVICES VK_ICD_FILENAMES=/nowhere.json VK_DRIVER_FILES=/nowhere.json)
expect 1 "--device vulkan: no driver found" "${without[@]}" "$bin/train-gpt" $run --device vulkan:0 --out no
[ "$(wc -l <out.txt)" = 1 ] || { cat out.txt; fail "no driver: more than one line"; }
expect 0 "--device vulkan: no driver found" "${without[@]}" "$bin/train-gpt" --list-devices
[ "$(grep -c vulkan out.txt)" = 1 ] || { cat out.txt; fail "no driver: more than one line"; }
expect 1 "a process trains on one vulkan device" train $run --device vulkan:0 --ranks 2 --out no

# a training step, timed
expect 0 "tokens/s): all right" "$bin/selftest" --device vulkan:0
grep -q "^vulkan:0: .*: a training step: loss .*; .* s, then .* s (" out.txt || { cat out.txt; fail "selftest: no times"; }

# the losses of the CPU
train $smooth --device cpu --portable --out cpu --export x.gguf >/dev/null
train $smooth --device vulkan:0 --out f32 --export whole.gguf >out.txt 2>&1 || { cat out.txt; fail "training failed"; }
grep -q "vulkan:0, 1 thread, portable ops" out.txt || { cat out.txt; fail "Vulkan was not used"; }
close cpu f32 1e-5 4 1 || { paste <(losses cpu) <(losses f32); fail "losses differ from the CPU's, or are the CPU's own"; }
for type in f16 bf16; do
    train $smooth --device vulkan:0 --compute $type --out $type --export x.gguf >/dev/null
    close f32 $type 0.01 4 4 || { paste <(losses f32) <(losses $type); fail "$type: losses do not follow F32, or are F32"; }
done
# an adapter: the model is F16 there
adapter() {
    train -m base.gguf --data text.txt --lora 4 --steps 3 --micro 2 --rule adamw --lr 1e-2 --val-fraction 0 --device "$1" --out "$2" \
        --export x.gguf >out.txt 2>&1 || { cat out.txt; fail "an adapter on $1 failed"; }
}
"$bin/export" s.gguf --type q8_0 -o base.gguf >/dev/null
adapter cpu lora-cpu
adapter vulkan:0 lora-vulkan
grep -q "(copied to the device)" out.txt && grep -q "vulkan:0, 1 thread" out.txt || { cat out.txt; fail "adapter: Vulkan was not used"; }
close lora-cpu lora-vulkan 1e-4 3 1 || { paste <(losses lora-cpu) <(losses lora-vulkan); fail "losses of an adapter differ from the CPU's"; }
tiny_images --patch 2  # 17 patches a picture: the shaders for fewer than nine columns take lavapipe 16 s more
vit() {
    "$bin/train-vit" -m vit.gguf --data . --eval-batches 1 --steps 3 --batch 4 --micro 2 --log-every 1 --threads 1 --mixup 0.2 \
        --stochastic-depth 0.2 --smoothing 0.1 --rule adamw "$@" >out.txt 2>&1 || { cat out.txt; fail "train-vit $* failed"; }
}
vit --device cpu --portable --out v-cpu
vit --device vulkan:0 --out v-vulkan
grep -q "vulkan:0, 1 thread, portable ops" out.txt || { cat out.txt; fail "images: Vulkan was not used"; }
close v-cpu v-vulkan 1e-5 3 0 || { paste <(losses v-cpu) <(losses v-vulkan); fail "losses of images differ from the CPU's"; }

# weights and gradients in several buffers: the same bits
GGML_VK_FORCE_MAX_ALLOCATION_SIZE=98304 GGML_VK_FORCE_MAX_BUFFER_SIZE=98304 \
    train $smooth --device vulkan:0 --out parts --export parts.gguf >out.txt 2>&1 || { cat out.txt; fail "several buffers: failed"; }
cmp whole.gguf parts.gguf || fail "several buffers: other weights"

# demo's momentum stays on the device; killed and resumed: the same bits
demo="$run --steps 4 --micro 2 --replicator demo"
train $demo --device vulkan:0 --out demo --export demo.gguf >out.txt 2>&1 || { cat out.txt; fail "demo failed"; }
grep -q "portable ops, f32, momentum on the device" out.txt || { cat out.txt; fail "demo: the momentum is not on the device"; }
mkdir killed
start $demo --device vulkan:0 --out killed/run --export killed/x.gguf
wait_for_step killed/run 2 "$pid"
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
expect 0 "resuming after step" train $demo --device vulkan:0 --out killed/run --export killed/x.gguf
cmp demo.gguf killed/x.gguf || fail "a resumed run ends with other weights"

# with a CPU host over the hub: the run itself compares digests every round
for replicator in loco demo; do
    mkdir with-$replicator && cd with-$replicator
    "$bin/hub" --new --nodes hosts.txt --name anna --address "127.0.0.1:$("$free_port")" >/dev/null
    echo "ben -" >>hosts.txt
    together="-m ../s.gguf --data ../text.txt --nodes hosts.txt --replicator $replicator"
    train $together --device cpu --name anna --out anna --export anna.gguf --steps 6 --min-hosts 2 >anna.txt 2>&1 &
    anna=$!
    until grep -q "^run " anna.txt 2>/dev/null || ! kill -0 $anna 2>/dev/null; do sleep 0.1; done
    "$bin/train-gpt" $together --name ben --out ben --export ben.gguf --device vulkan:0 --threads 1 --sample-tokens 8 >ben.txt 2>&1 ||
        { tail -5 anna.txt ben.txt; fail "$replicator: the host with Vulkan failed"; }
    wait $anna || { tail -5 anna.txt ben.txt; fail "$replicator: the host without failed"; }
    [ $replicator = loco ] || grep -q "momentum on the device" ben.txt || fail "demo: the momentum is not on the device"
    cmp anna.gguf ben.gguf || fail "$replicator: hosts with and without Vulkan differ"
    grep -q '"in":\["anna","ben"\]' anna/metrics.jsonl || fail "$replicator: no round had both hosts"
    cd ..
done
echo "e2e-vulkan: passed"
