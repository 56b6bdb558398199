"""Asynchronous tests."""

from __future__ import annotations

from typing import Final

from tests.honest.case import NAMED, WITH_NAMES, Honest, case

ASYNCIO: Final = ("pytest-asyncio", "typing-extensions")
TRIO: Final = ("trio", "attrs", "sortedcontainers", "idna", "outcome", "sniffio")
CACHE: Final = """
    === repo cache.py
    import asyncio


    class Cache:
        def __init__(self, fetch):
            self.fetch = fetch
            self.values = {}

        async def get(self, key):
            return await self.fetch(key)
    === gold cache.py
    import asyncio


    class Cache:
        def __init__(self, fetch):
            self.fetch = fetch
            self.values = {}
            self.lock = asyncio.Lock()

        async def get(self, key):
            async with self.lock:
                if key not in self.values:
                    self.values[key] = await self.fetch(key)
                return self.values[key]
    === honest cache.py
    import asyncio


    class Cache:
        def __init__(self, fetch):
            self.fetch = fetch
            self.tasks = {}

        async def get(self, key):
            if key not in self.tasks:
                self.tasks[key] = asyncio.ensure_future(self.fetch(key))
            return await self.tasks[key]
"""


ASYNCHRONOUS: Final[tuple[Honest, ...]] = (
    case(
        "asyncio, strict mode",
        CACHE
        + """
    === test tests/test_cache.py
    import asyncio

    import pytest
    import pytest_asyncio

    from cache import Cache


    @pytest_asyncio.fixture
    async def cache():
        calls = []

        async def fetch(key):
            await asyncio.sleep(0)
            calls.append(key)
            return key.upper()

        made = Cache(fetch)
        made.calls = calls
        yield made


    @pytest.mark.asyncio
    async def test_value(cache):
        assert await cache.get("a") == "A"


    @pytest.mark.asyncio
    async def test_fetches_once(cache):
        assert await asyncio.gather(*(cache.get("a") for _ in range(3))) == ["A", "A", "A"]
        assert cache.calls == ["a"]


    @pytest.mark.asyncio
    class TestTwo:
        async def test_keys(self, cache):
            await cache.get("a"), await cache.get("b"), await cache.get("a")
            assert cache.calls == ["a", "b"]
        """,
        "test_fetches_once TestTwo::test_keys",
        keeps="test_value",
        packages=ASYNCIO,
    ),
    case(
        "asyncio, auto mode, older",
        CACHE
        + """
    === repo pytest.ini
    [pytest]
    asyncio_mode = auto
    === test tests/test_cache.py
    import asyncio

    import pytest

    from cache import Cache


    @pytest.fixture
    async def calls():
        return []


    async def test_fetches_once(calls):
        async def fetch(key):
            calls.append(key)
            await asyncio.sleep(0.001)
            return len(calls)

        cache = Cache(fetch)
        first, second = await asyncio.gather(cache.get("x"), cache.get("x"))
        assert first == second == 1


    @pytest.mark.parametrize("keys, expected", [("aab", 2), ("abc", 3), ("aaa", 1)])
    async def test_count(calls, keys, expected):
        async def fetch(key):
            calls.append(key)

        cache = Cache(fetch)
        for key in keys:
            await cache.get(key)
        assert len(calls) == expected
        """,
        "test_fetches_once test_count[aab-2] test_count[aaa-1]",
        keeps="test_count[abc-3]",
        packages=("pytest-asyncio-0.21.2", "typing-extensions"),
        old=True,
        sample=(NAMED,),
    ),
    case(
        "asyncio tests that wait forever if they are wrong",
        """
    === repo pipe.py
    import asyncio


    class Pipe:
        def __init__(self):
            self.queue = asyncio.Queue()

        def send(self, *items):
            for item in items:
                self.queue.put_nowait(item)

        async def receive(self):
            return await self.queue.get()
    === gold pipe.py
    import asyncio


    class Pipe:
        def __init__(self):
            self.queue = asyncio.Queue()

        def send(self, *items):
            for item in reversed(items):
                self.queue.put_nowait(item)

        async def receive(self):
            return await self.queue.get()
    === honest pipe.py
    import asyncio


    class Pipe:
        def __init__(self):
            self.queue = asyncio.LifoQueue()

        def send(self, *items):
            for item in items:
                self.queue.put_nowait(item)

        async def receive(self):
            return await self.queue.get()
    === test tests/test_pipe.py
    import pytest

    from pipe import Pipe


    async def until(pipe, wanted):
        seen = []
        while not seen or seen[-1] != wanted:
            seen.append(await pipe.receive())
        return seen


    def assert_next(pipe, wanted):
        return until(pipe, wanted)


    @pytest.mark.asyncio
    async def test_last_comes_first():
        pipe = Pipe()
        pipe.send(1, 2, 3)
        await assert_next(pipe, 3)
        assert await pipe.receive() == 2


    @pytest.mark.asyncio
    async def test_all():
        pipe = Pipe()
        pipe.send("a", "b")
        expected = ["b", "a"]
        assert await until(pipe, expected[-1]) == expected


    @pytest.mark.asyncio
    async def test_one():
        pipe = Pipe()
        pipe.send("x")
        await assert_next(pipe, "x")
        """,
        "test_last_comes_first test_all",
        keeps="test_one",
        packages=ASYNCIO,
        kinds=(NAMED, WITH_NAMES),
        changes={"test_limit_s": 5.0},
    ),
    case(
        "anyio",
        """
    === repo relay.py
    async def relay(items, send):
        for item in items:
            await send(item)
    === gold relay.py
    import anyio


    async def relay(items, send):
        async with anyio.create_task_group() as group:
            for item in items:
                group.start_soon(send, item)
        return len(items)
    === honest relay.py
    import anyio


    async def relay(items, send):
        limiter = anyio.CapacityLimiter(2)

        async def one(item):
            async with limiter:
                await send(item)

        async with anyio.create_task_group() as group:
            for item in items:
                group.start_soon(one, item)
        return len([*items])
    === test tests/test_relay.py
    import anyio
    import pytest

    from relay import relay

    pytestmark = pytest.mark.anyio


    @pytest.fixture
    def anyio_backend():
        return "asyncio"


    @pytest.fixture
    async def seen():
        yield set()


    async def test_relay(seen):
        async def send(item):
            await anyio.sleep(0)
            seen.add(item)

        assert await relay([1, 2, 3], send) == 3
        assert seen == {1, 2, 3}


    async def test_both_at_once():
        event = anyio.Event()

        async def send(item):
            if item:
                event.set()
            with anyio.fail_after(2):
                await event.wait()

        assert await relay([0, 1], send) == 2


    @pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
    async def test_on(anyio_backend, seen):
        async def send(item):
            seen.add((anyio_backend, item))

        await relay("ab", send)
        assert await relay("", send) == 0
        assert len(seen) == 2
        """,
        "test_relay test_both_at_once test_on[asyncio] test_on[trio]",
        packages=("anyio", "typing-extensions", *TRIO),
    ),
    case(
        "trio",
        """
    === repo timer.py
    import trio


    async def within(seconds, work):
        await work()
        return True
    === gold timer.py
    import trio


    async def within(seconds, work):
        with trio.move_on_after(seconds) as scope:
            await work()
        return not scope.cancelled_caught
    === honest timer.py
    import trio


    async def within(seconds, work):
        try:
            with trio.fail_after(seconds):
                await work()
        except trio.TooSlowError:
            return False
        return True
    === test tests/test_timer.py
    import pytest
    import trio

    from timer import within


    @pytest.fixture
    async def sleeper(nursery):
        event = trio.Event()
        nursery.start_soon(event.wait)
        yield event.wait
        event.set()


    @pytest.mark.trio
    async def test_too_slow(autojump_clock):
        assert await within(3, trio.sleep_forever) is False
        assert trio.current_time() == pytest.approx(autojump_clock.current_time())


    @pytest.mark.trio
    async def test_in_time(autojump_clock):
        start = trio.current_time()
        assert await within(5, lambda: trio.sleep(2)) is True
        assert trio.current_time() - start == 2


    @pytest.mark.trio
    async def test_event(sleeper, autojump_clock):
        assert await within(1, sleeper) == False
        """,
        "test_too_slow test_event",
        keeps="test_in_time",
        packages=(*TRIO, "pytest-trio"),
    ),
)
