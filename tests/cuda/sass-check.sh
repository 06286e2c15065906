#!/usr/bin/env bash
# tests/cuda/sass-check.sh USAGE OBJECT [CUOBJDUMP] — the attention kernels in machine code: products on tensor
# cores, no spilled registers, no local memory, a block fits on a multiprocessor. Prints a table. USAGE: what
# ptxas said of OBJECT. CUOBJDUMP: NVIDIA's program, also in the PyPI packages nvidia-cuda-cuobjdump and (on PATH)
# nvidia-cuda-nvdisasm; without it the instructions are not looked at.
set -euo pipefail
usage=$1 object=$2 cuobjdump=${3:-}
code=$(mktemp)
trap 'rm -f "$code"' EXIT
[ -z "$cuobjdump" ] || "$cuobjdump" -sass "$object" >"$code"

awk -v have_code="${cuobjdump:+1}" '
    # _ZN..attention_bf16_dq_kernelILi2EE.. -> attention_bf16_dq_kernel 2: heads of up to 2 x 32
    function short(name,  n) {
        match(name, /attention_bf16[a-z_]*kernel/)
        n = substr(name, RSTART, RLENGTH)
        match(name, /ILi[0-9]+E/)
        return n " " substr(name, RSTART + 3, RLENGTH - 4)
    }
    # machine code first: instructions of each kind
    FILENAME == ARGV[1] {
        if (/arch = sm_/) { arch = $NF }
        if (/Function : /) { key = arch " " short($NF) }
        if (/ HMMA\.16816\.F32\.BF16/) { hmma[key]++ }
        if (/ MUFU\.EX2/) { ex2[key]++ }
        if (/ (LDL|STL)/) { bad = bad "\n" key ": local memory" }
        next
    }
    /Compiling entry function/ {
        split($0, quoted, "\047")
        key = quoted[4] " " short(quoted[2])
    }
    /spill stores/ { if (!/ 0 bytes spill stores, 0 bytes spill loads/ || !/^ +0 bytes stack/) { bad = bad "\n" key ": " $0 } }
    /Used [0-9]+ registers/ {
        match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
        split(key, part, " ")
        back = part[2] ~ /dq|dkv/
        columns = part[3] <= 2 ? 64 : 32
        bytes = ((back ? 128 : 64) + 2 * columns) * (part[3] * 32 + 8) * 2 + (part[2] ~ /dkv/ ? columns * 16 : 0)
        # a multiprocessor has 65536 registers, given to a warp by 256; 99 KB of shared memory on GeForce, of
        # which each block takes 1 KB more
        blocks = int(65536 / (int((registers * 32 + 255) / 256) * 256 * 4))
        fit = int(100 * 1024 / (bytes + 1024))
        blocks = blocks < fit ? blocks : fit
        printf "%-6s %-32s heads of %3d: %3d registers, %5d bytes shared, %d warps on a multiprocessor%s\n", \
            part[1], part[2], part[3] * 32, registers, bytes, blocks * 4, have_code ? ", " hmma[key] + 0 " HMMA, " ex2[key] + 0 " EX2" : ""
        if (blocks < 1) { bad = bad "\n" key ": a block does not fit" }
        if (have_code && !hmma[key]) { bad = bad "\n" key ": no HMMA of bf16" }
        n++
    }
    END {
        if (!n) { bad = bad "\nno kernel in the report" }
        if (bad != "") { print "sass-check:" bad > "/dev/stderr"; exit 1 }
    }' "$code" "$usage"
