"""A codec of eight bits a number: what rounding leaves over is sent with the next contribution.

afedpg train quadratic --codec examples/parts/eight_bits.py:EightBits
"""

from dataclasses import dataclass

import numpy as np

from afedpg.config import option


@dataclass(frozen=True)
class EightBits:
    """Whole numbers from -127 to 127 per block, times the block's scale."""

    block: int = option(1024, "numbers that share a scale", at_least=1, at_most=1 << 20)

    def start(self, size):
        return {"residual": np.zeros(size, np.float32)}

    def nbytes(self, size):
        return size + 4 * -(-size // self.block)

    def encode(self, vector, state):
        wanted = vector + state["residual"]
        starts = np.arange(0, wanted.size, self.block)
        scales = np.maximum(np.maximum.reduceat(np.abs(wanted), starts) / 127, 1e-30).astype(np.float32)
        levels = np.rint(wanted / self._spread(scales, wanted.size)).astype(np.int8)
        payload = np.concatenate([scales.view(np.uint8), levels.view(np.uint8)])
        return payload, {"residual": wanted - self.decode(payload, wanted.size)}

    def decode(self, payload, size):
        if payload.dtype != np.uint8 or payload.size != self.nbytes(size):
            raise ValueError(f"{payload.size} bytes, {self.nbytes(size)} are expected")
        scales, levels = payload[:-size].view(np.float32), payload[-size:].view(np.int8)
        return levels * self._spread(scales, size)

    def _spread(self, scales, size):
        return np.repeat(scales, self.block)[:size]
