"""Checks `cargo metadata` on standard input: every dependency comes from crates.io under a licence that we accept.

A stand-in for cargo-deny's licences and sources, which takes minutes to build.
"""

import json
import re
import sys

ACCEPTED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0",
    "CDLA-Permissive-2.0", "ISC", "MIT", "Unicode-3.0", "Zlib",
}  # fmt: skip
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def accepted(expression):
    """Whether a licence expression of AND, OR, `/` (the old OR) and parentheses can be met."""
    tokens = re.findall(r"\(|\)|/|[^\s()/]+", expression or "")
    words, i = [], 0
    while i < len(tokens):
        t = tokens[i]
        if t in ("(", ")", "AND", "OR", "/"):
            words.append({"AND": "and", "OR": "or", "/": "or"}.get(t, t))
            i += 1
            continue
        if tokens[i + 1 : i + 2] == ["WITH"]:
            t = "%s WITH %s" % (t, tokens[i + 2])
            i += 2
        words.append(str(t in ACCEPTED))
        i += 1
    return bool(words) and eval(" ".join(words), {"__builtins__": {}})  # only True, False, and, or, parentheses


def main():
    packages = json.load(sys.stdin)["packages"]
    bad = []
    for p in packages:
        name = "%s %s" % (p["name"], p["version"])
        if p["source"] not in (None, CRATES_IO):
            bad.append("%s comes from %s" % (name, p["source"]))
        if not accepted(p["license"]):
            bad.append("%s: licence %s" % (name, p["license"]))
    print("\n".join(bad) or "%d packages, all from crates.io under accepted licences" % len(packages))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
