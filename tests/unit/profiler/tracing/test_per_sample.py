import pytest

from planner.workload.traced import SampleDim, TracedLayer, TracedPass, TracedProduct, Volume
from profiler.tracing.errors import UntraceableModule
from profiler.tracing.per_sample import layers_per_sample


def layer(*operators: TracedProduct | TracedPass, elements: int = 0) -> TracedLayer:
    return TracedLayer(operators_of_sample=operators, role="Part", output=Volume(elements=elements))


def product(rows: int, columns: int = 2, name: str = "mm") -> TracedProduct:
    return TracedProduct(name=name, rows=rows, columns=columns, inner=3, grows=SampleDim.NONE)


def test_what_grows_is_told_from_what_does_not() -> None:
    runs = {batch: [layer(product(7 * batch), elements=5 + 2 * batch)] for batch in (2, 3, 5)}
    (of_sample,) = layers_per_sample(runs)
    assert of_sample.operators_of_sample == (TracedProduct(name="mm", rows=7, columns=2, inner=3),)
    assert of_sample.output == Volume(elements=2, fixed_elements=5)


def test_equal_operators_are_one_that_is_repeated_and_the_others_keep_names_of_their_own() -> None:
    runs = {
        batch: [layer(product(batch), product(batch, name="mm 2"), product(batch, 4, name="mm 3"))]
        for batch in (2, 3, 5)
    }
    (of_sample,) = layers_per_sample(runs)
    seen = [(operator.name, operator.repeat) for operator in of_sample.operators_of_sample]
    assert seen == [("mm", 2), ("mm 2", 1)]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({2: (2, 2), 3: (3, 3)}, "mm of layer Part does not grow evenly"),
        ({2: (3, 2), 3: (4, 2)}, "3 with a batch of 2, 4 with a batch of 3"),
        ({2: (4, 2), 3: (2, 2)}, "samples are mixed"),
        ({2: (2, 2), 3: (3, 2), 5: (6, 2)}, "6 with a batch of 5"),
    ],
)
def test_sizes_that_are_no_multiple_of_the_batch_are_refused(
    sizes: dict[int, tuple[int, int]], message: str
) -> None:
    with pytest.raises(UntraceableModule, match=message):
        layers_per_sample({batch: [layer(product(*size))] for batch, size in sizes.items()})


def test_batches_that_run_other_layers_or_operators_are_refused() -> None:
    one, two = layer(product(2)), layer(product(2), product(2, name="mm 2"))
    with pytest.raises(UntraceableModule, match="another number of layers"):
        layers_per_sample({2: [one], 3: [one, one]})
    with pytest.raises(UntraceableModule, match="runs other operators"):
        layers_per_sample({2: [one], 3: [two]})
