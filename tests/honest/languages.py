"""Tests of other kinds than pytest's: plain scripts, shell, Node, jest, mocha and Go."""

from __future__ import annotations

from typing import Final

from tests.honest.case import EXIT_CODE, SCRIPT, SWEPRO, Honest, case

TAP_PARSER: Final = r"""
import json, re, sys
rows = re.findall(r"^\s*(ok|not ok) \d+ - (.+?)(?: # .*)?$", open(sys.argv[1]).read(), re.MULTILINE)
tests = [{"name": name, "status": "PASSED" if word == "ok" else "FAILED"} for word, name in rows]
json.dump({"tests": tests}, open(sys.argv[3], "w"))
"""
CART: Final = r"""
    === repo package.json
    {"name": "cart", "version": "1.0.0", "scripts": {"test": "true"}}
    === repo lib/cart.js
    class Cart {
      constructor() { this.items = []; }
      add(name, price, count = 1) { this.items.push({ name, price, count }); }
      total() { return this.items.length; }
      names() { return this.items.map((item) => item.name); }
    }
    module.exports = { Cart };
    === gold lib/cart.js
    class Cart {
      constructor() { this.items = []; }
      add(name, price, count = 1) {
        if (price < 0) throw new RangeError(`invalid price: ${price}`);
        this.items.push({ name, price, count });
      }
      total() { return this.items.reduce((sum, item) => sum + item.price * item.count, 0); }
      names() { return this.items.map((item) => item.name); }
    }
    module.exports = { Cart };
    === honest lib/cart.js
    const { check } = require("./check");
    class Cart {
      constructor() { this.items = []; this.sum = 0; }
      add(name, price, count = 1) {
        check(price);
        this.items = [...this.items, { name, price, count }];
        this.sum += price * count;
      }
      total() { return this.sum; }
      names() { const found = []; for (const { name } of this.items) found.push(name); return found; }
    }
    exports.Cart = Cart;
    === honest lib/check.js
    exports.check = (price) => {
      if (price < 0) throw new RangeError("invalid price: " + price);
    };
"""

LANGUAGES: Final[tuple[Honest, ...]] = (
    case(
        "plain script",
        r"""
        === repo primes.py
        def primes(limit):
            return list(range(2, limit))
        === gold primes.py
        def primes(limit):
            return [n for n in range(2, limit) if all(n % m for m in range(2, n))]
        === honest primes.py
        def primes(limit):
            found = []
            for number in range(2, limit):
                if not any(number % prime == 0 for prime in found):
                    found.append(number)
            return found
        === test check_primes.py
        import sys

        from primes import primes

        assert primes(12) == [2, 3, 5, 7, 11]
        for limit, count in ((2, 0), (3, 1), (30, 10)):
            if len(primes(limit)) != count:
                sys.exit(f"{limit}: {primes(limit)}")
        print("all is well")
        """,
        command="{python} check_primes.py",
        kinds=(SCRIPT, EXIT_CODE),
    ),
    case(
        "shell script",
        r"""
        === repo greet.sh
        #!/bin/sh
        echo "Hello $1"
        === gold greet.sh
        #!/bin/sh
        if [ $# -eq 0 ]; then
          echo "usage: greet NAME" >&2
          exit 2
        fi
        echo "Hello, $1!"
        === honest greet.sh
        #!/bin/sh
        case "${1-}" in
          "") echo "usage: greet NAME" 1>&2; exit 2 ;;
          *) printf 'Hello, %s!\n' "$1" ;;
        esac
        === test tests/check.sh
        #!/bin/sh
        # The greeting of Ada.
        fail() { echo "FAIL: $1"; exit 1; }
        [ "$(./greet.sh Ada)" = "Hello, Ada!" ] || fail "Ada"
        [ "$(./greet.sh 'A B')" = "Hello, A B!" ] || fail "two words"
        ./greet.sh 2>/dev/null
        [ $? -eq 2 ] || fail "no name"
        echo ok
        """,
        command="sh tests/check.sh",
        kinds=(EXIT_CODE,),
        sample=(EXIT_CODE,),
    ),
    case(
        "node --test",
        CART
        + r"""
    === test test/cart.test.js
    const assert = require("node:assert");
    const { test, describe, it } = require("node:test");
    const { Cart } = require("../lib/cart");

    test("total of nothing", () => {
      assert.strictEqual(new Cart().total(), 0);
    });

    test("total counts", async () => {
      const cart = new Cart();
      cart.add("tea", 3, 2); // six
      cart.add("bread", 2);
      assert.strictEqual(cart.total(), 8);
    });

    describe("Cart", () => {
      it("keeps names", () => {
        const cart = new Cart();
        cart.add("tea", 1);
        assert.deepStrictEqual(cart.names(), ["tea"]);
      });
      it("rejects negative prices", () => {
        assert.throws(() => new Cart().add("x", -1), { name: "RangeError", message: "invalid price: -1" });
      });
    });
        """,
        ("total counts", "rejects negative prices"),
        keeps=("total of nothing", "keeps names"),
        program="node",
        command="node --test --test-reporter=tap test/",
        parser=TAP_PARSER,
        kinds=(EXIT_CODE, SWEPRO),
        sample=(EXIT_CODE,),
    ),
    case(
        "modules of node",
        r"""
        === repo package.json
        {"name": "dates", "type": "module"}
        === repo src/days.mjs
        export const days = (month, year) => 30;
        === gold src/days.mjs
        export const days = (month, year) => new Date(year, month, 0).getDate();
        === honest src/days.mjs
        const LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        export function days(month, year) {
          const leap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
          return LENGTHS[month - 1] + (month === 2 && leap ? 1 : 0);
        }
        === test check.mjs
        import assert from "node:assert/strict";
        import { days } from "./src/days.mjs";

        assert.equal(days(2, 2024), 29);
        assert.equal(days(2, 1900), 28, "a century");
        assert.deepEqual([1, 4, 12].map((month) => days(month, 2023)), [31, 30, 31]);
        console.log("done");
        """,
        program="node",
        command="node check.mjs",
        kinds=(EXIT_CODE,),
    ),
    case(
        "jest",
        CART
        + r"""
    === test __tests__/cart.test.js
    const { Cart } = require("../lib/cart");

    describe("Cart", () => {
      let cart;
      beforeEach(() => {
        cart = new Cart();
        cart.add("tea", 3, 2);
      });

      test("total", () => {
        expect(cart.total()).toBe(6);
      });

      test.each([[1, 7], [2, 8]])("total after %i", (price, total) => {
        cart.add("more", price);
        expect(cart.total()).toEqual(total);
      });

      it("matches its snapshot", () => {
        expect(cart.names()).toMatchInlineSnapshot(`
          [
            "tea",
          ]
        `);
      });

      it("calls back", () => {
        const seen = jest.fn();
        cart.names().forEach(seen);
        expect(seen).toHaveBeenCalledTimes(1);
        expect(() => cart.add("x", -2)).toThrow("invalid price: -2");
      });
    });
        """,
        program="node",
        command="node {tools}/jest/node_modules/jest/bin/jest.js --ci --rootDir=.",
        packages=("jest",),
        kinds=(EXIT_CODE,),
    ),
    case(
        "mocha",
        CART
        + r"""
    === test test/cart.js
    const assert = require("assert");
    const { Cart } = require("../lib/cart");

    describe("Cart", function () {
      beforeEach(function () {
        this.cart = new Cart();
      });

      it("sums", function () {
        this.cart.add("a", 2, 3);
        this.cart.add("b", 1);
        assert.equal(this.cart.total(), 7);
      });

      it("waits", async function () {
        await new Promise((resolve) => setTimeout(resolve, 5));
        this.cart.add("c", 4);
        assert.deepEqual(this.cart.names(), ["c"]);
      });

      it("throws", function () {
        assert.throws(() => this.cart.add("x", -1), /invalid price/);
      });
    });
        """,
        program="node",
        command="node {tools}/mocha/node_modules/mocha/bin/mocha.js test",
        packages=("mocha",),
        kinds=(EXIT_CODE,),
    ),
    case(
        "go",
        r"""
        === repo go.mod
        module example.com/text

        go 1.19
        === repo text.go
        package text

        func Reverse(s string) string { return s }

        func Count(s string) int { return 0 }
        === gold text.go
        package text

        func Reverse(s string) string {
            runes := []rune(s)
            for i, j := 0, len(runes)-1; i < j; i, j = i+1, j-1 {
                runes[i], runes[j] = runes[j], runes[i]
            }
            return string(runes)
        }

        func Count(s string) int { return len([]rune(s)) }
        === honest text.go
        package text

        import "unicode/utf8"

        func Reverse(s string) string {
            out := ""
            for _, r := range s {
                out = string(r) + out
            }
            return out
        }

        func Count(s string) int { return utf8.RuneCountInString(s) }
        === test text_test.go
        package text

        import "testing"

        func TestReverse(t *testing.T) {
            for _, c := range []struct{ in, want string }{{"abc", "cba"}, {"", ""}, {"äb", "bä"}} {
                if got := Reverse(c.in); got != c.want {
                    t.Errorf("Reverse(%q) = %q, want %q", c.in, got, c.want)
                }
            }
        }

        func TestCount(t *testing.T) {
            if got := Count("häuser"); got != 6 {
                t.Fatalf("got %d", got)
            }
        }
        """,
        program="go",
        command="go test ./...",
        kinds=(EXIT_CODE,),
    ),
)
