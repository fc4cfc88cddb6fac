"""select=roco: the mean attention of a row, over the rows that see it (RoCo, arXiv 2402.06262).

    m_j = 1 / (n - j) sum of A_ij over all rows i of the prompt

over=all divides by n instead, as the "mean_h2o" of comparisons with images does.
"""
from budget import Budget, come_to, group_of
from network import case


class Roco(Budget):
    def __init__(self, heavy=0.1, recent=0.1, over="seen", group="mean"):
        super().__init__(heavy, recent)
        self.over, self.group = over, group
        self.sums = {}

    def attended(self, run, layer, scores, p):
        self.sums[layer] = p.sum(axis=1)
        return p

    def score(self, run, layer, g, pos):
        n = len(run.prompt.ids)
        s = come_to(self.group)(self.sums[layer][group_of(run, g)], axis=0)
        return s / (n - pos if self.over == "seen" else n)


def methods(words):
    return [Roco(**words["roco"])]


def render():
    mixed = "t5 v35 t3 v35 t6"
    return {"networks": [
        case("select=roco", methods, mixed),
        case("select=roco,heavy=0.3,recent=0.05,group=max", methods, mixed, answer=1),
        case("select=roco,heavy=0.2,recent=0.1,over=all", methods, "t3 v40 t1", answer=1)]}
