"""Derives from a condition a classic BPF program that keeps every frame for which the condition could be true.

It examines IPv4 and IPv6 directly after an Ethernet header, and keeps all else: inner tags, labels, sessions, chains of
extension headers, truncated frames. It understands comparisons of version, protocol, address and port with constants;
anything else in the condition counts as possibly true. Frames that it drops are never received and never counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ingest.live.bpf_programs import NOTHING, Instruction, accepting
from lowmark.query.expr.constant_sets import blocks
from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Op, Ranges, fields
from lowmark.wire.rows.values import address_version

__all__ = ["derived", "useful"]

_ABSOLUTE_WORD, _ABSOLUTE_HALF, _ABSOLUTE_BYTE = 0x20, 0x28, 0x30  # loads into A
_RELATIVE_HALF, _CONSTANT, _MEMORY, _FRAME_LENGTH = 0x48, 0x00, 0x60, 0x80
_HEADER_TO_X = 0xB1  # X = 4 · (the low half of a byte)
_STORE, _ADD, _AND, _TO_X, _TO_A = 0x02, 0x04, 0x54, 0x07, 0x87
_JUMP, _EQUAL, _GREATER, _AT_LEAST, _ANY_BIT, _AT_LEAST_X = 0x05, 0x15, 0x25, 0x35, 0x45, 0x3D

_MOST = 255
"""Most instructions, because a conditional jump reaches no further."""

_LONGEST = 64
"""Most ranges or prefixes in a list."""

_ETHERTYPE, _IP = 12, 14
_TYPES = {4: 0x0800, 6: 0x86DD}
_HEADER = {4: 20, 6: 40}
_PROTOCOL = {4: _IP + 9, 6: _IP + 6}
_ADDRESSES = {4: {"srcIP": _IP + 12, "destIP": _IP + 16}, 6: {"srcIP": _IP + 8, "destIP": _IP + 24}}
_PORTS = {"srcPort": 0, "destPort": 1}  # cells of the program's memory
_WITH_PORTS = (6, 17, 33, 132, 136)
_TCP, _UDP, _ICMP6 = 6, 17, 58
_ALL_ONES = (1 << 128) - 1
_ADDRESS_MASK = {4: (1 << 32) - 1, 6: _ALL_ONES}
_NEGATED = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT}
_MIRRORED = {Op.EQ: Op.EQ, Op.NE: Op.NE, Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE}


@dataclass(frozen=True, slots=True)
class _Number:
    """A number in the packet, compared with a constant."""

    name: str
    op: Op
    value: int


@dataclass(frozen=True, slots=True)
class _Address:
    """Whether the masked address is `network`, or is not."""

    name: str
    network: int
    mask: int
    inside: bool


@dataclass(frozen=True, slots=True)
class _Both:
    every: bool  # every part must hold; else any part
    parts: tuple[_Test, ...]


_Test = bool | _Number | _Address | _Both


def useful(keep: Expr) -> bool:
    """Whether a program would drop anything."""
    known = any(_test(keep, version, False) is not True for version in _TYPES)
    return known and derived(keep, 0, 1) != accepting(0, 1)  # no other interface needs a longer program


def derived(keep: Expr, snaplen: int, loopback: int | None) -> tuple[Instruction, ...]:
    """As `accepting`, but drops frames for which `keep` cannot be true. If the program would be too long, it filters
    nothing."""
    code = _Code()
    for version, ethertype in _TYPES.items():
        test = _test(keep, version, False)
        if test is True:
            continue
        other, body = code.label(), code.label()
        code.put(_ABSOLUTE_HALF, _ETHERTYPE)
        code.branch(_EQUAL, ethertype, body, other)
        code.place(body)
        code.put(_FRAME_LENGTH, 0)
        code.branch(_AT_LEAST, _IP + _HEADER[version], None, _KEEP)
        _prepare(code, version, set(fields(keep)), snaplen)
        _write(code, version, test, _KEEP, _LEAVE)
        code.place(other)
    program = code.program(accepting(snaplen, loopback))
    return program if len(program) <= _MOST else accepting(snaplen, loopback)


def _test(expr: Expr, version: int, negated: bool) -> _Test:
    """The condition for packets of one version of IP; True if unknown. `negated`: its opposite."""
    match expr:
        case Literal(value=value):
            return value is None or bool(value) is not negated
        case Call(Op.NOT, (inner,)):
            return _test(inner, version, not negated)
        case Call((Op.AND | Op.OR) as op, parts):
            return _joined((op is Op.AND) is not negated, [_test(part, version, negated) for part in parts])
        case Call(Op.IN, (Field(name), Ranges() as ranges)):
            return _listed(name, ranges, version, negated)
        case Call(op, (Field(name), Literal(int(value)))) if op in _NEGATED:
            return _compared(name, _NEGATED[op] if negated else op, value, version)
        case Call(op, (Literal(int(value)), Field(name))) if op in _NEGATED:
            return _compared(name, _MIRRORED[_NEGATED[op] if negated else op], value, version)
    return True


def _listed(name: str, ranges: Ranges, version: int, negated: bool) -> _Test:
    """A list that would fill the program counts as unknown, which leaves room for the rest of the condition."""
    tests: list[_Test] = []
    for test in _each(name, ranges, version, negated):
        if test is not negated:
            tests.append(test)
        if len(tests) > _LONGEST:
            return True
    return _joined(negated, tests)


def _each(name: str, ranges: Ranges, version: int, negated: bool) -> Iterator[_Test]:
    """For each range, whether the number or address is in it, or is not."""
    bounds = (Op.LT, Op.GT) if negated else (Op.GE, Op.LE)
    for span in ranges.spans:
        if name in _ADDRESSES[4]:
            for first, last in blocks(span):
                yield _address(_Address(name, first, _ALL_ONES - (last - first), not negated), version)
        else:
            parts = [_compared(name, op, value, version) for op, value in zip(bounds, span, strict=True)]
            yield _joined(not negated, parts)


def _joined(every: bool, parts: Sequence[_Test]) -> _Test:
    left = tuple(part for part in parts if part is not every)
    if (not every) in left:
        return not every
    return _Both(every, left) if left else every


def _compared(name: str, op: Op, value: int, version: int) -> _Test:
    if name in _ADDRESSES[4]:
        if op not in (Op.EQ, Op.NE):
            return True
        return _address(_Address(name, value, _ALL_ONES, op is Op.EQ), version)
    if name == "ip_version":
        return _holds(version, op, value)
    if (name == "proto" or name in _PORTS) and 0 <= value < 1 << 16:
        return _Number(name, op, value)
    return True


def _holds(left: int, op: Op, right: int) -> bool:
    outcomes = {Op.EQ: left == right, Op.NE: left != right, Op.LT: left < right, Op.GE: left >= right}
    return {**outcomes, Op.GT: left > right, Op.LE: left <= right}[op]


def _address(test: _Address, version: int) -> _Test:
    """The condition on an address. An address of another IP version never matches."""
    if version != address_version(test.network):
        return not test.inside
    return test if test.mask & _ADDRESS_MASK[version] else test.inside


def _prepare(code: _Code, version: int, used: set[str], snaplen: int) -> None:
    """Put the ports into the program's memory, if they are needed. Keeps packets that are not understood."""
    if not used & {"proto", *_PORTS} or (version == 4 and not used & set(_PORTS)):
        return
    none, some, done = code.label(), code.label(), code.label()
    if version == 4:
        code.put(_ABSOLUTE_HALF, _IP + 6)
        code.branch(_ANY_BIT, 0x1FFF, none, None)  # a later fragment
        code.put(_ABSOLUTE_BYTE, _PROTOCOL[4])
        for protocol in _WITH_PORTS:
            code.branch(_EQUAL, protocol, some, None)
        code.jump(none)
        code.place(some)
        code.put(_HEADER_TO_X, _IP)
        code.put(_TO_A, 0)
        code.put(_ADD, _IP + 4)
        code.branch(_GREATER, snaplen, _KEEP, None)  # the ports are not captured, and count as 0
        code.put(_TO_X, 0)
        code.put(_FRAME_LENGTH, 0)
        code.branch(_AT_LEAST_X, 0, None, _KEEP)
        code.put(_HEADER_TO_X, _IP)
        at, load = _IP, _RELATIVE_HALF
    else:
        code.put(_ABSOLUTE_BYTE, _PROTOCOL[6])
        code.branch(_EQUAL, _TCP, some, None)
        code.branch(_EQUAL, _UDP, some, None)
        code.branch(_EQUAL, _ICMP6, none, _KEEP)
        code.place(some)
        code.put(_FRAME_LENGTH, 0)
        code.branch(_AT_LEAST, _IP + 40 + 4, None, _KEEP)
        at, load = _IP + 40, _ABSOLUTE_HALF
    for cell in range(2):
        code.put(load, at + 2 * cell)
        code.put(_STORE, cell)
    code.jump(done)
    code.place(none)
    code.put(_CONSTANT, 0)
    code.put(_STORE, 0)
    code.put(_STORE, 1)
    code.place(done)


def _write(code: _Code, version: int, test: _Test, yes: int, no: int) -> None:
    match test:
        case bool():
            code.jump(yes if test else no)
        case _Both(every, parts):
            for part in parts[:-1]:
                following = code.label()
                _write(code, version, part, *((following, no) if every else (yes, following)))
                code.place(following)
            _write(code, version, parts[-1], yes, no)
        case _Number(name, op, value):
            if name in _PORTS:
                code.put(_MEMORY, _PORTS[name])
            else:
                code.put(_ABSOLUTE_BYTE, _PROTOCOL[version])
            jump = {Op.EQ: _EQUAL, Op.NE: _EQUAL, Op.GT: _GREATER, Op.LE: _GREATER}.get(op, _AT_LEAST)
            straight = op in (Op.EQ, Op.GT, Op.GE)
            code.branch(jump, value, *((yes, no) if straight else (no, yes)))
        case _Address(name, network, mask, inside):
            first = 3 if version == 4 else 0
            at = _ADDRESSES[version][name] - 4 * first
            yes, no = (yes, no) if inside else (no, yes)
            for word in range(first, 4):
                shift = 32 * (3 - word)
                if wanted := mask >> shift & 0xFFFF_FFFF:
                    code.put(_ABSOLUTE_WORD, at + 4 * word)
                    code.put(_AND, wanted)
                    code.branch(_EQUAL, network >> shift & 0xFFFF_FFFF, None, no)
            code.jump(yes)


_KEEP, _LEAVE = -1, -2  # labels of the two ends


@dataclass(slots=True)
class _Code:
    """Instructions whose jumps name labels; None: the next instruction."""

    lines: list[tuple[int, int, int | None, int | None]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)

    def label(self) -> int:
        self.labels.append(-1)
        return len(self.labels) - 1

    def place(self, label: int) -> None:
        self.labels[label] = len(self.lines)

    def put(self, code: int, operand: int) -> None:
        self.lines.append((code, operand, None, None))

    def branch(self, code: int, operand: int, yes: int | None, no: int | None) -> None:
        self.lines.append((code, operand, yes, no))

    def jump(self, to: int) -> None:
        self.lines.append((_JUMP, 0, to, None))

    def program(self, keeping: Sequence[Instruction]) -> tuple[Instruction, ...]:
        """The program; `keeping` is the end for frames that are kept."""
        # A frame that reaches the end of the lines is kept, because no line decided about it.
        lines = [*self.lines, (_JUMP, 0, _KEEP, None)]
        ends = {_LEAVE: len(lines), _KEEP: len(lines) + len(NOTHING)}

        def distance(at: int, label: int | None) -> int:
            if label is None:
                return 0
            return (ends[label] if label < 0 else self.labels[label]) - at - 1

        made = []
        for at, (code, operand, yes, no) in enumerate(lines):
            if code == _JUMP:
                made.append(Instruction(code, 0, 0, distance(at, yes)))
            else:
                made.append(Instruction(code, distance(at, yes), distance(at, no), operand))
        return (*made, *NOTHING, *keeping)
