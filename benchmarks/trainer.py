"""What a training step costs against transformers on the same machine, weights and batch: time, memory, padding.

    .venv/bin/python -m benchmarks.trainer --json

A Llama of 135 million parameters (SmolLM2's shape, random weights), float32, one process, segments of 0.5k to 4k tokens with
the tail of real agent runs. Three processes, one after the other, each make the same step of the same batch (negative
log-likelihood, AdamW, clipping): ours; transformers with all segments padded to the longest, one in a pass; transformers on one segment at a
time, which is packing without any loss. Bounds: at least 1.5 times the real tokens a second of the padded one, at least 0.95
times those of the packed one, peak memory below 0.8 of the padded one's, at least 0.95 of the computed tokens real. Exit code 1 if
one is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SHAPE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e5,
    "initializer_range": 0.04,
    "hidden_act": "silu",
}
CONF = Path(__file__).parents[1] / "conf"
BUDGET = 4096
THREADS = 2


def lengths(segments: int) -> list[int]:
    """Log-normal with a median of 1.2k tokens, cut to [512, 4096]; the longest is always there, as in any large batch."""
    drawn = np.random.default_rng(0).lognormal(np.log(1200), 0.75, segments)
    return [4096, *(int(n) for n in np.clip(drawn[1:], 512, 4096))]


def batch(sizes: list[int]) -> Any:
    """Every token but a segment's first trains."""
    from rl_agent.algo.batch import TrainBatch  # noqa: PLC0415  (each role imports only its own)

    total = sum(sizes)
    segments = np.array(sizes, dtype=np.int32)
    mask = np.ones(total, dtype=bool)
    mask[np.cumsum(segments) - segments] = False
    return TrainBatch(
        tokens=np.random.default_rng(1).integers(0, SHAPE["vocab_size"], total).astype(np.int32),
        loss_mask=mask,
        rollout_logprobs=np.zeros(total, dtype=np.float32),
        weight_versions=np.where(mask, 0, -1).astype(np.int32),
        segment_lengths=segments,
        segment_rollout=np.arange(len(sizes), dtype=np.int32),
        rewards=np.ones(len(sizes), dtype=np.float32),
        rollout_group=np.arange(len(sizes), dtype=np.int32),
    )


def ours(folder: Path, sizes: list[int], repeats: int) -> list[float]:
    """Seconds of each step."""
    from rl_agent.config.hints import precompose  # noqa: PLC0415
    from rl_agent.config.load import load  # noqa: PLC0415
    from rl_agent.config.options import register  # noqa: PLC0415
    from rl_agent.trainer.megatron import MegatronConfig  # noqa: PLC0415

    trainer = MegatronConfig(threads=THREADS, micro_batch_tokens=BUDGET).build()
    register()
    # one pass over the batch, like theirs: the embedded default makes several
    chosen = ["algo=sft", "algo.epochs=1", "algo.minibatches=1"]
    algorithm = load(precompose(CONF, "config", chosen)).algo.build()
    trainer.setup(model_folder=folder, algorithm=algorithm, seed=0, total_steps=repeats + 1)
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        trainer.step(batch(sizes))
        seconds.append(time.perf_counter() - started)
    trainer.close()
    return seconds


def theirs(folder: Path, sizes: list[int], repeats: int, *, padded: bool) -> list[float]:
    """Seconds of each step."""
    import torch  # noqa: PLC0415
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    torch.set_num_threads(THREADS)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    made = batch(sizes)
    segments = torch.from_numpy(made.tokens.astype(np.int64)).split(sizes)
    trained = int(made.loss_mask.sum())

    def backward(ids: Any, mask: Any, labels: Any) -> None:
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
        total = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
        )
        (total / trained).backward()

    def step() -> None:
        if padded:
            rows = torch.nn.utils.rnn.pad_sequence(segments, batch_first=True)
            place = torch.arange(rows.shape[1])[None] < torch.tensor(sizes)[:, None]
            for ids, real in zip(rows.split(1), place.split(1), strict=True):  # more would not fit a laptop's memory
                backward(ids, real.long(), ids.masked_fill(~real, -100))
        else:
            for ids in segments:
                backward(ids[None], None, ids[None])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    return seconds


def run_role(role: str, folder: Path, sizes: list[int], repeats: int) -> dict[str, Any]:
    """In a process of its own: seconds of the best step, and the process's peak memory."""
    seconds = (
        ours(folder, sizes, repeats) if role == "ours" else theirs(folder, sizes, repeats, padded=role == "padded")
    )
    return {"seconds": min(seconds), "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def packing_efficiency(sizes: list[int]) -> float:
    """Real tokens among those that are computed, over eight copies of the model; the lower of two.

    Of the layers where four ranks share a sequence, which pads it to a multiple; and of attention on CPUs, which pads sequences
    of about the same length to the longest of them.
    """
    from rl_agent.trainer.bin_packing import alike, pack  # noqa: PLC0415
    from rl_agent.trainer.shards import Shards  # noqa: PLC0415

    shards = Shards(context_ranks=2, sequence_ranks=2)
    bins = pack(np.array(sizes, dtype=np.int32), budget=BUDGET, copies=8)
    packed = [[sizes[s] - 1 for s in segments] or [1] for segments in bins]
    layers = sum(sum(shards.padded(own)) for own in packed)
    attention = sum(max(run) * len(run) for own in packed for run in alike(own))
    return sum(size - 1 for size in sizes) / max(layers, attention)


def measure(segments: int, repeats: int, rounds: int) -> dict[str, Any]:
    """Every round runs the three one after the other; ratios are of the same round, and the median counts."""
    sizes = lengths(segments)
    found: list[dict[str, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as temporary:
        (Path(temporary) / "config.json").write_text(json.dumps(SHAPE))
        for _ in range(rounds):
            one = {}
            for role in ("ours", "padded", "packed"):
                command = [sys.executable, __file__, "--role", role, "--folder", temporary]
                command += ["--segments", str(segments), "--repeats", str(repeats)]
                one[role] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
                print(role, one[role], file=sys.stderr, flush=True)
            found.append(one)
    return {
        "ratio_to_padded": _median(r["padded"]["seconds"] / r["ours"]["seconds"] for r in found),
        "ratio_to_packed": _median(r["packed"]["seconds"] / r["ours"]["seconds"] for r in found),
        "peak_memory_ratio": _median(r["ours"]["peak_mb"] / r["padded"]["peak_mb"] for r in found),
        "packing_efficiency": round(packing_efficiency(lengths(256)), 4),
        "tokens_per_second": _median(sum(sizes) / r["ours"]["seconds"] for r in found),
        "segment_lengths": sizes,
    }


def _median(values: Any) -> float:
    return round(statistics.median(values), 3)


def main() -> None:
    """Print the figures, or play one of the three."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--segments", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=2, help="steps of each process; the best counts")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print only the figures")
    parser.add_argument("--role", choices=["ours", "padded", "packed"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        print(json.dumps(run_role(arguments.role, arguments.folder, lengths(arguments.segments), arguments.repeats)))
        return
    found = measure(arguments.segments, arguments.repeats, arguments.rounds)
    print(json.dumps(found, indent=2))
    if not arguments.json:
        print("bounds: ratio_to_padded >= 1.5, ratio_to_packed >= 0.95, peak_memory_ratio < 0.8, efficiency >= 0.95")
    fine = found["ratio_to_padded"] >= 1.5 and found["ratio_to_packed"] >= 0.95
    fine = fine and found["peak_memory_ratio"] < 0.8 and found["packing_efficiency"] >= 0.95
    raise SystemExit(0 if fine else 1)


if __name__ == "__main__":
    main()
