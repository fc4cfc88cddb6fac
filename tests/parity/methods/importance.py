"""evict=importance: packed rows that leave by what the prompt paid to them; rendered in svd.py."""
from network import Shape, case
from svd import methods


def render():
    narrow, two = Shape(n_layer=3, n_head=4, n_kv=1), "t5 v50 t3 v50 t6"
    return {"networks": [
        case("pack=svd,rank_k=16,rank_v=16,gain=0,block=3;expand=attention,parts=both;"
             "evict=importance,keep=0.8", methods, two, shape=narrow),
        case("pack=svd,rank_k=48,rank_v=44,gain=0;evict=importance,keep=0.4", methods),
        case("pack=svd,rank_k=16,rank_v=16,gain=0,block=3;expand=attention,parts=both;"
             "evict=importance,keep=0.3", methods, two, shape=narrow)]}
