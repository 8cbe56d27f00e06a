"""The operations of a lowered network, one file each: shape, PyTorch reference, C, and the ATen operators it lowers."""

from gossamer.inference.operations import (
    assemble,
    embedding,
    gather,
    layers,
    masks,
    matmul,
    normalization,
    pointwise,
    pooling,
    recurrent,
    reduction,
    upsampling,
    views,
    where,
)

__all__ = [
    "assemble",
    "embedding",
    "gather",
    "layers",
    "masks",
    "matmul",
    "normalization",
    "pointwise",
    "pooling",
    "recurrent",
    "reduction",
    "upsampling",
    "views",
    "where",
]
