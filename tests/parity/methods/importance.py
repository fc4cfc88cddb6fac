"""evict=importance: packed rows that leave by what the prompt paid to them; rendered in svd.py."""
from network import Shape, case
from svd import methods


def render():
    narrow, two = Shape(n_layer=3, n_head=4, n_kv=1), "t5 v35 t3 v35 t6"
    full = "pack=svd,rank_k=48,rank_v=48,gain=0"
    return {"networks": [
        case(full + ";evict=importance,keep=0.4", methods, two),
        case("pack=svd,rank_k=20,rank_v=16,gain=0,block=3;expand=attention,parts=both;"
             "evict=importance", methods, two, shape=narrow)]}
