"""Doctests of modules, tests and text files."""

from __future__ import annotations

from typing import Final

from tests.honest.case import BY_NAME, WITH_NAMES, Honest, case

DOCTESTS: Final[tuple[Honest, ...]] = (
    case(
        "doctests of modules",
        r"""
        === repo text/__init__.py
        from text.pad import pad
        === repo text/pad.py
        from text import _impl


        def pad(word, width):
            '''Pad a word.

            >>> pad("ab", 4)
            'ab  '
            >>> pad("abc", 2)
            'abc'
            '''
            return _impl.fill(word, width)


        class Padder:
            def __init__(self, width):
                '''Set the width.

                >>> Padder(3)("x")
                'x  '
                '''
                self.width = width

            def __call__(self, word):
                return pad(word, self.width)
        === repo text/_impl.py
        def fill(word, width):
            return word
        === gold text/_impl.py
        def fill(word, width):
            return word.ljust(width)
        === honest text/_impl.py
        def fill(word, width):
            return word + " " * max(0, width - len(word))
        """,
        ("text/pad.py::text.pad.pad", "text/pad.py::text.pad.Padder.__init__"),
        options="--doctest-modules",
        kinds=BY_NAME,
    ),
    case(
        "doctests of the module that is fixed",
        r"""
        === repo money.py
        def euros(cents):
            '''Return an amount in euros.

            >>> euros(200)
            '2.00'
            '''
            return f"{cents // 100}.00"
        === gold money.py
        def euros(cents):
            '''Return an amount in euros.

            >>> euros(200)
            '2.00'
            '''
            return f"{cents / 100:.2f}"
        === honest money.py
        '''Amounts of money.

        >>> euros(5)
        '0.05'
        '''


        def euros(cents):
            '''Return an amount in euros.

            >>> euros(200)
            '2.00'
            >>> euros(123)
            '1.23'
            '''
            return "%d.%02d" % divmod(cents, 100)
        === test tests/test_money.py
        from money import euros


        def test_cents():
            assert euros(199) == "1.99"


        def test_few():
            assert euros(7) == "0.07"
        """,
        "test_cents test_few",
        keeps="money.py::money.euros",
        options="--doctest-modules",
        kinds=BY_NAME,
        sample=(WITH_NAMES,),
    ),
    case(
        "doctests of text files and tests",
        r"""
        === repo shop.py
        PRICES = {"tea": 3, "bread": 2}


        def price(*names):
            return PRICES[names[0]]
        === gold shop.py
        PRICES = {"tea": 3, "bread": 2}


        def price(*names):
            return sum(PRICES[name] for name in names)
        === honest shop.py
        PRICES = {"tea": 3, "bread": 2}


        def price(*names):
            total = 0
            for name in names:
                total += PRICES[name]
            return total
        === test docs/usage.txt
        How to ask for a price
        ======================

        >>> from shop import price
        >>> price("tea")
        3
        >>> price("tea", "bread")
        5

        Several lines:

        >>> for name in ("tea", "bread"):
        ...     print(name, price(name, name))
        tea 6
        bread 4
        === test tests/test_shop.py
        from shop import price


        def spread(*names):
            '''
            >>> spread("tea", "bread")
            'tea+bread: 5'
            '''
            return "+".join(names) + f": {price(*names)}"


        def test_price():
            '''
            >>> test_price()
            '''
            assert price("bread", "bread", "bread") == 6
        """,
        (
            *("docs/usage.txt::usage.txt", "tests/test_shop.py::test_shop.spread"),
            *("tests/test_shop.py::test_shop.test_price", "tests/test_shop.py::test_price"),
        ),
        options="--doctest-modules --doctest-glob='*.txt'",
        kinds=BY_NAME,
    ),
)
