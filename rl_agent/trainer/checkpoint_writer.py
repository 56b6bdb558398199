"""Background writer: a thread writes a copy of one rank's part of a checkpoint while training continues.

Megatron's own asynchronous saving forks or spawns writers. Forking is unsafe with the threads of an actor (Ray, gloo,
OpenMP), and spawning imports everything again. This module uses Megatron's preparation unchanged: the plan, the tensor
buckets, and the finalization by all ranks.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import warnings
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.strategies import filesystem_async
from torch.distributed.checkpoint.api import CheckpointException

from rl_agent.errors import InfraError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class Writing:
    """A checkpoint that is being written. Every rank creates one, and all call `finish` together."""

    def __init__(self, folder: Path, state: dict[str, Any], metadata: Mapping[str, Any]) -> None:
        """Copy the tensors of `state`, then write them in the background.

        Needs CPU memory for a copy of this rank's part of the state, until `finish`.
        """
        self._folder = folder
        with _own_queue(), without_future_warnings():
            self._request = dist_checkpointing.save(
                state, str(folder), async_sharded_save=True, content_metadata=dict(metadata)
            )
        self._buckets = self._copied()
        # daemon: a process that ends early must not wait for a checkpoint that stays incomplete
        self._thread = threading.Thread(target=self._write, name=f"checkpoint {folder.name}", daemon=True)
        self._thread.start()

    @property
    def written(self) -> bool:
        """True once writing this rank's files has ended, also with an error."""
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Wait for the files of all ranks, and write their index.

        Raises InfraError on every rank if one could not write.
        """
        self._thread.join()
        self._buckets.clear()
        reason: list[str | None] = [None]
        try:
            with without_future_warnings():
                for finalize in self._request.finalize_fns:
                    finalize()
        except CheckpointException as error:  # raised by every rank, but only the first knows why
            reason[0] = "; ".join(f"rank {rank}: {failure[0]}" for rank, failure in error.failures.items())
            dist.broadcast_object_list(reason, src=0)
            raise not_written(self._folder, reason[0]) from None

    def _copied(self) -> list[Any]:
        """Return the buckets with copies of their tensors, which training does not change.

        Those on a GPU are copied anyway.
        """
        if self._request.async_fn is None:  # other ranks write everything
            return []
        planned: list[Any] = self._request.async_fn_args[1]
        lives_here = [[tensor.is_cpu for _, tensor in tensors] for _, _, (_, tensors) in planned]
        copied = []
        for (path, name, (texts, tensors)), here in zip(self._request.preload_fn(), lives_here, strict=True):
            own = [
                (item, tensor.clone() if is_cpu else tensor)
                for (item, tensor), is_cpu in zip(tensors, here, strict=True)
            ]
            copied.append((path, name, (texts, own)))
        return copied

    def _write(self) -> None:
        if not self._buckets:
            return
        transforms, use_msc = self._request.async_fn.args
        results: queue.Queue[Any] = self._request.async_fn_args[2]
        written: dict[int, Any] = {}
        for number, bucket in enumerate(self._buckets):
            answers: queue.Queue[Any] = queue.Queue()
            running: queue.Queue[int] = queue.Queue()
            running.put(number)
            filesystem_async.FileSystemWriterAsync.write_preloaded_data(
                transforms, number, bucket, answers, running, use_fsync=True, use_msc=use_msc
            )
            _, outcome = answers.get_nowait()
            if isinstance(outcome, Exception):
                results.put(outcome)
                return
            written[number] = outcome
        results.put(written)


def not_written(folder: Path, reason: object) -> InfraError:
    """Return the error for a checkpoint that could not be written."""
    return InfraError(
        f"the checkpoint {folder} could not be written ({reason}). The last complete one is intact. "
        "Free disk space or lower job.keep_checkpoints, then resume the run."
    )


@contextlib.contextmanager
def disk_errors_named(folder: Path) -> Iterator[None]:
    """Raise InfraError in place of the OSError, or the error of PyTorch's writer, that a full or broken disk causes."""
    try:
        yield
    except OSError as error:
        raise not_written(folder, error) from error
    except RuntimeError as error:
        if "inline_container" not in str(error):
            raise
        raise not_written(folder, "a file was written only in part") from error


@contextlib.contextmanager
def without_future_warnings() -> Iterator[None]:
    """Suppress the warnings that PyTorch gives at every checkpoint about Megatron's sharded tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


@contextlib.contextmanager
def _own_queue() -> Iterator[None]:
    """Replace the queue of results, for which Megatron spawns a server. A thread needs none."""
    before = filesystem_async._results_queue
    filesystem_async._results_queue = queue.Queue()
    try:
        yield
    finally:
        filesystem_async._results_queue = before
