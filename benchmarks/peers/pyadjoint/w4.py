import numpy as np
import numpy_adjoint  # noqa: F401  tells pyadjoint of arrays
import pyadjoint
from by_hand import adjoint, states
from pyadjoint import AdjFloat, Block, Control, ReducedFunctional, Tape, get_working_tape
from pyadjoint.overloaded_type import create_overloaded_object


class ComponentBlock(Block):
    def __init__(self, matrices, us, p):
        super().__init__()
        self.matrices = matrices
        for each in (*us, p):
            self.add_dependency(each)

    def recompute_component(self, inputs, block_variable, idx, prepared):
        y, self.kept = states(self.matrices, inputs[:-1], float(inputs[-1]))
        return create_overloaded_object(y)

    def prepare_evaluate_adj(self, inputs, adj_inputs, relevant):
        return adjoint(self.matrices, float(inputs[-1]), self.kept, adj_inputs[0])

    def evaluate_adj_component(self, inputs, adj_inputs, block_variable, idx, prepared=None):
        if idx == len(inputs) - 1:
            return prepared[1]
        return prepared[0].copy()  # pyadjoint adds to it in place


class SquaresBlock(Block):
    def __init__(self, ys):
        super().__init__()
        for each in ys:
            self.add_dependency(each)

    def recompute_component(self, inputs, block_variable, idx, prepared):
        return AdjFloat(sum(np.sum(np.asarray(y) ** 2) for y in inputs))

    def evaluate_adj_component(self, inputs, adj_inputs, block_variable, idx, prepared=None):
        return 2 * adj_inputs[0] * np.asarray(inputs[idx])


def annotated(block):
    get_working_tape().add_block(block)
    with pyadjoint.stop_annotating():
        given = [each.saved_output for each in block.get_dependencies()]
        output = create_overloaded_object(block.recompute_component(given, None, 0, None))
    block.add_output(output.create_block_variable())
    return output


def set_up(parts):
    pyadjoint.set_working_tape(Tape())
    pyadjoint.continue_annotation()
    u, ps = create_overloaded_object(np.zeros(5)), [AdjFloat(1.0) for _ in parts]
    outputs = {}
    for p, (key, (*matrices, before)) in zip(ps, parts.items(), strict=True):
        us = [outputs[b] for b in before] or [u]
        outputs[key] = annotated(ComponentBlock(matrices, us, p))
    total = annotated(SquaresBlock([outputs[4, k] for k in range(10)]))
    reduced = ReducedFunctional(total, [Control(u), *map(Control, ps)])

    def both(x):
        value = reduced([create_overloaded_object(x[:5].copy()), *map(AdjFloat, x[5:])])
        return value, [np.asarray(each) for each in reduced.derivative()]

    return {"adjoint by hand": both}
