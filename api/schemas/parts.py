"""The parts of a convolutional layer on the wire: each type by its sizes."""

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.document import Flag, InputDocument, one_of
from api.schemas.sizes import Size
from planner.workload.feature_map import Activation

KnownActivation = Annotated[Activation, one_of(Activation)]


class ConvolutionDocument(InputDocument):
    """A convolution, a batch norm, an activation; depth-wise with as many ``groups`` as channels."""

    type: Literal["convolution"]
    inputs: Size
    outputs: Size
    kernel: Size = 1
    stride: Size = 1
    groups: Size = 1
    bias: Flag = False
    batch_norm: Flag = True
    activation: KnownActivation = Activation.NONE


class SqueezeExciteDocument(InputDocument):
    """Channels scaled by what a map to ``width`` and back makes of their means."""

    type: Literal["squeeze_excite"]
    channels: Size
    width: Size


class WindowPoolDocument(InputDocument):
    """The largest number, or the mean, of every window of a map."""

    type: Literal["pool"]
    channels: Size
    kernel: Size
    stride: Size
    average: Flag = False


PartDocument = Annotated[
    ConvolutionDocument | SqueezeExciteDocument | WindowPoolDocument, Field(discriminator="type")
]
