"""Two blocks of machine code, written as LLVM vectors because a compiler's choice of vectors would decide the speed.

    block product     C[rows, 16] = S[rows, 16] + A[rows, depth] B[depth, 16]
    transpose         B[16, 16] = A[16, 16]^T

A product keeps all of C in registers, loads a row of B once and multiplies it with one broadcast number of A per row of
C. An element is the fused sum over the depth from first to last, however many rows a block has: all processors with
fused multiply-adds give the same bits. numpy arrays are flat here; numbers called *_at are places in them, *_row the
distance from one row to the next, *_step the distance along the depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic

cgutils: Any = untyped_cgutils
COLUMNS = 16  # of a block: one vector of AVX-512, two of AVX2, four of NEON
# Accumulators for all rows must fit into the registers, with a row of B and a broadcast: 32 of 16 numbers, 16 of 8.
ROWS = 8 if binding.get_host_cpu_features().get("avx512f") else 6

_INDEX = ir.IntType(64)
_LANE = ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), COLUMNS)
_ANY = ir.Constant(_VECTOR, ir.Undefined)


def _index(value: int) -> Any:
    return ir.Constant(_INDEX, value)


def _lanes(lanes: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_LANE, COLUMNS), lanes)


class _Array:
    """A flat float32 array argument: vectors in and out of it, at any place."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self._builder = builder
        self._data = context.make_array(kind)(context, builder, value).data

    def _vector(self, at: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(self._data, [at]), _VECTOR.as_pointer())

    def load(self, at: Any) -> Any:
        return self._builder.load(self._vector(at), align=4)

    def store(self, value: Any, at: Any) -> None:
        self._builder.store(value, self._vector(at), align=4)

    def broadcast(self, at: Any) -> Any:
        number = self._builder.load(self._builder.gep(self._data, [at]))
        first = self._builder.insert_element(_ANY, number, ir.Constant(_LANE, 0))
        return self._builder.shuffle_vector(first, _ANY, _lanes([0] * COLUMNS))


def _block_product(rows: int) -> Callable[..., None]:
    def typed(
        _: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, b: Any, b_at: Any, b_step: Any,
        start: Any, start_at: Any, start_row: Any, c: Any, c_at: Any, c_row: Any, depth: Any,
    ) -> tuple[Any, Any]:  # fmt: skip
        i = types.int64
        return types.void(a, i, i, i, b, i, i, start, i, i, c, i, i, i), generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("noinline")  # or it would be compiled again in every function that multiplies
        a, b, start, c = (_Array(context, builder, signature.args[n], arguments[n]) for n in (0, 4, 7, 10))
        a_at, a_row, a_step, b_at, b_step, start_at, start_row, c_at, c_row, depth = (
            arguments[n] for n in (1, 2, 3, 5, 6, 8, 9, 11, 12, 13)
        )
        each = [_index(row) for row in range(rows)]
        before = [start.load(builder.add(start_at, builder.mul(row, start_row))) for row in each]
        entry = builder.block
        loop, body, done = (builder.append_basic_block(name) for name in ("loop", "body", "done"))
        builder.branch(loop)
        builder.position_at_end(loop)
        k, a_now, b_now = builder.phi(_INDEX), builder.phi(_INDEX), builder.phi(_INDEX)
        sums = [builder.phi(_VECTOR) for _ in each]
        builder.cbranch(builder.icmp_signed("<", k, depth), body, done)
        builder.position_at_end(body)
        row_of_b = b.load(b_now)
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fma.v{COLUMNS}f32"
        )
        added = [
            builder.call(fma, [a.broadcast(builder.add(a_now, builder.mul(row, a_row))), row_of_b, total])
            for row, total in zip(each, sums, strict=True)
        ]
        changes = [
            (k, _index(0), builder.add(k, _index(1))),
            (a_now, a_at, builder.add(a_now, a_step)),
            (b_now, b_at, builder.add(b_now, b_step)),
            *zip(sums, before, added, strict=True),
        ]
        for variable, first, following in changes:
            variable.add_incoming(first, entry)
            variable.add_incoming(following, body)
        builder.branch(loop)
        builder.position_at_end(done)
        for row, total in zip(each, sums, strict=True):
            c.store(total, builder.add(c_at, builder.mul(row, c_row)))
        return context.get_dummy_value()

    block: Callable[..., None] = intrinsic(typed)
    return block


def _transpose(_: Any, a: Any, a_at: Any, a_row: Any, b: Any, b_at: Any, b_row: Any) -> tuple[Any, Any]:
    i = types.int64
    return types.void(a, i, i, b, i, i), _generate_transpose


def _generate_transpose(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Four passes; pass s swaps the two off-diagonal s x s blocks of every 2s x 2s block."""
    a, b = (_Array(context, builder, signature.args[n], arguments[n]) for n in (0, 3))
    _, a_at, a_row, _, b_at, b_row = arguments
    vectors = [a.load(builder.add(a_at, builder.mul(_index(n), a_row))) for n in range(COLUMNS)]
    for s in (1, 2, 4, 8):
        upper = _lanes([lane + COLUMNS - s if lane & s else lane for lane in range(COLUMNS)])
        lower = _lanes([lane + COLUMNS if lane & s else lane + s for lane in range(COLUMNS)])
        for n in (n for n in range(COLUMNS) if not n & s):
            one, other = vectors[n], vectors[n + s]
            vectors[n] = builder.shuffle_vector(one, other, upper)
            vectors[n + s] = builder.shuffle_vector(one, other, lower)
    for n, vector in enumerate(vectors):
        b.store(vector, builder.add(b_at, builder.mul(_index(n), b_row)))
    return context.get_dummy_value()


whole_block = _block_product(ROWS)
four_rows = _block_product(4)
two_rows = _block_product(2)
one_row = _block_product(1)
transpose_block: Callable[..., None] = intrinsic(_transpose)
