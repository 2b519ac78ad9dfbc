"""The deterministic policy as an ONNX graph: what `load_policy(...).act` does, for runtimes without Python.

    observations -> flat -> scaled (float64) -> convolutions and MLP, or module (float32) -> what env.step gets

Inputs and outputs are batches in the spaces' own types. A Dict or Tuple observation is one input per part, named by
its path, as `observation.camera.0`. Built node by node: no exporter, no torch, but
for modules of one's own.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from afedpg.errors import AfedpgError
from afedpg.export.policy_file import PolicyFile, contents, own_policy
from afedpg.policy.forward import LIMIT
from afedpg.sampling.normalizer import scaling
from afedpg.sampling.spaces import BoxActions, ManyActions, actions_of, choices_of, image_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from afedpg.policy.own import MakePolicy, ModulePolicy

OPSET, IR = 17, 8  # of 2022: every runtime in use reads them
BATCH = "batch"  # the first axis of every input and output, of any length
ACTION, OBSERVATION = "action", "observation"


def to_onnx(
    file: PolicyFile, versions: dict[str, str], producer: str, make_policy: MakePolicy | None = None
) -> ModelProto:
    """The model, checked: with all that policy.safetensors says of itself, the versions the run was made with, and
    the version of this program as its producer. `make_policy`: of a policy of one's own."""
    onnx = _onnx()
    graph = _Graph(onnx)
    flat = graph.add("Concat", *_flatten(graph, file.observation_space, OBSERVATION), axis=1)
    scaled = _scale(graph, file, flat)
    if file.policy.get("kind") == "mlp":
        shape = _act(graph, file, _mode(graph, file, _mlp(graph, file, _convolve(graph, file, scaled))))
    else:
        shape = _act(graph, file, _module(graph, file, own_policy(file, make_policy), scaled))
    _, metadata = contents(file)
    outputs = [onnx.helper.make_tensor_value_info(ACTION, graph.type_of(file.action_space), (BATCH, *shape))]
    model: ModelProto = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "policy", graph.inputs, outputs, graph.constants),
        producer_name="afedpg",
        producer_version=producer,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR,
        doc_string=f"the deterministic policy of a run on {file.task}",
    )
    onnx.helper.set_model_props(model, {**metadata, "versions": json.dumps(versions)})
    onnx.checker.check_model(model, full_check=True)
    return model


def _onnx() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.helper
    except ImportError as error:
        raise AfedpgError("onnx is not installed; install it with: pip install 'afedpg[onnx]'") from error
    return onnx


class _Graph:
    """Nodes, constants and inputs so far; every node has one output and is named by its number."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, value: NDArray[Any]) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def input(self, name: str, space: Space[Any]) -> str:
        shape = (BATCH, *(space.shape or ()))
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, self.type_of(space), shape))
        return name

    def cast(self, name: str, dtype: Any) -> str:
        return self.add("Cast", name, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def type_of(self, space: Space[Any]) -> int:
        kind: int = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(space.dtype))
        return kind


def _flatten(graph: _Graph, space: Space[Any], name: str) -> list[str]:
    """The parts of gymnasium.spaces.flatten, each [batch, size] in float64."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return [flat for key, part in parts for flat in _flatten(graph, part, f"{name}.{key}")]
    flat = graph.add("Flatten", graph.input(name, space), axis=1)  # a batch of numbers becomes [batch, 1]
    if isinstance(space, spaces.Discrete):
        return [_one_hot(graph, flat, np.array([space.start]), np.array([space.n]))]
    if isinstance(space, spaces.MultiDiscrete):
        return [_one_hot(graph, flat, space.start.reshape(-1), space.nvec.reshape(-1))]
    return [graph.cast(flat, np.float64)]


def _one_hot(graph: _Graph, numbers: str, start: NDArray[Any], counts: NDArray[Any]) -> str:
    """[batch, m] -> [batch, sum of counts]: all as wide as the widest, less the places that nobody can take."""
    widest = int(counts.max())
    index = graph.add("Sub", graph.cast(numbers, np.int64), graph.constant(start.astype(np.int64)))
    depth, values = graph.constant(np.array(widest)), graph.constant(np.array([0.0, 1.0], np.float32))
    wide = graph.add("Flatten", graph.add("OneHot", index, depth, values), axis=1)  # [batch, m * widest]
    places = [row * widest + place for row, count in enumerate(counts) for place in range(count)]
    return graph.cast(graph.add("Gather", wide, graph.constant(np.array(places, np.int64)), axis=1), np.float64)


def _scale(graph: _Graph, file: PolicyFile, flat: str) -> str:
    scale = scaling(file.statistics, spaces.flatdim(file.observation_space))
    if scale.mean.size:
        centred = graph.add("Sub", flat, graph.constant(scale.mean))
        flat = graph.add("Div", centred, graph.constant(scale.deviation))
        flat = graph.add("Clip", flat, graph.constant(np.array(-LIMIT)), graph.constant(np.array(LIMIT)))
    return graph.cast(flat, np.float32)


def _convolve(graph: _Graph, file: PolicyFile, x: str) -> str:
    """A picture's features; anything else stays as it is."""
    image = image_of(file.observation_space)
    if image is None:
        return x
    tensors = file.layout.views(file.theta)
    for shape, order in image.steps:
        x = graph.add("Reshape", x, graph.constant(np.array([-1, *shape], np.int64)))
        x = graph.add("Transpose", x, perm=order) if order else x
    x = graph.add("Div", x, graph.constant(np.array(image.brightest, np.float32)))
    for index, layer in enumerate(image.convolutions):
        weight, bias = (graph.constant(tensors[f"layer_conv{index}.{part}"]) for part in ("weight", "bias"))
        strides, pads = [layer.stride] * 2, [layer.padding] * 4
        x = graph.add("Relu", graph.add("Conv", x, weight, bias, strides=strides, pads=pads))
    return graph.add("Flatten", x, axis=1)


def _mlp(graph: _Graph, file: PolicyFile, x: str) -> str:
    tensors, activation = file.layout.views(file.theta), {"relu": "Relu", "tanh": "Tanh"}[file.policy["activation"]]
    for layer in range(len(file.policy["hidden"]) + 1):
        weight, bias = (graph.constant(tensors[f"layer{layer}.{part}"]) for part in ("weight", "bias"))
        x = graph.add("Gemm", graph.add(activation, x) if layer else x, weight, bias)
    return x


def _mode(graph: _Graph, file: PolicyFile, output: str) -> str:
    """The MLP's deterministic action in its own units."""
    if choices := choices_of(actions_of(file.action_space)):
        ends = np.cumsum(choices)
        places = [(end - count, end, 1) for end, count in zip(ends, choices, strict=True)]  # on axis 1
        parts = [graph.add("Slice", output, *(graph.constant(np.array([at])) for at in place)) for place in places]
        return graph.add("Concat", *(graph.add("ArgMax", part, axis=1) for part in parts), axis=1)
    if not file.policy["gaussian"]:
        return graph.add("ArgMax", output, axis=1, keepdims=0)
    return graph.add("Tanh", output) if file.policy["mean"] == "tanh" else output


def _module(graph: _Graph, file: PolicyFile, policy: ModulePolicy, x: str) -> str:
    """The same of a module of one's own, as torch writes it down; its nodes come into this graph."""
    import torch

    written, example = BytesIO(), torch.zeros(2, spaces.flatdim(file.observation_space))
    policy.actor(file.theta).mode(example[0].numpy())  # a graph of something else would be written as readily
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter that needs no further package is called an old one
            torch.onnx.export(
                policy.deterministic(file.theta), (example,), written, input_names=[x], output_names=["mode"],  # type: ignore[arg-type]
                dynamic_axes={x: {0: BATCH}}, opset_version=OPSET, dynamo=False,
            )  # fmt: skip
    except Exception as error:  # of anything that a module may do and a graph may not
        text = " ".join(str(error).split())
        raise AfedpgError(f"policy: torch cannot export {file.policy.get('module')}: {text[:300]}") from error
    inner = graph.onnx.load_from_string(written.getvalue()).graph
    names = {name: f"own.{name}" for node in inner.node for name in node.output}
    names |= {constant.name: f"own.{constant.name}" for constant in inner.initializer}
    for constant in inner.initializer:
        constant.name = names[constant.name]
        graph.constants.append(constant)
    for node in inner.node:
        node.name = ""
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names[name] for name in node.output]
        graph.nodes.append(node)
    return names["mode"]


def _act(graph: _Graph, file: PolicyFile, mode: str) -> Sequence[int]:
    """Adds the node `action`; returns its shape, less the batch."""
    actions = actions_of(file.action_space)
    if isinstance(actions, ManyActions):
        index = graph.cast(mode, np.int64)
        row = graph.cast(graph.add("Add", index, graph.constant(actions.start)), actions.space.dtype)
        shape = tuple(actions.space.shape)
        graph.add("Reshape", row, graph.constant(np.array([-1, *shape], np.int64)), output=ACTION)
        return shape
    if not isinstance(actions, BoxActions):
        index = graph.cast(mode, np.int64)
        graph.add("Add", index, graph.constant(np.array(actions.start, np.int64)), output=ACTION)
        return ()
    mean = graph.cast(mode, np.float64)
    half, middle = graph.constant(actions.half), graph.constant(actions.middle)
    exact = graph.cast(graph.add("Add", graph.add("Mul", mean, half), middle), actions.low.dtype)
    bounded = graph.add("Min", graph.add("Max", exact, graph.constant(actions.low)), graph.constant(actions.high))
    shape = actions.space.shape
    graph.add("Reshape", bounded, graph.constant(np.array([-1, *shape], np.int64)), output=ACTION)
    return shape
