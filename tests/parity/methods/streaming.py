"""select=streaming: attention sinks and a recent window (StreamingLLM, arXiv 2309.17453), with the
first heads of a layer whole (as DuoAttention has retrieval heads, arXiv 2410.10819)."""
import numpy as np

import network
from network import Shape, case, ceil, floor


class Streaming(network.Method):
    def __init__(self, sink=4, recent=0.2, full_heads=0.25):
        self.sink, self.recent, self.full = sink, recent, full_heads

    def prefilled(self, run):
        n = len(run.prompt.ids)
        begin = n - max(1, floor(self.recent * n))
        for heads in run.store:
            for head in heads[ceil(self.full * len(heads)):]:
                for rows in head:
                    rows.keep(np.flatnonzero((rows.pos < self.sink) | (rows.pos >= begin)))


def methods(words):
    return [Streaming(**words["streaming"])]


def render():
    return {"networks": [
        case("select=streaming", methods, "t5 v20 t3 v20 t6"),
        case("select=streaming,sink=7,recent=0.1,full_heads=0.5", methods, "t5 v20 t30",
             shape=Shape(n_layer=3, n_kv=4, d_head=20)),
        case("select=streaming,sink=0,recent=0,full_heads=0", methods, "t3 v9 t1", answer=2)]}
