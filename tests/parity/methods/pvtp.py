"""prune=pvtp: progressive pruning of ST3 (arXiv 2412.20105, algorithm 1).

Before layers p_k = p_0 + k S the floor(|V0| (1 - P - k R)) visual tokens stay that the last row of
layer p_k - 1 attends to most, of those that are left. Both shares are of the rows there were at
first."""
from network import Shape, case, floor
from prune import Ranked


class Pvtp(Ranked):
    def __init__(self, layer, stride, first=0.5, ratio=0.1225):
        super().__init__()
        self.layer, self.stride, self.first, self.ratio = layer, stride, first, ratio

    def steps(self, run):
        n = int((run.prompt.modality == 0).sum())
        layers = range(self.layer, run.shape.n_layer, self.stride)
        return {layer: max(0, floor(n * (1 - self.first - k * self.ratio)))
                for k, layer in enumerate(layers)}


def methods(words):
    return [Pvtp(**words["pvtp"])]


def render():
    deep = Shape(n_layer=7)
    return {"networks": [
        case("prune=pvtp,layer=1,stride=1,first=0.3,ratio=0.2", methods, "t5 v35 t3 v35 t6"),
        case("prune=pvtp,layer=2,stride=2", methods, shape=deep),
        case("prune=pvtp,layer=3,stride=9", methods, shape=deep, answer=1),
        case("prune=pvtp,layer=1,stride=2,first=0.2,ratio=0.5", methods, shape=deep, answer=1)]}
