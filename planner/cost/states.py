"""What the parameters of a device cost at rest and once a step: their states, gathers' bytes, the update."""

from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from planner.cost.compute import KernelCosts
from planner.cost.layout_costs import HostPart
from planner.cost.memory import StateBytes, frozen_bytes, state_bytes
from planner.cost.tally import NOTHING, Cause, Family, Tally, booked, total
from planner.footprint import Footprint
from planner.framework import StateWidths
from planner.job import Precision
from planner.optimizers import Matrix, Optimizer, WeightShapes, newton_schulz_products
from planner.strategy import Sharding
from planner.units import Bytes, FlopsPerSecond, Seconds
from planner.wire import WireChoices, chosen
from planner.workload.operators import MatrixProduct, Module, Phase
from planner.workload.weights import Holding

NORM_AND_UPDATE: Final = 2
"""Times that a step reads the gradients: for their norm, and for the update."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StateCosts:
    """Prices parameters under one optimizer.

    ``widths`` are those of trained parameters; frozen ones rest as they compute, quantized ones take
    ``base_bytes`` each, and every replica holds all of them unless they are sharded. ``products`` times an
    optimizer's own products.
    """

    optimizer: Optimizer
    widths: StateWidths
    base_bytes: float
    shards_quantized: bool
    copies_shards: bool
    """Whether what groups share of the parameters is a copy of what all replicas share."""
    footprint: Footprint
    kernels: KernelCosts
    products: KernelCosts
    vector_flops_per_second: FlopsPerSecond | None = None
    """Of FP32 outside matrix products, where the datasheet says."""
    reductions: WireChoices = ()
    """What reductions may move besides gradients as they are accumulated, at ``precision``."""
    precision: Precision = Precision.BF16
    _known: dict[WeightShapes, StateWidths] = field(default_factory=dict, init=False, repr=False)

    def widths_of(self, shapes: WeightShapes, sharding: Sharding) -> StateWidths:
        """Return the bytes per parameter of each state, moments averaged over the shapes."""
        found = self._own_widths(shapes)
        if sharding.reduce_dtype is None:
            return found
        return found.accumulating(chosen(self.reductions, sharding.reduce_dtype, sharding, self.precision))

    def _own_widths(self, shapes: WeightShapes) -> StateWidths:
        """Return them with gradients as the framework has them."""
        known = self._known.get(shapes)
        if known is None:
            parameters = shapes.parameters
            kept = self.optimizer.moment_bytes(shapes, value_bytes=self.widths.moment)
            known = self.widths.with_moments(kept / parameters) if parameters else self.widths
            self._known[shapes] = known
        return known

    def at_rest(self, holding: Holding, sharding: Sharding, *, replicas: int) -> StateBytes:
        """Return the states of one device: of what it trains all of them, of the rest the parameters.

        Tables that are looked up have no gradients, and nothing shards their states further.
        """
        trained = state_bytes(
            holding.trained.parameters,
            widths=self.widths_of(holding.trained, sharding),
            sharding=sharding,
            footprint=self.footprint,
            replicas=replicas,
        )
        quantized = self.base_bytes * holding.quantized
        spread = self.widths.compute * holding.frozen + (quantized if self.shards_quantized else 0.0)
        whole = StateBytes(parameters=0.0 if self.shards_quantized else quantized)
        states = trained + frozen_bytes(spread, sharding=sharding) + whole
        if self.copies_shards and 1 < sharding.parameters < sharding.optimizer:
            own = self.widths.parameter * ceil(holding.trained.parameters / sharding.optimizer)
            states += StateBytes(parameters=own + spread / sharding.optimizer)
        return states + self._looked_up(holding.looked_up, sharding)

    def _looked_up(self, tables: WeightShapes, sharding: Sharding) -> StateBytes:
        widths, parameters = self.widths_of(tables, sharding), tables.parameters
        return StateBytes(parameters=widths.parameter * parameters, optimizer=widths.optimizer * parameters)

    def shard_bytes(self, holding: Holding, sharding: Sharding) -> Bytes:
        """Return the parameters that one device has to itself: its shard, no gathered or cast copy."""
        apart = replace(sharding, reshard_after_forward=True)
        whole = self.at_rest(holding, apart, replicas=1).parameters
        cast = sharding.parameters == 1 and self.widths.compute < self.widths.parameter
        return whole - (self.widths.compute * holding.trained.parameters if cast else 0)

    def gathered_bytes(self, holding: Holding) -> Bytes:
        """Return the bytes of sharded parameters as gathers move them: quantized ones as they rest."""
        wide = holding.trained.parameters + holding.frozen
        quantized = self.base_bytes * holding.quantized if self.shards_quantized else 0.0
        return self.widths.compute * wide + quantized

    def update(self, shapes: WeightShapes, sharding: Sharding) -> Tally:
        """Return the norm and the update of one device's shard of what it trains.

        Gradients are read for the norm and the update, states read and written, the parameter written.
        """
        if not shapes.parameters:
            return NOTHING
        widths = self.widths_of(shapes, sharding)
        reads = NORM_AND_UPDATE + self.optimizer.more_passes
        width = reads * widths.gradient + 2 * widths.optimizer + widths.parameter
        shard = ceil(shapes.parameters / sharding.optimizer)
        estimate = self.kernels.optimizer_step(shard, width, kind=self.optimizer.name)
        seconds = max(estimate.seconds, self._arithmetic_seconds(shard))
        passes = booked(replace(estimate, seconds=seconds), cause=Cause.OPTIMIZER, family=Family.OPTIMIZER)
        return passes + self._orthogonalised(shapes, sharding)

    def host_part(self, holding: Holding, sharding: Sharding) -> HostPart:
        """Return what of some parameters can go to the host, of one device."""
        trained, widths = holding.trained.parameters, self.widths_of(holding.trained, sharding)
        updated = ceil(trained / sharding.optimizer)
        reads = NORM_AND_UPDATE - 1 + self.optimizer.more_passes
        return HostPart(
            parameter_bytes=self.shard_bytes(holding, sharding),
            gradient_bytes=widths.gradient * ceil(trained / sharding.gradients),
            updated_parameters=updated,
            update_bytes=reads * widths.gradient + 2 * widths.optimizer + widths.parameter,
            update_gradient_bytes=widths.gradient * updated,
            update_parameter_bytes=widths.compute * updated,
        )

    def _arithmetic_seconds(self, parameters: int) -> Seconds:
        """Return what the FLOP of an update take at least; it is bound by memory on all but odd devices."""
        if not self.vector_flops_per_second:
            return 0.0
        return self.optimizer.flops_per_parameter * parameters / self.vector_flops_per_second

    def _orthogonalised(self, shapes: WeightShapes, sharding: Sharding) -> Tally:
        """Return Muon's Newton-Schulz steps over the hidden matrices, whole ones dealt out to a shard group.

        Under tensor parallelism each rank works on its own part of a matrix, block by block.
        """
        steps = self.optimizer.newton_schulz_steps
        if not steps:
            return NOTHING
        single = [self._step(matrix).times(matrix.count * steps) for matrix in shapes.matrices]
        return total(single).times(1 / sharding.optimizer)

    def _step(self, matrix: Matrix) -> Tally:
        """Return one step's products over a matrix."""
        return total(
            booked(
                self.products.matrix_product(_product(*shape), phase=Phase.FORWARD),
                cause=Cause.OPTIMIZER,
                family=Family.OPTIMIZER,
            )
            for shape in newton_schulz_products(matrix.rows, matrix.columns)
        )


def _product(rows: int, columns: int, inner: int) -> MatrixProduct:
    return MatrixProduct(name="newton_schulz", module=Module.MLP, rows=rows, columns=columns, inner=inner)
