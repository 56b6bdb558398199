"""Tests that generate examples, or replace functions and files."""

from __future__ import annotations

from typing import Final

from tests.honest.case import Honest, case

DOUBLES: Final[tuple[Honest, ...]] = (
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
