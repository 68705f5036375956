from planner.workload.operators import AttentionCore, MatrixProduct, MemoryPass, Module, SavedTensor

SAVED = (
    SavedTensor(name="query", size_bytes=10, made_by=Module.ATTENTION),
    SavedTensor(name="key", size_bytes=5, made_by=None),
)


def core(*, causal: bool) -> AttentionCore:
    return AttentionCore(
        name="core",
        module=Module.CORE_ATTENTION,
        batch=2,
        query_length=128,
        key_length=256,
        heads=4,
        kv_heads=1,
        head_dim=64,
        value_dim=32,
        causal=causal,
        saved=SAVED,
    )


def test_a_product_costs_two_flop_per_multiply_add_each_time_it_runs() -> None:
    product = MatrixProduct(name="p", module=Module.MLP, rows=3, columns=5, inner=7, count=11, saved=SAVED)
    assert product.forward_flops == 2 * 3 * 5 * 7 * 11


def test_a_causal_core_costs_half() -> None:
    assert core(causal=False).forward_flops == 2 * 2 * 4 * 128 * 256 * (64 + 32)
    assert core(causal=True).forward_flops == core(causal=False).forward_flops / 2


def test_saved_bytes_are_the_sum_of_the_saved_tensors() -> None:
    product = MatrixProduct(name="p", module=Module.MLP, rows=1, columns=1, inner=1, saved=SAVED)
    memory = MemoryPass(
        name="m", module=Module.NORM, kind="add", forward_bytes=1, backward_bytes=1, saved=SAVED
    )
    assert product.saved_bytes == memory.saved_bytes == core(causal=True).saved_bytes == 15


def test_products_one_after_the_other_cost_as_much_as_each() -> None:
    step = MatrixProduct(name="p", module=Module.RECURRENCE, rows=3, columns=5, inner=7)
    steps = MatrixProduct(name="p", module=Module.RECURRENCE, rows=3, columns=5, inner=7, repeats=11)
    assert steps.forward_flops == 11 * step.forward_flops
    assert steps.gradient_elements == 11 * step.gradient_elements == 11 * 3 * (5 + 7)


def test_rows_that_overlap_have_a_gradient_as_large_as_the_input() -> None:
    windows = MatrixProduct(
        name="p", module=Module.CONVOLUTION, rows=64, columns=5, inner=27, input_elements=3 * 64
    )
    assert windows.gradient_elements == 64 * 5 + 3 * 64
