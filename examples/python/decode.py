#!/usr/bin/env python3
"""Decode attention from Python: the shipped PTX, its manifest, and NVIDIA's driver bindings.

Needs cuda-bindings and numpy (requirements.txt) and a CUDA driver; no compiler and no toolkit. Fills
a small batch, launches decode and merge as host-crate/ptx/manifest.json says, and compares the
result with attention in numpy. Exits with 1 if they differ.
"""

import argparse
import json
import math
import re
import struct
import sys
from pathlib import Path

import numpy as np
from cuda.bindings import driver as cu

PTX_DIR = Path(__file__).resolve().parents[2] / "host-crate" / "ptx"
ABI_VERSION = 1
MAX_DYNAMIC_SHARED = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def check(result):
    """Unpacks a driver result, or raises with the driver's own words."""
    error, *values = result
    if error != cu.CUresult.CUDA_SUCCESS:
        _, text = cu.cuGetErrorString(error)
        raise RuntimeError(f"{error.name}: {text.decode()}")
    return values[0] if len(values) == 1 else values


def load(path):
    """A module from a PTX file; a refusal shows the compiler's log."""
    log = bytearray(8192)
    option = cu.CUjit_option
    options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    error, module = cu.cuModuleLoadDataEx(
        path.read_bytes() + b"\0", len(options), options, [log, len(log)]
    )
    if error != cu.CUresult.CUDA_SUCCESS:
        sys.exit(f"{path.name}: {error.name}: {log.rstrip(bytes(1)).decode()}")
    return module


def pack(entry, values):
    """The argument struct of an entry, field by field."""
    parameter = entry["parameter"]
    names = [field["name"] for field in parameter["fields"]]
    if sorted(names) != sorted(values):
        sys.exit(f"{entry['symbol']}: fields {sorted(set(names) ^ set(values))} do not match")
    codes = {"u64": "<Q", "i64": "<q", "u32": "<I", "f32": "<f"}
    packed = bytearray(parameter["bytes"])
    for field in parameter["fields"]:
        struct.pack_into(codes[field["type"]], packed, field["offset"], values[field["name"]])
    return packed


def launch(module, entry, grid, values, stream):
    """Launches an entry with its arguments as one struct."""
    function = check(cu.cuModuleGetFunction(module, entry["symbol"].encode()))
    shared = entry["shared_bytes"]
    check(cu.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, shared))
    arguments = np.frombuffer(pack(entry, values), dtype=np.uint8)
    # An array of pointers to the parameters, of which there is one.
    pointers = np.array([arguments.ctypes.data], dtype=np.uint64)
    check(
        cu.cuLaunchKernel(
            function, *grid, *entry["block"], shared, stream, pointers.ctypes.data, 0
        )
    )


def upload(array):
    address = check(cu.cuMemAlloc(array.nbytes))
    check(cu.cuMemcpyHtoD(address, array.ctypes.data, array.nbytes))
    return int(address)


def download(address, array):
    check(cu.cuMemcpyDtoH(array.ctypes.data, address, array.nbytes))
    return array


def divisor(block_size):
    """(magic, shift) with t // block_size == (2 * t * magic >> 32) >> shift for 0 <= t < 2**31."""
    shift = (block_size - 1).bit_length()
    return -(-(1 << (31 + shift)) // block_size), shift


def head_tiles(entry, group_size):
    """head_tiles of the entry's grid rule."""
    warps = 1
    if entry["products"] == "tensor cores":
        warps = 1 if group_size <= 16 else 2 if group_size <= 32 else 4
    return math.ceil(group_size / (entry["heads_per_tile"] * warps))


def attention(q, k_cache, v_cache, table, lengths, scale):
    """Attention through the block table, in f64: (out, lse)."""
    block_size, kv_heads = k_cache.shape[1:3]
    group = q.shape[1] // kv_heads
    out, lse = np.zeros(q.shape), np.full(q.shape[:2], -np.inf)
    for s, length in enumerate(lengths):
        if length == 0:
            continue
        tokens = np.arange(length)
        at = table[s, tokens // block_size], tokens % block_size
        keys = k_cache[at].astype(np.float64)  # [length, kv_heads, head_dim]
        values = v_cache[at].astype(np.float64)
        for h in range(q.shape[1]):
            scores = scale * keys[:, h // group] @ q[s, h].astype(np.float64)
            weights = np.exp(scores - scores.max())
            lse[s, h] = scores.max() + np.log(weights.sum())
            out[s, h] = weights @ values[:, h // group] / weights.sum()
    return out, lse


def run(ptx_dir, dtype, head_dim, lengths, block_size, num_q_heads, num_kv_heads, split_tokens):
    manifest = json.loads((ptx_dir / "manifest.json").read_text())
    if manifest["abi_version"] != ABI_VERSION:
        sys.exit(f"manifest: abi_version {manifest['abi_version']}, must be {ABI_VERSION}")
    entries = [
        entry
        for entry in manifest["entries"]
        if (entry["dtype"], entry["head_dim"]) == (dtype, head_dim)
    ]
    if not entries:
        sys.exit(f"the manifest has no kernels for {dtype} with head_dim {head_dim}")
    group_size = num_q_heads // num_kv_heads
    # The smallest tile that holds the group, else the largest; the manifest lists them ascending.
    decodes = [entry for entry in entries if entry["kind"] == "decode"]
    decode = next((e for e in decodes if e["heads_per_tile"] >= group_size), decodes[-1])
    merge = next(entry for entry in entries if entry["kind"] == "merge")

    # A pool of blocks in shuffled order; NaN wherever no token is, since nothing there is read.
    rng = np.random.default_rng(7)
    numpy_type = {"f32": np.float32, "f16": np.float16}[dtype]
    num_seqs, columns = len(lengths), max(1, math.ceil(max(lengths) / block_size))
    blocks = [math.ceil(length / block_size) for length in lengths]
    num_blocks = sum(blocks) + 3
    order = iter(rng.permutation(num_blocks))
    table = np.full((num_seqs, columns), -1, dtype=np.int32)
    pool = np.full((2, num_blocks, block_size, num_kv_heads, head_dim), np.nan, dtype=numpy_type)
    for s, length in enumerate(lengths):
        table[s, : blocks[s]] = [next(order) for _ in range(blocks[s])]
        tokens = np.arange(length)
        at = table[s, tokens // block_size], tokens % block_size
        shape = (2, length, num_kv_heads, head_dim)
        pool[:, at[0], at[1]] = rng.uniform(-1, 1, shape).astype(numpy_type)
    k_cache, v_cache = pool
    q = rng.uniform(-1, 1, (num_seqs, num_q_heads, head_dim)).astype(numpy_type)
    scale = 1 / math.sqrt(head_dim)

    # Splits of split_tokens tokens each; what they compute is merged by a second launch.
    num_splits = max(1, math.ceil(max(lengths) / split_tokens))
    partials = num_seqs * num_q_heads * num_splits
    partial_out = check(cu.cuMemAlloc(partials * head_dim * 4)) if num_splits > 1 else 0
    partial_ml = check(cu.cuMemAlloc(partials * 2 * 4)) if num_splits > 1 else 0
    out, lse = np.empty_like(q), np.empty((num_seqs, num_q_heads), dtype=np.float32)
    magic, shift = divisor(block_size)
    tiles = head_tiles(decode, group_size)
    shared_fields = {
        "partial_out": int(partial_out),
        "partial_ml": int(partial_ml),
        "seq_lens": upload(np.array(lengths, dtype=np.int32)),
        "out": int(check(cu.cuMemAlloc(out.nbytes))),
        "lse": int(check(cu.cuMemAlloc(lse.nbytes))),
        "out_token_stride": num_q_heads * head_dim,
        "out_head_stride": head_dim,
        "num_q_heads": num_q_heads,
        "split_tokens": split_tokens,
        "num_splits": num_splits,
        "reserved": 0,
    }
    decode_fields = shared_fields | {
        "q": upload(q),
        "k_cache": upload(k_cache),
        "v_cache": upload(v_cache),
        "block_table": upload(table),
        "q_token_stride": num_q_heads * head_dim,
        "q_head_stride": head_dim,
        "table_stride": columns,
        "scale_log2": scale * math.log2(math.e),
        "group_size": group_size,
        "head_tiles": tiles,
        "block_size": block_size,
        "block_magic": magic,
        "block_shift": shift,
    }
    for cache in "kv":
        decode_fields[f"{cache}_block_stride"] = block_size * num_kv_heads * head_dim
        decode_fields[f"{cache}_token_stride"] = num_kv_heads * head_dim
        decode_fields[f"{cache}_head_stride"] = head_dim

    module = load(ptx_dir / decode["file"])
    stream = check(cu.cuStreamCreate(0))
    launch(module, decode, (num_seqs, num_kv_heads * tiles, num_splits), decode_fields, stream)
    if num_splits > 1:
        launch(module, merge, (num_seqs, num_q_heads, 1), shared_fields, stream)
    check(cu.cuStreamSynchronize(stream))
    download(shared_fields["out"], out)
    download(shared_fields["lse"], lse)

    want_out, want_lse = attention(q, k_cache, v_cache, table, lengths, scale)
    # Inputs lie in [-1, 1]: rounding out (and, in 16 bits, the softmax's weights) costs most.
    bound = {"f32": 1e-5, "f16": 1e-3}[dtype]
    error = np.abs(out.astype(np.float64) - want_out).max()
    with np.errstate(invalid="ignore"):
        lse_error = np.nan_to_num(np.abs(lse - want_lse), nan=0.0).max()
    same_empty = np.array_equal(np.isneginf(lse), np.isneginf(want_lse))
    # A comparison with NaN is false.
    good = bool(error <= bound) and bool(lse_error <= bound) and same_empty
    print(
        f"{decode['symbol']}: {num_seqs} sequences, {num_splits} splits, "
        f"max |error| {error:.2e} (lse {lse_error:.2e}), bound {bound:.0e}: "
        + ("ok" if good else "WRONG")
    )
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ptx-dir", type=Path, default=PTX_DIR)
    ptx_dir = parser.parse_args().ptx_dir

    check(cu.cuInit(0))
    device = check(cu.cuDeviceGet(0))
    name = check(cu.cuDeviceGetName(256, device))
    print("device:", re.sub(r"\0.*", "", name.decode()))
    context = check(cu.cuDevicePrimaryCtxRetain(device))
    check(cu.cuCtxSetCurrent(context))
    try:
        good = [
            run(ptx_dir, "f16", 128, [60, 0, 17, 200], 16, 8, 2, split_tokens=64),
            run(ptx_dir, "f32", 64, [33, 5], 16, 4, 4, split_tokens=512),
            run(ptx_dir, "f32", 80, [70, 1, 129], 3, 10, 1, split_tokens=64),
        ]
    finally:
        check(cu.cuDevicePrimaryCtxRelease(device))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
