"""How many layers each chunk of a pipeline gets where nobody says."""

from itertools import accumulate

from planner.workload.body import Body
from planner.workload.layers import Layer


def even_split(num_layers: int, num_chunks: int) -> tuple[int, ...]:
    """Return layers per chunk as even as they go, the longer chunks first."""
    share, longer = divmod(num_layers, num_chunks)
    return tuple(share + (chunk < longer) for chunk in range(num_chunks))


def weighed_split(body: Body, num_chunks: int) -> tuple[int, ...]:
    """Return layers per chunk where each is filled until its share of all weights is passed.

    The head's weights count, an embedding's do not, as nothing is multiplied by them. Chunks between the
    ends keep one layer at the least.
    """
    weights = [sum(map(_product_weights, body.classes[number])) for number in body.sequence]
    end = sum(map(_product_weights, body.last))
    reached, counts, passed = list(accumulate(weights)), [], 0
    for chunk in range(num_chunks - 1):
        share = (reached[-1] + end) * (chunk + 1) / num_chunks
        left = len(weights) - passed - (num_chunks - 2 - chunk)
        wanted = sum(before <= share for before in (0.0, *reached[:-1])) - passed
        counts.append(max(min(max(wanted, 1), left), 0))
        passed += counts[-1]
    return (*counts, len(weights) - passed)


def _product_weights(layer: Layer) -> float:
    return layer.forward_flops_per_sample(1) / 2
