"""Counting of checks, shared by the Python client suites: each prints `N checks passed` or exits non-zero."""

import sys


class Checks:
    """Counts what held; the first thing that does not hold ends the run."""

    def __init__(self, name):
        self.name = name
        self.count = 0

    def equal(self, got, expected, what):
        if got != expected or type(got) is not type(expected):
            print(f"{self.name}: {what}: expected {expected!r}, got {got!r}")
            sys.exit(1)
        self.count += 1

    def true(self, value, what):
        self.equal(bool(value), True, what)

    def raises(self, kind, sqlstate, call, what):
        try:
            call()
        except kind as error:
            code = getattr(error, "sqlstate", None) or getattr(getattr(error, "orig", None), "sqlstate", None)
            self.equal(code, sqlstate, what)
            return
        print(f"{self.name}: {what}: expected {sqlstate}, but nothing was raised")
        sys.exit(1)

    def done(self, minimum):
        if self.count < minimum:
            print(f"{self.name}: only {self.count} of at least {minimum} checks ran")
            sys.exit(1)
        print(f"{self.count} checks passed")
