"""Tests that need plug-ins of pytest."""

from __future__ import annotations

from typing import Final

from tests.honest.case import NAMED, NO_SCRIPT, SWEPRO, WITH_NAMES, Honest, case

ASYNCIO: Final = ("pytest-asyncio", "typing-extensions")
TRIO: Final = ("trio", "attrs", "sortedcontainers", "idna", "outcome", "sniffio")
XDIST: Final = ("pytest-xdist", "execnet")
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

PLUGINS: Final[tuple[Honest, ...]] = (
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
    case(
        "hypothesis",
        """
    === repo runs.py
    def encode(text):
        return [(sign, 1) for sign in text]


    def decode(pairs):
        return "".join(sign * count for sign, count in pairs)
    === gold runs.py
    from itertools import groupby


    def encode(text):
        return [(sign, len(list(group))) for sign, group in groupby(text)]


    def decode(pairs):
        return "".join(sign * count for sign, count in pairs)
    === honest runs.py
    def encode(text):
        pairs = []
        for sign in text:
            if pairs and pairs[-1][0] == sign:
                pairs[-1] = (sign, pairs[-1][1] + 1)
            else:
                pairs.append((sign, 1))
        return pairs


    def decode(pairs):
        return "".join(sign * count for sign, count in pairs)
    === test tests/test_runs.py
    import string

    from hypothesis import example, given, settings
    from hypothesis import strategies as st

    from runs import decode, encode


    @settings(deadline=None, max_examples=20)
    @given(st.text(alphabet=string.ascii_lowercase))
    def test_round_trip(text):
        assert decode(encode(text)) == text


    @settings(deadline=None, max_examples=20)
    @given(st.text())
    @example("aab")
    def test_neighbours_differ(text):
        signs = [sign for sign, _ in encode(text)]
        assert all(a != b for a, b in zip(signs, signs[1:]))


    @settings(deadline=None, max_examples=5)
    @given(count=st.integers(min_value=1, max_value=9))
    def test_one_run(count):
        assert encode("x" * count) == [("x", count)]


    def test_example():
        assert encode("aab") == [("a", 2), ("b", 1)]
        """,
        "test_neighbours_differ test_one_run test_example",
        keeps="test_round_trip",
        packages=("hypothesis", "attrs", "sortedcontainers"),
    ),
    case(
        "reruns",
        """
    === repo calc.py
    def add(a, b):
        return a - b
    === gold calc.py
    def add(a, b):
        return a + b
    === honest calc.py
    def add(a, b):
        return sum((a, b))
    === test tests/test_calc.py
    import pytest

    from calc import add

    tries = []


    @pytest.mark.flaky(reruns=2)
    def test_over_the_network():
        tries.append(1)
        assert len(tries) > 1, "connection reset"
        assert add(2, 3) == 5


    def test_add():
        assert add(1, 1) == 2
        """,
        "test_over_the_network test_add",
        packages=("pytest-rerunfailures",),
        sample=(SWEPRO,),
    ),
    case(
        "xdist by the command",
        """
    === repo matrix.py
    def transpose(rows):
        return rows
    === gold matrix.py
    def transpose(rows):
        return [list(column) for column in zip(*rows)]
    === honest matrix.py
    def transpose(rows):
        width = len(rows[0]) if rows else 0
        return [[row[place] for row in rows] for place in range(width)]
    === test tests/test_matrix.py
    import pytest

    from matrix import transpose


    @pytest.mark.parametrize("size", [2, 3, 4])
    def test_twice(size):
        rows = [[n * size + m for m in range(size)] for n in range(size)]
        assert transpose(transpose(rows)) == rows
        assert transpose(rows)[0][1] == size


    def test_wide():
        assert transpose([[1, 2, 3]]) == [[1], [2], [3]]


    def test_empty():
        assert transpose([]) == []


    class TestHigh:
        def test_high(self):
            assert transpose([[1], [2]]) == [[1, 2]]
        """,
        "test_twice[2] test_twice[3] test_twice[4] test_wide TestHigh::test_high",
        keeps="test_empty",
        options="-n 2",
        packages=XDIST,
        sample=(WITH_NAMES,),
    ),
    case(
        "xdist by the repository's options",
        """
    === repo pyproject.toml
    [tool.pytest.ini_options]
    addopts = "-n 2 --dist loadgroup -x"
    === repo ledger.py
    class Ledger:
        def __init__(self):
            self.entries = []

        def book(self, amount):
            self.entries = [amount]

        @property
        def balance(self):
            return sum(self.entries)
    === gold ledger.py
    class Ledger:
        def __init__(self):
            self.entries = []

        def book(self, amount):
            self.entries.append(amount)

        @property
        def balance(self):
            return sum(self.entries)
    === honest ledger.py
    class Ledger:
        def __init__(self):
            self.balance = 0

        def book(self, amount):
            self.balance += amount
    === test tests/test_ledger.py
    import pytest

    from ledger import Ledger

    shared = Ledger()


    @pytest.mark.xdist_group("shared")
    def test_first():
        shared.book(5)
        assert shared.balance == 5


    @pytest.mark.xdist_group("shared")
    def test_second():
        shared.book(7)
        assert shared.balance in (7, 12)


    def test_two():
        ledger = Ledger()
        ledger.book(1)
        ledger.book(2)
        assert ledger.balance == 3


    def test_three():
        ledger = Ledger()
        for amount in (1, -1, 4):
            ledger.book(amount)
        assert ledger.balance == 4
        assert ledger.balance + 1 == 5
        ledger.book(4)
        assert ledger.balance == 8
        """,
        "test_two test_three",
        keeps="test_first@shared test_second@shared",
        packages=XDIST,
        kinds=NO_SCRIPT,
    ),
    case(
        "coverage that is met",
        """
    === repo setup.cfg
    [tool:pytest]
    addopts = --cov=branch --cov-branch --cov-fail-under=60
    === repo branch.py
    def sign(number):
        return 0


    def unused():
        return 1
    === gold branch.py
    def sign(number):
        if number > 0:
            return 1
        return -1 if number < 0 else 0


    def unused():
        return 1
    === honest branch.py
    def sign(number):
        return (number > 0) - (number < 0)


    def unused():
        return 1
    === test tests/test_branch.py
    from branch import sign


    def test_positive():
        assert sign(9) == 1


    def test_negative():
        assert sign(-3) == -1


    def test_zero():
        assert sign(0) == 0
        """,
        "test_positive test_negative",
        keeps="test_zero",
        packages=("pytest-cov", "coverage"),
    ),
    case(
        "coverage that is missed",
        """
    === repo branch.py
    def sign(number):
        return 0


    def unused(number):
        if number:
            return 1
        return 2
    === gold branch.py
    def sign(number):
        if number > 0:
            return 1
        return -1 if number < 0 else 0


    def unused(number):
        if number:
            return 1
        return 2
    === honest branch.py
    def sign(number):
        return (number > 0) - (number < 0)


    def unused(number):
        if number:
            return 1
        return 2
    === test tests/test_branch.py
    from branch import sign


    def test_positive():
        assert sign(9) == 1


    def test_negative():
        assert sign(-3) == -1
        """,
        "test_positive test_negative",
        options="--cov=branch --cov-fail-under=100",
        packages=("pytest-cov", "coverage"),
        kinds=(NAMED, SWEPRO),
    ),
    case(
        "random order",
        """
    === repo ring.py
    class Ring:
        def __init__(self, *items):
            self.items = list(items)

        def turn(self, steps=1):
            return self.items
    === gold ring.py
    class Ring:
        def __init__(self, *items):
            self.items = list(items)

        def turn(self, steps=1):
            steps %= len(self.items)
            self.items = self.items[steps:] + self.items[:steps]
            return self.items
    === honest ring.py
    from collections import deque


    class Ring:
        def __init__(self, *items):
            self.items = deque(items)

        def turn(self, steps=1):
            self.items.rotate(-steps)
            return list(self.items)
    === test tests/test_ring.py
    import random

    import pytest

    from ring import Ring


    @pytest.mark.parametrize("steps, expected", [(1, [2, 3, 1]), (2, [3, 1, 2]), (4, [2, 3, 1]), (5, [3, 1, 2])])
    def test_turn(steps, expected):
        assert Ring(1, 2, 3).turn(steps) == expected


    @pytest.mark.parametrize("expected", ["bca", "cab"])
    def test_text(expected):
        steps = "abc".index(expected[0])
        assert "".join(Ring(*"abc").turn(steps)) == expected


    def test_chance():
        steps = random.randrange(1, 4)
        assert Ring(*range(5)).turn(steps)[0] == steps


    class TestBack:
        def test_back(self):
            assert Ring(1, 2).turn(-1) == [2, 1]

        def test_none(self):
            assert Ring(1, 2).turn(0) == [1, 2]
        """,
        (
            *("test_turn[1-expected0]", "test_turn[2-expected1]", "test_turn[4-expected2]", "test_turn[5-expected3]"),
            *("test_text[bca]", "test_text[cab]", "test_chance", "TestBack::test_back"),
        ),
        keeps="TestBack::test_none",
        packages=("pytest-randomly",),
    ),
    case(
        "time limits",
        """
    === repo pytest.ini
    [pytest]
    timeout = 5
    === repo wait.py
    import time


    def wait_until(condition, tries=3):
        while not condition():
            time.sleep(0.001)
        return True
    === gold wait.py
    import time


    def wait_until(condition, tries=3):
        for _ in range(tries):
            if condition():
                return True
            time.sleep(0.001)
        return False
    === honest wait.py
    from time import sleep


    def wait_until(condition, tries=3):
        while tries > 0 and not condition():
            tries -= 1
            sleep(0.0005)
        return tries > 0
    === test tests/test_wait.py
    import signal

    import pytest

    from wait import wait_until


    @pytest.mark.timeout(1)
    def test_gives_up():
        assert wait_until(lambda: False) is False


    @pytest.mark.timeout(1, method="signal")
    def test_third_time():
        answers = iter([False, False, True])
        assert wait_until(lambda: next(answers)) is True


    def test_own_alarm():
        rung = []
        before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not rung:
            signal.pause()
        signal.signal(signal.SIGALRM, before)
        assert wait_until(lambda: rung == [1]) == True


    @pytest.mark.timeout(1)
    def test_a_wrong_number_waits_for_ever():
        wanted, counted = 4, 0
        while counted != wanted:
            counted += 2
        assert wait_until(lambda: counted == wanted, tries=wanted) is True
        assert wait_until(lambda: counted < wanted, tries=wanted) is False
        """,
        "test_gives_up test_a_wrong_number_waits_for_ever",
        keeps="test_third_time test_own_alarm",
        packages=("pytest-timeout",),
    ),
    case(
        "pytest-mock",
        """
    === repo mailer.py
    import smtplib


    def notify(address, text):
        return False
    === gold mailer.py
    import smtplib


    def notify(address, text):
        with smtplib.SMTP("localhost") as server:
            server.sendmail("me@localhost", [address], text)
        return True
    === honest mailer.py
    import contextlib
    import smtplib


    def notify(address, text):
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(smtplib.SMTP("localhost"))
            server.sendmail("me@localhost", [address], text)
            return True
    === test tests/test_mailer.py
    import mailer


    def test_sends(mocker):
        smtp = mocker.patch("smtplib.SMTP")
        assert mailer.notify("you@there", "hi") is True
        server = smtp.return_value.__enter__.return_value
        server.sendmail.assert_called_once_with("me@localhost", ["you@there"], "hi")


    def test_connects_here(mocker):
        spy = mocker.patch.object(mailer.smtplib, "SMTP")
        mailer.notify("a", "b")
        assert spy.call_args_list == [mocker.call("localhost")]


    def test_stub(mocker):
        stub = mocker.stub()
        mocker.patch("mailer.notify", side_effect=stub)
        mailer.notify("x")
        stub.assert_called_once_with("x")
        """,
        "test_sends test_connects_here",
        keeps="test_stub",
        packages=("pytest-mock",),
    ),
    case(
        "a fake file system",
        """
    === repo backup.py
    import os
    import shutil


    def backup(path):
        return path
    === gold backup.py
    import os
    import shutil


    def backup(path):
        target = f"{path}.bak"
        shutil.copyfile(path, target)
        return target
    === honest backup.py
    import pathlib


    def backup(path):
        source = pathlib.Path(path)
        target = source.with_name(source.name + ".bak")
        target.write_bytes(source.read_bytes())
        return str(target)
    === test tests/test_backup.py
    import os

    import pytest

    from backup import backup


    def test_backup(fs):
        fs.create_file("/data/notes.txt", contents="hello")
        assert backup("/data/notes.txt") == "/data/notes.txt.bak"
        with open("/data/notes.txt.bak") as file:
            assert file.read() == "hello"


    def test_both_are_there(fs):
        fs.create_file("/x/y")
        backup("/x/y")
        assert sorted(os.listdir("/x")) == ["y", "y.bak"]


    def test_missing(fs):
        with pytest.raises(FileNotFoundError):
            open(backup("/none"))
        """,
        "test_backup test_both_are_there",
        keeps="test_missing",
        packages=("pyfakefs",),
    ),
)
