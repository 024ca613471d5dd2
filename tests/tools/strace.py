"""Reads the output of `strace -f -yy -xx -s BIG` into calls with the order in which they began and ended.

strace handles one stop at a time, so the order of its lines is an order that the traced threads could not have
contradicted: a call whose line comes after another's end began after it ended.
"""

import re

_CALL = re.compile(r"^(\d+) +(\w+)\((\d+)<(.*?)>(?=[,)]| <unfinished)")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>.*\) += (-?\d+)")
_DONE = re.compile(r"\) += (-?\d+)(?: |$)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


def _unhex(text):
    return bytes.fromhex(text.replace("\\x", ""))


class Call:
    """One system call on a descriptor."""

    def __init__(self, name, target, data, began):
        self.name, self.target, self.data, self.began = name, target, data, began
        self.ended = self.result = None


def target_of(text):
    """A file's path, or strace's words for a socket: TCP:[LOCAL->PEER]."""
    if text.startswith("\\x"):
        return _unhex(re.match(r"(?:\\x[0-9a-f]{2})*", text).group(0)).decode(errors="replace")
    return text


def calls(lines):
    """All calls, in the order in which they began. A call that never ended has `ended` None."""
    out, open_calls = [], {}
    for number, line in enumerate(lines):
        m = _RESUMED.match(line)
        if m:
            call = open_calls.pop(m.group(1), None)
            if call is not None:
                call.ended, call.result = number, int(m.group(3))
            continue
        m = _CALL.match(line)
        if not m:
            continue
        parts = _TEXT.findall(line[m.end() :])
        if any(cut for _, cut in parts):
            raise ValueError("line %d was cut short: a larger -s is needed" % (number + 1))
        call = Call(m.group(2), target_of(m.group(4)), b"".join(_unhex(t) for t, _ in parts), number)
        out.append(call)
        if line.rstrip().endswith("<unfinished ...>"):
            open_calls[m.group(1)] = call
        else:
            done = _DONE.search(line, m.end())
            if done:
                call.ended, call.result = number, int(done.group(1))
    return out
