"""What pruners that rank by the last row's attention have in common; no method by itself."""
import numpy as np

import network
from network import VISUAL, top


class Ranked(network.Method):
    """Before layer l of `steps` {l: rows that stay}, the visual tokens stay that the prompt's last
    row attends to most in layer l - 1, mean over heads. A step that no row leaves at is none."""

    def steps(self, run):
        raise NotImplementedError

    def __init__(self):
        self.alpha = {}  # layer -> the last token's attention, by position in the prompt
        self.taps = {}   # layer -> the layer whose alpha chose its rows last

    def attended(self, run, layer, scores, p):
        self.alpha[layer] = np.zeros(len(run.prompt.ids))
        self.alpha[layer][run.pos] = p[:, -1, :].mean(axis=0)
        return p

    def layer_begins(self, run, layer):
        visual = np.flatnonzero(run.modality == VISUAL)
        keep = self.steps(run).get(layer, len(visual))
        if keep < len(visual):
            best = visual[top(self.alpha[layer - 1][run.pos[visual]], keep)]
            self.taps[layer] = layer - 1
            run.keep(np.sort(np.concatenate([np.flatnonzero(run.modality != VISUAL), best])))
        elif layer - 1 in self.taps:
            self.taps[layer] = self.taps[layer - 1]
