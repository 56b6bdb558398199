"""The vLLM server as a separate process tree that is started, watched and stopped as a whole.

The tree runs in its own PID namespace. The namespace's first process dies with the thread that started it, so no vLLM
process survives its owner, even after SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import aiohttp
from omegaconf import MISSING
from typing_extensions import override

from rl_agent.config.engine import EngineConfig
from rl_agent.engine.vllm_client import VllmEngine
from rl_agent.errors import ConfigError, EngineError
from rl_agent.ports import LOOPBACK, hold_port, number
from rl_agent.secrets import child_environment, is_root

SERVED_NAME: Final = "policy"
_KEEP_ALIVE_S: Final = 3600
"""Longer than any pause between two of our requests, so that the server never closes a pooled connection first."""
_STOP_TIMEOUT_S: Final = 15.0
_POLL_S: Final = 0.25
_LOG_TAIL: Final = 200
"""Number of log lines searched for an error."""
_ERROR: Final = re.compile(r"\w*(Error|Exception)\b.*: |\berror: ")
_ECHO: Final = re.compile(r"[Rr]oot cause above")
"""Message of a process that reports the failure of another process."""


@dataclass(kw_only=True)
class VllmConfig(EngineConfig):
    """vLLM's own server in a separate process tree."""

    max_num_seqs: int = 256
    eager: bool = False
    """Skip compilation: starts faster, samples slower."""
    cpu_kv_cache_gb: int | None = None
    """CPU only: memory for the KV cache."""
    cpu_threads_bind: str | None = None
    """CPU only: cores of the OpenMP threads, as in vLLM's VLLM_CPU_OMP_THREADS_BIND."""
    nice: int = 0
    """Process niceness. A value below 0 (root only) gives the server priority over agents on a shared machine."""
    startup_timeout_s: float = 900.0
    request_timeout_s: float = 1800.0
    probe_tolerance: float = MISSING
    """Maximum difference between log-probabilities of trainer and engine after a weight push."""
    extra_args: list[str] = field(default_factory=list)
    """Appended to vLLM's command line."""

    @override
    def build(self) -> VllmServer:
        return VllmServer(self)


class VllmServer:
    """A `vllm.entrypoints.openai.api_server`. `start` and `stop` own its process tree."""

    def __init__(self, config: VllmConfig) -> None:
        self._config = config
        self.url = ""
        self._process: asyncio.subprocess.Process | None = None
        self._log: Path | None = None
        self._temporary: TemporaryDirectory[str] | None = None

    async def start(
        self,
        *,
        model_folder: Path,
        log: Path,
        weight_backend: str,
        max_context_tokens: int,
        node_address: str = LOOPBACK,
        sleeps: bool = False,
    ) -> str:
        """Start the server and return its URL once it responds.

        Raises ConfigError for a port in use or a model folder without config.json. Raises EngineError with the log's
        last error if the server exits or does not respond in time. Everything that was started is stopped on failure.
        """
        if not (model_folder / "config.json").is_file():
            raise ConfigError(f"{model_folder}: no config.json. Set model.path to a Hugging Face model folder.")
        host = node_address if self._config.host == "auto" else self._config.host
        self._log = log
        self._temporary = TemporaryDirectory(prefix="rl_agent-vllm-", ignore_cleanup_errors=True)
        with hold_port(host, self._config.port, key="engine.port") as held:  # vLLM binds only after half a minute
            port = number(held)
            self.url = f"http://{host}:{port}"
            with log.open("ab") as output:
                self._process = await asyncio.create_subprocess_exec(
                    *_own_process_tree(self._config.nice),
                    sys.executable,
                    "-m",
                    "vllm.entrypoints.openai.api_server",
                    *self._arguments(model_folder, weight_backend, max_context_tokens),
                    *("--host", host, "--port", str(port)),
                    *(("--enable-sleep-mode",) if sleeps else ()),
                    *self._config.extra_args,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=asyncio.subprocess.STDOUT,
                    env=child_environment(self._environment(self._temporary.name)),
                    start_new_session=True,
                    cwd=log.parent,
                )
            _set_session_nice(self._process.pid, self._config.nice)
            await self._started()
        return self.url

    async def _started(self) -> None:
        """Wait until the server responds. Stops everything that was started if it does not."""
        try:
            async with asyncio.timeout(self._config.startup_timeout_s):
                await self._until_healthy()
        except TimeoutError:
            await self.stop()
            raise EngineError(
                f"engine.startup_timeout_s={self._config.startup_timeout_s:.0f}: no response. {self._last_words()}"
            ) from None
        except BaseException:
            await self.stop()
            raise

    def client(self, address: str) -> VllmEngine:
        """See `engine.base.EngineServer`."""
        return VllmEngine(
            url=address,
            request_timeout_s=self._config.request_timeout_s,
            probe_tolerance=self._config.probe_tolerance,
            update_mode=self._config.update_mode,
        )

    def _arguments(self, model_folder: Path, weight_backend: str, max_context_tokens: int) -> list[str]:
        arguments = ["--model", str(model_folder), "--served-model-name", SERVED_NAME]
        arguments += [
            "--dtype",
            self._config.dtype,
            "--max-model-len",
            str(self._config.max_model_len or max_context_tokens),
        ]
        arguments += [
            "--max-num-seqs",
            str(self._config.max_num_seqs),
            "--tensor-parallel-size",
            str(self._config.tensor_parallel),
        ]
        arguments += ["--enable-scale-out", "--disable-uvicorn-access-log", "--enable-prompt-tokens-details"]
        arguments += ["--worker-extension-cls", "rl_agent.weights.vllm_receiver.WorkerExtension"]
        arguments += ["--weight-transfer-config", f'{{"backend":"{weight_backend}"}}']
        if self._config.eager:
            arguments.append("--enforce-eager")
        if self._config.gpu_memory_utilization is not None:
            arguments += ["--gpu-memory-utilization", str(self._config.gpu_memory_utilization)]
        return arguments

    def _environment(self, temporary: str) -> dict[str, str]:
        environment = {
            "TMPDIR": temporary,  # vLLM's sockets and stores outlive killed processes
            "TORCHINDUCTOR_CACHE_DIR": str(Path.home() / ".cache" / "rl_agent" / "torchinductor"),  # not below TMPDIR
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_SERVER_DEV_MODE": "1",  # opens the pause, weight-update and cache endpoints
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(_KEEP_ALIVE_S),
            "KMP_BLOCKTIME": "0",  # a waiting OpenMP thread must not spin on a core that agents need
        }
        if self._config.cpu_kv_cache_gb is not None:
            environment["VLLM_CPU_KVCACHE_SPACE"] = str(self._config.cpu_kv_cache_gb)
        if self._config.cpu_threads_bind is not None:
            environment["VLLM_CPU_OMP_THREADS_BIND"] = self._config.cpu_threads_bind
        return environment

    async def _until_healthy(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
            while True:
                self.require_alive()
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with http.get(f"{self.url}/health") as response:
                        if response.status == 200:
                            return
                await asyncio.sleep(_POLL_S)

    def require_alive(self) -> None:
        """Raise EngineError with the log's last error if the server process has exited."""
        if self._process is not None and self._process.returncode is not None:
            raise EngineError(f"vLLM exited with code {self._process.returncode}. {self._last_words()}")

    async def wait(self) -> None:
        """Wait until the process ends, then raise EngineError."""
        if self._process is None:
            raise EngineError("vLLM is not started. Call `start` first.")
        await self._process.wait()
        self.require_alive()

    async def stop(self) -> None:
        """Stop the process tree and remove its temporary files. Safe to call twice."""
        process, self._process = self._process, None
        temporary, self._temporary = self._temporary, None
        if process is not None and process.returncode is None:
            await self._end(process)
        if temporary is not None:
            await asyncio.to_thread(temporary.cleanup)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S if self.url else 0.1):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _last_words(self) -> str:
        """Return the last error in the log and the log's path."""
        if self._log is None or not self._log.is_file():
            return "There is no log."
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        reasons = [line for line in lines[-_LOG_TAIL:] if _ERROR.search(line) and not _ECHO.search(line)]
        last = (reasons or lines or ["nothing"])[-1]
        return f"The last error in its log: {last[:500]} -- Check the log {self._log} and engine.extra_args."


def _own_process_tree(nice: int) -> list[str]:
    for tool in ("setpriv", "unshare", "nice"):
        if shutil.which(tool) is None:
            raise ConfigError(
                f"`{tool}` not found. It holds vLLM's processes together. Install util-linux and coreutils."
            )
    user = [] if is_root() else ["--user", "--map-current-user"]
    tree = ["setpriv", "--pdeathsig", "KILL", "unshare", *user, "--fork", "--pid", "--mount-proc", "--kill-child=KILL"]
    return [*(["nice", "-n", str(nice)] if nice else []), *tree]


def _set_session_nice(pid: int, nice: int) -> None:
    """Set the niceness of the session. With autogroup scheduling, a process's niceness counts only within it."""
    autogroup = Path(f"/proc/{pid}/autogroup")
    if nice and autogroup.exists():
        with contextlib.suppress(OSError):  # best effort: a run works without it
            autogroup.write_text(str(nice))
