# SPDX-License-Identifier: Apache-2.0
"""What cytoc computes of NaN, infinities and integers at their ends where ONNX Runtime computes something else, fails, or
ends the process.

In:  a node, its operands, and what ONNX Runtime makes of them. Out: what it should be.

The rules. Integers wrap, and so does the smallest one by -1; by zero, quotients and remainders are 0. Floats become
integers by truncation, held within the type's range; NaN becomes 0. Whatever selects the largest or smallest of floats
gives NaN where there is one; where it gives a place, NaN beats nothing, and nothing beats a NaN that comes first. TopK
takes NaN for the largest number.
"""
import numpy as np
from onnx import helper


def attribute(node, name, default):
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def is_nan(x):
    return np.isnan(x) if x.dtype.kind == 'f' else np.zeros(x.shape, bool)


# ---- integers

def quotient(node, x, y):
    if x.dtype.kind == 'f':
        return None
    zero, by = y == 0, np.where(y == 0, np.ones_like(y), y)
    if x.dtype.kind == 'u':
        found = x // by
    else:
        minus = by == -1
        by = np.where(minus, np.ones_like(by), by)
        floor = x // by
        found = np.where(minus, np.negative(x), floor + ((floor * by != x) & ((x < 0) != (by < 0))).astype(x.dtype))
    return np.where(zero, np.zeros_like(found), found).astype(x.dtype)


def remainder(node, x, y):
    if x.dtype.kind == 'f':
        return None
    zero = (y == 0) | (y == -1) if x.dtype.kind == 'i' else y == 0
    by = np.where(zero, np.ones_like(y), y)
    found = np.fmod(x, by) if attribute(node, 'fmod', 0) else np.mod(x, by)
    return np.where(zero, np.zeros_like(found), found).astype(x.dtype)


def converted(node, x):
    to = np.dtype(helper.tensor_dtype_to_np_dtype(attribute(node, 'to', 1)))
    if x.dtype.kind != 'f' or to.kind not in 'iu':
        return None
    info, wide = np.iinfo(to), np.trunc(x.astype(np.float64))
    inside = (wide >= info.min) & (wide < float(info.max) + 1)
    found = np.where(inside, wide, 0).astype(to)
    return np.where(wide < info.min, info.min, np.where(wide > info.max, info.max, found)).astype(to) * ~is_nan(x)


# ---- choosing

def hardmax(node, x):
    axis = attribute(node, 'axis', -1)
    at = np.expand_dims(np.argmax(np.where(np.isnan(x), -np.inf, x), axis), axis)
    at = np.where(np.isnan(np.take(x, [0], axis)), 0, at)
    found = np.zeros_like(x)
    np.put_along_axis(found, at, 1, axis)
    return found


def top(node, x, k):
    """NaN is the largest, and of equal ones the first comes first."""
    axis, largest, count = attribute(node, 'axis', -1), attribute(node, 'largest', 1), int(k.ravel()[0])
    rows = np.moveaxis(x, axis, -1)
    if largest:  # from behind, turned round twice, so that ties keep their order
        order = rows.shape[-1] - 1 - np.argsort(rows[..., ::-1], -1, kind='stable')[..., ::-1]
    else:
        order = np.argsort(rows, -1, kind='stable')
    order = np.moveaxis(order[..., :count], -1, axis)
    return np.take_along_axis(x, order, axis), order


def rule_of(node, operands):
    """What it should be where that takes no runtime; None where it does."""
    alone = {'Div': quotient, 'Mod': remainder, 'Cast': converted}
    found = alone[node.op_type](node, *operands) if node.op_type in alone else None
    return None if found is None else [found]


def spread(node, operands, found, run):
    """The largest or smallest, and NaN wherever there is one among what it is chosen from."""
    x, more, low = operands[0], operands[1:], node.op_type == 'ReduceMin'
    marks = np.where(np.isnan(x), *((-1, 1) if low else (1, -1))).astype(x.dtype)
    mark = run([marks] + more)[0]
    return [np.where(mark < 0 if low else mark > 0, np.nan, found[0]).astype(x.dtype)] + found[1:]


def least(operands, found, run):
    """-inf where a window has nothing else (ONNX Runtime: the lowest finite number)."""
    x = operands[0]
    none = run([np.where(np.isneginf(x), -1, 1).astype(x.dtype)] + operands[1:])[0] == -1
    return [np.where(none, -np.inf, found[0]).astype(x.dtype)] + found[1:]


def log_softmax(node, x, found):
    axis = attribute(node, 'axis', -1)
    none = (~(x < np.inf)).any(axis, keepdims=True) | np.isneginf(x).all(axis, keepdims=True)
    return np.where(none, np.nan, found).astype(x.dtype)


def corrected(node, operands, found, run):
    """found: ONNX Runtime's results; run: computes the node of other operands."""
    x = operands[0] if operands else None
    if x is None or x.dtype.kind != 'f' or np.isfinite(x).all():
        return found
    if node.op_type == 'LogSoftmax':
        return [log_softmax(node, x, found[0])]
    if node.op_type in ('MaxPool', 'GlobalMaxPool'):
        found = least(operands, found, run)
    if not np.isnan(x).any():
        return found
    if node.op_type in ('ReduceMax', 'ReduceMin', 'MaxPool', 'GlobalMaxPool'):
        return spread(node, operands, found, run)
    if node.op_type == 'Hardmax':
        return [hardmax(node, x)]
    return list(top(node, x, operands[1])) if node.op_type == 'TopK' else found


def is_unclear(node, operands):
    """Where the standard leaves open what happens, or ONNX Runtime is wrong: neighbours of weight 0 that are no numbers,
    sums that are taken away again, sines of what is less than its distance to the next number, NaN among what has an
    order."""
    floats = [v for v in operands if v is not None and v.dtype.kind == 'f']
    finite, nan = all(np.isfinite(v).all() for v in floats), any(np.isnan(v).any() for v in floats)
    if node.op_type in ('Resize', 'GridSample', 'LRN'):
        return not finite
    if node.op_type in ('ScatterElements', 'ScatterND'):
        return nan and attribute(node, 'reduction', b'none') in (b'max', b'min')
    if node.op_type in ('Unique', 'QuantizeLinear') or (node.op_type == 'MaxPool' and len(node.output) > 1):
        return not finite
    if node.op_type == 'Gemm':  # ONNX Runtime does not scale c where there is nothing to multiply
        return not operands[0].size
    if node.op_type == 'Clip':  # is there a bound where none is given?
        return not finite and (len(operands) < 3 or any(v is None for v in operands))
    if node.op_type in ('MaxPool', 'AveragePool', 'LpPool'):  # pads would be negative
        wide = max(attribute(node, 'strides', []), default=1) > min(attribute(node, 'kernel_shape', []))
        return wide and attribute(node, 'auto_pad', b'').startswith(b'SAME')
    if node.op_type in ('Sin', 'Cos', 'Tan'):
        return any(np.any(np.isfinite(v) & (np.abs(v.astype(np.float64)) > 1e6)) for v in floats)
    return False
