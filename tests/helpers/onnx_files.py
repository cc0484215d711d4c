"""Tiny detectors as ONNX files."""

import onnx
from onnx import TensorProto, helper, numpy_helper


def file(path, outputs, size=(64, 64), last=False, kind=TensorProto.FLOAT, names=None, more_inputs=()):
    """A detector that gives these arrays whatever it is shown."""
    sides = [1, *size, 3] if last else [1, 3, *size]
    nodes, given = [], []
    for name, array in outputs.items():
        nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        given.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None))
    taken = [helper.make_tensor_value_info("image", kind, sides)]
    taken += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in more_inputs]
    return save(path, nodes, taken, given, names)


def save(path, nodes, taken, given, names=None):
    model = helper.make_model(
        helper.make_graph(nodes, "g", taken, given), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    if names is not None:
        helper.set_model_props(model, {"names": str(names)})
    onnx.save(model, path)
    return path
