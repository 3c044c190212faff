import openmdao.api as om
from by_hand import adjoint, states


class Component(om.ExplicitComponent):
    def initialize(self):
        self.options.declare("key")
        self.options.declare("part", recordable=False)

    def setup(self):
        *self.matrices, before = self.options["part"]
        name = "_".join(map(str, self.options["key"]))
        self.us = [f"y_{layer}_{k}" for layer, k in before] or ["u"]
        self.p, self.y = f"p_{name}", f"y_{name}"
        for u in self.us:
            self.add_input(u, shape=5)
        self.add_input(self.p, shape=())
        self.add_output(self.y, shape=5)

    def compute(self, inputs, outputs):
        us = [inputs[u] for u in self.us]
        outputs[self.y], self.kept = states(self.matrices, us, inputs[self.p])

    def compute_jacvec_product(self, inputs, d_inputs, d_outputs, mode):
        of_u, of_p = adjoint(self.matrices, inputs[self.p], self.kept, d_outputs[self.y])
        for u in self.us:
            d_inputs[u] += of_u
        d_inputs[self.p] += of_p


def set_up(parts):
    problem = om.Problem(reports=False)
    names = ["u", *[f"p_{layer}_{k}" for layer, k in parts]]
    design = problem.model.add_subsystem("design", om.IndepVarComp(), promotes=["*"])
    design.add_output("u", shape=5)
    for name in names[1:]:
        design.add_output(name, shape=())
    for key, part in parts.items():
        one = Component(key=key, part=part)
        problem.model.add_subsystem("c_{}_{}".format(*key), one, promotes=["*"])
    last = [f"y_4_{k}" for k in range(10)]
    squares = "f = " + " + ".join(f"sum({y}**2)" for y in last)
    total = om.ExecComp(squares, **{y: {"shape": 5} for y in last})
    problem.model.add_subsystem("f", total, promotes=["*"])
    problem.setup(mode="rev")

    def both(x):
        for name, value in zip(names, (x[:5], *x[5:]), strict=True):
            problem.set_val(name, value)
        problem.run_model()
        totals = problem.compute_totals(of=["f"], wrt=names, return_format="flat_dict")
        return problem.get_val("f").item(), [totals["f", name] for name in names]

    return {"adjoint by hand": both}
