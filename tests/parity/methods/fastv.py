"""prune=fastv: FastV (arXiv 2403.06764; pkunlp-icler/FastV, modeling_llama.py). From layer K on, the
round(n (1 - R)) visual rows stay that the last row of layer K - 1 attends to most; halves are
rounded to even, as Python does it."""
from network import Shape, case
from prune import Ranked


class FastV(Ranked):
    def __init__(self, layer, keep=0.5):
        super().__init__()
        self.layer, self.share = layer, keep

    def steps(self, run):
        return {self.layer: round(float((run.prompt.modality == 0).sum() * self.share))}


def methods(words):
    return [FastV(**words["fastv"])]


def render():
    return {"networks": [
        case("prune=fastv,layer=1,keep=0.25", methods, answer=1),
        case("prune=fastv,layer=2,keep=0.5", methods, "t5 v35 t3 v36 t6"),  # 35.5: to 36
        case("prune=fastv,layer=2,keep=0.5", methods, "t2 v33 t1", answer=1),  # 16.5: to 16
        case("prune=fastv,layer=3,keep=0", methods, "t1 v1 t1", answer=1),
        case("prune=fastv,layer=1,keep=0.1", methods, "t9 v129 t65", answer=1,
             shape=Shape(n_layer=2, n_head=6, n_kv=1, d_head=20)),
        case("prune=fastv,layer=1,keep=0.35", methods, "v200 t7", answer=1,
             shape=Shape(n_layer=2, n_head=3, n_kv=3, d_head=40))]}
