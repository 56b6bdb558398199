"""Client of a vLLM server: generation from token ids, scoring and weight pushes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp
import numpy as np
import orjson

from rl_agent.config.engine import UpdateMode
from rl_agent.engine.base import EngineLoad, EngineLostError, PauseMode
from rl_agent.engine.vllm_answer import read_generation
from rl_agent.errors import EngineError, WeightPushError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from rl_agent.tokens.turn import Float32, Generation, Int32, Sampling
    from rl_agent.weights.base import Probe, WeightUpdate

_CONTROL_TIMEOUT_S: Final = 600.0
"""Timeout of each step of a push except the initial pause, which may wait for running requests."""
_LOAD_TIMEOUT_S: Final = 10.0
_PAUSES: Final = {
    UpdateMode.drain: PauseMode.WAIT,
    UpdateMode.keep: PauseMode.KEEP,
    UpdateMode.abort: PauseMode.ABORT,
}


class VllmEngine:
    """Client of a vLLM server. See `engine.base.Engine`. Use as `async with VllmEngine(...) as engine`."""

    def __init__(
        self,
        *,
        url: str,
        request_timeout_s: float,
        probe_tolerance: float,
        update_mode: UpdateMode = UpdateMode.drain,
    ) -> None:
        self.url = url
        self.update_mode = update_mode
        self.request_timeout_s = request_timeout_s
        self.probe_tolerance = probe_tolerance
        self._http: aiohttp.ClientSession | None = None
        self._met: Mapping[str, Any] | None = None
        self._version: int | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=600),
            timeout=aiohttp.ClientTimeout(total=self.request_timeout_s),
            json_serialize=lambda value: orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode(),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def generate(self, tokens: Int32, sampling: Sampling, *, request_id: str, priority: int = 0) -> Generation:
        """See `engine.base.Engine`. A cancelled call closes the connection, and vLLM then aborts the request."""
        started = time.perf_counter()
        parameters: dict[str, Any] = {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "logprobs": 0,
        }
        if sampling.stop_token_ids:
            parameters["stop_token_ids"] = list(sampling.stop_token_ids)
        if sampling.seed is not None:
            parameters["seed"] = sampling.seed
        body = {
            "request_id": request_id,
            "token_ids": np.ascontiguousarray(tokens),
            "sampling_params": parameters,
            "priority": priority,
            **self._salt(),
        }
        content = await self._ask("POST", "/inference/v1/generate", body)
        return read_generation(content, request_id, time.perf_counter() - started)

    def renew(self, version: int) -> None:
        """See `engine.base.Engine`. `keep` does not reset the prefix cache, so the version excludes older entries."""
        self._version = version

    def _salt(self) -> dict[str, str]:
        """Return the cache salt that excludes prefixes of older weights. Empty unless those prefixes are kept."""
        return {"cache_salt": f"v{self._version}"} if self.update_mode is UpdateMode.keep and self._version else {}

    async def score(self, tokens: Int32) -> Float32:
        """Return the engine's log-probability of each next token. [T] int32 -> [T - 1] float32."""
        parameters = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        answer = await self._post(
            "/inference/v1/generate",
            {"token_ids": tokens.tolist(), "sampling_params": parameters, **self._salt()},
        )
        rows = answer.get("prompt_logprobs")
        if not isinstance(rows, list) or len(rows) != len(tokens):
            raise EngineError(f"vLLM returned {len(rows or [])} prompt log-probabilities for {len(tokens)} tokens")
        return np.array(
            [row[str(token)]["logprob"] for row, token in zip(rows[1:], tokens[1:].tolist(), strict=True)],
            dtype=np.float32,
        )

    async def pause(self, mode: PauseMode) -> None:
        """See `engine.base.Engine`. KEEP preserves the KV cache of the paused requests."""
        await self._post(f"/pause?mode={mode}{'&clear_cache=false' if mode is PauseMode.KEEP else ''}", None)

    async def resume(self) -> None:
        """See `engine.base.Engine`."""
        await self._post("/resume", None)

    async def hold(self) -> None:
        """See `engine.base.Engine`."""
        await self.pause(_PAUSES[self.update_mode])

    async def push(self, update: WeightUpdate, probe: Probe | None) -> float:
        """See `engine.base.Engine`. After a failure the server stays paused: nothing samples from a partial update."""
        try:
            async with asyncio.timeout(_CONTROL_TIMEOUT_S):
                await self._meet(update)
            await self.hold()  # may take as long as a request
            async with asyncio.timeout(_CONTROL_TIMEOUT_S):
                await self._post("/start_weight_update", None)
                await self._post("/update_weights", {"update_info": dict(update.update_info)})
                await self._post("/finish_weight_update", {"weight_version": str(update.version)})
                if self.update_mode is not UpdateMode.keep:  # a reset would recompute the paused requests
                    await self._post("/reset_prefix_cache", None)
                self.renew(update.version)
                await self.resume()
                return await self._verify(update.version, probe)
        except (EngineError, TimeoutError) as error:
            raise WeightPushError(
                f"weights number {update.version} did not reach {self.url}: {str(error) or repr(error)}"
            ) from error

    async def _meet(self, update: WeightUpdate) -> None:
        """Send the source of the weights to the server once."""
        if self._met != update.init_info:
            await self._post("/init_weight_transfer_engine", {"init_info": dict(update.init_info)})
            self._met = update.init_info

    async def _verify(self, version: int, probe: Probe | None) -> float:
        if probe is None:
            return 0.0
        difference = float(np.abs(await self.score(probe.tokens) - probe.logprobs).max())
        if not difference <= self.probe_tolerance:
            raise WeightPushError(
                f"weights number {version}: after a push, trainer and engine differ by {difference:.3g} on the probe; "
                f"engine.probe_tolerance is {self.probe_tolerance:g}. The engine does not run the trained weights."
            )
        return difference

    async def load(self) -> EngineLoad:
        """See `engine.base.Engine`."""
        try:
            async with asyncio.timeout(_LOAD_TIMEOUT_S):
                return _load((await self._ask("GET", "/metrics", None)).decode())
        except TimeoutError as error:
            raise EngineError(f"vLLM at {self.url}: no load metrics within {_LOAD_TIMEOUT_S:.0f} s") from error

    async def sleep(self) -> None:
        """See `engine.base.Engine`. The weights move to main memory, and the KV cache is dropped."""
        await self._post("/sleep?level=1&mode=wait", None)

    async def wake(self) -> None:
        """See `engine.base.Engine`."""
        await self._post("/wake_up", None)

    async def _post(self, path: str, body: Any) -> Any:
        content = await self._ask("POST", path, body)
        return orjson.loads(content) if content else None

    async def _ask(self, method: str, path: str, body: Any) -> bytes:
        if self._http is None:
            raise EngineError(f"{self.url}: the client is not open. Enter its context first.")
        try:
            async with self._http.request(method, self.url + path, json=body) as response:
                content = await response.read()
        except TimeoutError as error:
            raise EngineError(f"no response from vLLM at {self.url}{path} in time: {error!r}") from error
        except aiohttp.ClientError as error:
            raise EngineLostError(f"no response from vLLM at {self.url}{path}: {error!r}") from error
        if response.status != 200:
            raise EngineError(f"{path}: vLLM returned {response.status}: {content[:500].decode(errors='replace')}")
        return content


def _load(page: str) -> EngineLoad:
    """Return the load from the Prometheus metrics page, summed over vLLM's engines."""
    sums: dict[str, float] = {}
    for line in page.splitlines():
        if line.startswith("vllm:"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            sums[name] = sums.get(name, 0.0) + float(value)
    running, waiting = sums.get("vllm:num_requests_running"), sums.get("vllm:num_requests_waiting")
    return EngineLoad(
        kv_cache_usage=sums.get("vllm:kv_cache_usage_perc"),
        running=None if running is None else int(running),
        waiting=None if waiting is None else int(waiting),
    )
